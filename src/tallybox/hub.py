"""The layers with `save_pretrained`, `from_pretrained` and `push_to_hub` of Hugging Face.

Install ``tallybox[hub]``. A folder holds ``config.json`` and ``model.safetensors``. Local folders need no network.

>>> from tempfile import mkdtemp
>>> folder = mkdtemp()
>>> Counter(max_objects=5, heads=2).save_pretrained(folder)
>>> restored = Counter.from_pretrained(folder)  # doctest: +ELLIPSIS
Loading ...
>>> restored
Counter(max_objects=5, heads=2, segments=16, logits=False, backend='auto')
"""

from huggingface_hub import PyTorchModelHubMixin

from tallybox.counter import module as counter_module
from tallybox.presence import module as presence_module


class Counter(counter_module.Counter, PyTorchModelHubMixin, library_name="tallybox", tags=["object-counting"]):
    """`tallybox.Counter` that can be saved to and loaded from a folder or a model hub."""


class PresenceCounter(
    presence_module.PresenceCounter, PyTorchModelHubMixin, library_name="tallybox", tags=["object-counting"]
):
    """`tallybox.PresenceCounter` that can be saved to and loaded from a folder or a model hub."""
