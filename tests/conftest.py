"""Backends and dtypes by argument name, and how hard Hypothesis looks."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import settings

from tests.support.backends import BACKEND_NAMES, BACKENDS_AND_DTYPES, FLOAT64_BACKENDS

# The suite draws the same examples every time, so that a commit that passed keeps passing;
# HYPOTHESIS_PROFILE=thorough looks for new ones.
settings.register_profile("suite", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes ``backend`` once for each, ``dtype`` for those that it covers.

    ``float64_backend`` stands for the backends that compute in float64.
    """
    if {"backend", "dtype"} <= set(metafunc.fixturenames):
        ids = [f"{backend}-{str(dtype).removeprefix('torch.')}" for backend, dtype in BACKENDS_AND_DTYPES]
        metafunc.parametrize(("backend", "dtype"), BACKENDS_AND_DTYPES, ids=ids)
    elif "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", BACKEND_NAMES)
    elif "float64_backend" in metafunc.fixturenames:
        metafunc.parametrize("float64_backend", FLOAT64_BACKENDS)


@pytest.fixture
def fresh_compiler():
    """Forget compiled graphs before and after."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
