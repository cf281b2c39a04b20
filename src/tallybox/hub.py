"""The layers and the VQA model with `save_pretrained`, `from_pretrained` and `push_to_hub` of Hugging Face.

Install ``tallybox[hub]``. A folder holds ``config.json`` and ``model.safetensors``. Local folders need no network.

>>> from tempfile import mkdtemp
>>> folder = mkdtemp()
>>> Counter(max_objects=5, heads=2).save_pretrained(folder)
>>> restored = Counter.from_pretrained(folder)  # doctest: +ELLIPSIS
Loading ...
>>> restored
Counter(max_objects=5, heads=2, segments=16, logits=False, backend='auto')
"""

from collections.abc import Sequence

from huggingface_hub import PyTorchModelHubMixin

from tallybox.counter import module as counter_module
from tallybox.errors import InputError
from tallybox.presence import module as presence_module
from tallybox.vqa import model as vqa_model
from tallybox.vqa.config import MODELS, ModelConfig

COUNTING = ["object-counting"]  # the tag of a layer


class Counter(counter_module.Counter, PyTorchModelHubMixin, library_name="tallybox", tags=COUNTING):
    """`tallybox.Counter` that can be saved to and loaded from a folder or a model hub."""


class PresenceCounter(presence_module.PresenceCounter, PyTorchModelHubMixin, library_name="tallybox", tags=COUNTING):
    """`tallybox.PresenceCounter` that can be saved to and loaded from a folder or a model hub."""


class VqaModel(vqa_model.VqaModel, PyTorchModelHubMixin, library_name="tallybox", tags=["visual-question-answering"]):
    """`tallybox.vqa.VqaModel` that can be saved to and loaded from a folder or a model hub.

    ``words`` (of questions, from index 1) and ``answers`` (from 0) are its vocabulary. A component of your own is
    refused: a downloaded file must not decide which code is run.
    """

    def __init__(
        self, model: ModelConfig, sizes: vqa_model.DataSizes, words: Sequence[str] = (), answers: Sequence[str] = ()
    ) -> None:
        if model.name not in MODELS:
            raise InputError(f"A model on the hub is one of {', '.join(MODELS)}, not {model.name}.")
        super().__init__(model, sizes)
        self.words, self.answers = tuple(words), tuple(answers)
