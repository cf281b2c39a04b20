"""The wheel alone, in environments that have nothing but Python: the core, then each extra on its own, then all."""

from __future__ import annotations

import subprocess
import sys
import venv
from email.parser import BytesParser
from pathlib import Path
from zipfile import ZipFile

import pytest

pytestmark = pytest.mark.slow  # torch is installed anew

ROOT = Path(__file__).parent.parent
CONSTRAINTS = ROOT / "constraints.txt"

COUNT = """
import torch, tallybox
boxes = torch.tensor([[2.0, 5, 22, 19], [2, 5, 22, 19], [28, 2, 46, 17]])
for layer in (tallybox.Counter(4, backend=BACKEND), tallybox.PresenceCounter(4, backend=BACKEND)):
    assert abs(layer.count(torch.ones(3), boxes).item() - 2) < 1e-3
"""
SAVE = """
import tallybox
image = tallybox.Detections([[0, 0, 9, 9], [20, 0, 29, 9]], [0.9, 0.8], [1, 1], image_id=1)
assert tallybox.CountEstimator.untrained({1: "person"}).predict(image)["person"].count == 2
"""
SMOKE = {
    "cli": "import subprocess, sys; subprocess.run([sys.executable, '-m', 'tallybox', '--help'], check=True)",
    "cpu": COUNT.replace("BACKEND", '"cpu"'),
    "detections": SAVE,
    "figures": "from tallybox.figures import canvas",
    "onnx": "import onnxruntime, tallybox",
    "photos": (
        "import tallybox; from tallybox.photos import sample_photos\n"
        "assert tallybox.PhotoCounter().count(sample_photos()[1])['horse'].count == 2"
    ),
    "ray": "import ray, tallybox",
    "serve": "import fastapi, uvicorn, tallybox",
    "triton": "import triton, tallybox",
    "vqa": "import tallybox.vqa.model, tallybox.vqa.training",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


def requirements(wheel: Path, extra: str) -> list[str]:
    """Return what an extra asks for beyond the core."""
    with ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        listed = BytesParser().parsebytes(archive.read(name)).get_all("Requires-Dist")
    return [line.replace(f"extra == '{extra}'", "python_version > '3'") for line in listed if f"'{extra}'" in line]


def install(python: Path, *packages: object) -> None:
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", CONSTRAINTS]
    result = subprocess.run([*command, *packages], capture_output=True, text=True, check=False)
    if "Could not find a version" in result.stderr or "No space left" in result.stderr:
        pytest.skip(f"packages cannot be installed here: {result.stderr.strip().splitlines()[-1]}")
    assert result.returncode == 0, result.stderr


def environment(folder: Path) -> Path:
    """Make an environment with nothing in it and return its Python."""
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def run(python: Path, code: str) -> str:
    result = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=False, cwd=python.parent)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def core(wheel, tmp_path_factory):
    """An environment with the wheel and what it needs, torch and numpy."""
    python = environment(tmp_path_factory.mktemp("core"))
    install(python, wheel)
    return python


def test_the_core_counts_and_names_what_else_to_install(core):
    run(core, COUNT.replace("BACKEND", '"auto"'))
    assert "pip install 'tallybox[photos]'" in run(
        core, "import tallybox\ntry:\n    tallybox.PhotoCounter()\nexcept tallybox.TallyboxError as e: print(e)"
    )
    command = subprocess.run([core.parent / "tallybox", "--help"], capture_output=True, text=True, check=False)
    assert command.returncode == 1
    assert command.stderr.strip().endswith("pip install 'tallybox[cli]'")


@pytest.mark.parametrize("extra", SMOKE)
def test_each_extra_brings_what_it_needs(wheel, core, extra, tmp_path):
    python = environment(tmp_path / extra)
    (packages,) = (tmp_path / extra).glob("lib/python*/site-packages")
    (of_core,) = core.parent.parent.glob("lib/python*/site-packages")
    (packages / "core.pth").write_text(f"{of_core}\n")
    install(python, *requirements(wheel, extra))
    run(python, SMOKE[extra])
