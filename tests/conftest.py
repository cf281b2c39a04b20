"""Layers, backends and dtypes by argument name, and how hard Hypothesis looks."""

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

# Read by Triton when it is first imported.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from tests.support.backends import BACKEND_NAMES, BACKENDS_AND_DTYPES, FLOAT64_BACKENDS
from tests.support.problems import LAYERS

# The suite draws the same examples every time, so that a commit that passed keeps passing;
# HYPOTHESIS_PROFILE=thorough looks for new ones.
settings.register_profile("suite", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=2000)
EXAMPLES_OF_INTERPRETED_KERNELS = 4
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes ``backend`` once for each, ``dtype`` for those that it covers.

    ``float64_backend`` stands for the backends that compute in float64, ``layer`` for the counting layers.
    """
    if "layer" in metafunc.fixturenames:
        metafunc.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)
    if {"backend", "dtype"} <= set(metafunc.fixturenames):
        parameters = [
            pytest.param(backend, dtype, id=f"{backend}-{str(dtype).removeprefix('torch.')}", marks=marks_of(backend))
            for backend, dtype in BACKENDS_AND_DTYPES
        ]
        metafunc.parametrize(("backend", "dtype"), parameters)
    elif "backend" in metafunc.fixturenames:
        parameters = [pytest.param(backend, id=backend, marks=marks_of(backend)) for backend in BACKEND_NAMES]
        metafunc.parametrize("backend", parameters)
    elif "float64_backend" in metafunc.fixturenames:
        metafunc.parametrize("float64_backend", FLOAT64_BACKENDS)


def marks_of(backend: str) -> list[pytest.MarkDecorator]:
    """Call a test slow where Triton is interpreted; `test_fused.py` runs it among the fast ones as well."""
    return [pytest.mark.slow] if backend == "triton" and not torch.cuda.is_available() else []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the tests that take minutes, so that no worker waits for one of them at the end."""
    items.sort(key=lambda item: -sum(mark.kwargs.get("minutes", 0) for mark in item.iter_markers("slow")))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Draw few examples for Triton where it is interpreted, a hundred times slower than anything else here."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if parameters.get("backend") != "triton" or not hasattr(item.obj, "hypothesis") or torch.cuda.is_available():
        return (yield)
    usual = item.obj._hypothesis_internal_use_settings
    item.obj._hypothesis_internal_use_settings = settings(usual, max_examples=EXAMPLES_OF_INTERPRETED_KERNELS)
    try:
        return (yield)
    finally:
        item.obj._hypothesis_internal_use_settings = usual


@pytest.fixture
def fresh_compiler(monkeypatch, tmp_path):
    """Forget compiled graphs before and after, also those on disk: an operator's results may have changed since."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture
def poisoned_memory(monkeypatch):
    """Fill what `torch.empty` and its relatives give with NaN, so that an output that is not written shows."""
    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        honest = getattr(owner, name)

        def poisoned(*arguments, _honest=honest, **options):
            tensor = _honest(*arguments, **options)
            return tensor.fill_(torch.nan) if tensor.is_floating_point() else tensor

        monkeypatch.setattr(owner, name, poisoned)
