"""The wheel alone, in environments that have nothing but Python: the core, then each extra on its own, then all.

Also what is inside it: its size, and a licence for every file that is not ours.
"""

import subprocess
import sys
import venv
from email.parser import BytesParser
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
LOWEST = ROOT / "constraints-lowest.txt"
MAX_WHEEL_BYTES = 7.5e6  # README.md says 7 MB
slow = pytest.mark.slow  # torch is installed anew

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
    "figures": (
        "import tallybox.toy.figures, tallybox.vqa.figures\n"
        "from pathlib import Path; from tallybox.plotting import picture\n"
        "with picture(Path('line.svg'), 3, 2) as figure: figure.subplots().plot([1, 2])\n"
        "assert Path('line.svg').stat().st_size > 1_000"
    ),
    "heic": "import pillow_heif, tallybox",
    "hub": "import tallybox.hub",
    "onnx": (
        "import pathlib, tallybox; from tallybox.photos.detectors import OnnxDetector\n"
        "pathlib.Path('bad.onnx').write_bytes(b'no model')\n"
        "try: OnnxDetector('bad.onnx'); raise SystemExit('a bad file was taken')\n"
        "except tallybox.TallyboxError as error: assert 'bad.onnx' in str(error), error"
    ),
    "photos": (
        "import tallybox; from tallybox.photos import sample_photos\n"
        "assert tallybox.PhotoCounter().count(sample_photos()[1])['horse'].count == 2"
    ),
    "ray": "import ray, tallybox.photos.distributed",
    "serve": (
        "import tallybox; from tallybox.service.api import ServiceSettings, build_api\n"
        "settings = ServiceSettings(tallybox.CountEstimator.untrained({1: 'person'}))\n"
        "assert '/v1/count' in build_api(settings).openapi()['paths']"
    ),
    "triton": "import triton, tallybox.counter.cuda.launch",
    "video": "import av, tallybox.photos.counting",
    "vqa": (
        "import pathlib, tallybox.vqa.training; from tallybox.vqa.data.store import write_tsv\n"
        "from tallybox.vqa.config import VqaConfig; assert VqaConfig().training.epochs == 100"
    ),
}
EVERYTHING = """
import json, subprocess, sys
from tallybox import sample_photos
photo = str(sample_photos()[1])

def run(*words):
    return subprocess.run([sys.executable, "-m", "tallybox", *words], check=True, stdout=subprocess.PIPE).stdout

assert json.loads(run("count", photo, "--json"))["images"][0]["counts"]["horse"]["count"] == 2
assert json.loads(run("ask", photo, "How many horses are there?", "--json"))["answer"] == "2"
run("explain", photo, "--out", "page.html")
run("toy", "train", "--side-length", "0.5", "--noise", "0", "--iterations", "3", "--evaluation-batches", "1", "--json")
"""


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


def install(python: Path, *packages: object, constraints: Path = CONSTRAINTS) -> None:
    # Compiling every module of every package takes longer than the tests that import a few of them.
    options = ["--quiet", "--disable-pip-version-check", "--no-compile", "--constraint", constraints]
    result = subprocess.run(
        [python, "-m", "pip", "install", *options, *packages], capture_output=True, text=True, check=False
    )
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


@slow
def test_the_core_counts_and_names_what_else_to_install(core):
    run(core, COUNT.replace("BACKEND", '"auto"'))
    assert "pip install 'tallybox[photos]'" in run(
        core, "import tallybox\ntry:\n    tallybox.PhotoCounter()\nexcept tallybox.TallyboxError as e: print(e)"
    )
    command = subprocess.run([core.parent / "tallybox", "--help"], capture_output=True, text=True, check=False)
    assert command.returncode == 1
    assert command.stderr.strip().endswith("pip install 'tallybox[cli]'")


@slow
@pytest.mark.parametrize("extra", SMOKE)
def test_each_extra_brings_what_it_needs(wheel, core, extra, tmp_path):
    python = environment(tmp_path / extra)
    (packages,) = (tmp_path / extra).glob("lib/python*/site-packages")
    (of_core,) = core.parent.parent.glob("lib/python*/site-packages")
    (packages / "core.pth").write_text(f"{of_core}\n")
    install(python, *requirements(wheel, extra))
    run(python, SMOKE[extra])


@pytest.mark.slow(minutes=4)
def test_everything_together_in_the_lowest_versions(wheel, tmp_path):
    python = environment(tmp_path / "all")
    install(python, f"{wheel}[all]", constraints=LOWEST)
    of_all = [code for extra, code in SMOKE.items() if extra != "heic"]  # its decoders have other licences
    for code in (*of_all, EVERYTHING):
        run(python, code)


def test_every_data_file_of_the_package_has_its_licence_listed():
    listed = (ROOT / "NOTICE.md").read_text()
    data = [path for path in (ROOT / "src/tallybox").rglob("*") if path.suffix in (".safetensors", ".jpg")]
    assert len(data) == 6
    for path in data:
        name = path.relative_to(ROOT / "src/tallybox").as_posix()
        assert name in listed or f"{Path(name).parent.as_posix()}/*.jpg" in listed, name


@slow
def test_the_wheel_is_small_and_carries_its_licences(wheel):
    assert wheel.stat().st_size < MAX_WHEEL_BYTES
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    licences = [name.split("/licenses/")[1] for name in names if "/licenses/" in name]
    assert sorted(licences) == ["LICENSE", "NOTICE.md", "src/tallybox/photos/data/PICODET_LICENSE"]
    assert any(name.endswith("sample_photos/NOTICE.md") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "research/", "docs/"))]
