"""Kernels for a GPU, compiled where there is none: the interpreter passes what the compiler refuses."""

import os
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_every_triton_kernel_compiles_for_an_h200():
    pytest.importorskip("triton", reason="needs triton")
    environment = {**os.environ, "TRITON_INTERPRET": ""}
    command = [sys.executable, "-m", "tests.support.compile_kernels"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "pair_gradient_kernel" in done.stdout
    assert "presence_backward_kernel" in done.stdout
    assert "table_backward_kernel" in done.stdout
