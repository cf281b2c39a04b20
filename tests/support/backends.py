"""The backends that every numeric test of the component runs against: one line each."""

from typing import NamedTuple

import torch


class BackendUnderTest(NamedTuple):
    """A backend, the dtypes it computes in and the device that its inputs lie on."""

    name: str
    dtypes: tuple[torch.dtype, ...]
    device: str = "cpu"


BACKENDS = [
    BackendUnderTest("reference", (torch.float64, torch.float32)),
    BackendUnderTest("cpu", (torch.float64, torch.float32)),
    # On a GPU where there is one, else in Triton's interpreter.
    BackendUnderTest("triton", (torch.float32,), "cuda" if torch.cuda.is_available() else "cpu"),
]

BACKEND_NAMES = [backend.name for backend in BACKENDS]
BACKENDS_AND_DTYPES = [(backend.name, dtype) for backend in BACKENDS for dtype in backend.dtypes]
FUSED = [name for name in BACKEND_NAMES if name != "reference"]
FLOAT64_BACKENDS = [backend.name for backend in BACKENDS if torch.float64 in backend.dtypes]


DEVICES = {backend.name: backend.device for backend in BACKENDS}


def device_of(backend: str) -> str:
    return DEVICES[backend]


def is_interpreted(backend: str) -> bool:
    """Whether a call of a thousand boxes takes minutes: Triton's kernels without a GPU."""
    return backend == "triton" and device_of(backend) == "cpu"
