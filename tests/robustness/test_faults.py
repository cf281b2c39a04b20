"""A full disk, a read-only folder, a kill and two writers: what was there stays, what is new is whole or absent."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from benchmarks.synthetic_photos import made_up_photos
from PIL import Image

from tallybox.photos import sample_photos
from tallybox.photos.shipped import SHIPPED_ESTIMATOR
from tests.support.detection_sets import coco_results, write_counts, write_json

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mounts and kills are Linux's"),
]

SMALL_BYTES = 64 * 1024


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tallybox", *(str(argument) for argument in arguments)]


def run(*arguments: object, **options) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, check=False, **options)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def mounted(folder: Path, options: str) -> Path:
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None or subprocess.run([mount, "-t", "tmpfs", "-o", options, "tmpfs", folder], check=False).returncode:
        pytest.skip("a file system of a few kilobytes needs root, who may mount")
    return folder


@pytest.fixture
def small_disk(tmp_path):
    folder = mounted(tmp_path / "small", f"size={SMALL_BYTES}")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture
def read_only(tmp_path):
    folder = mounted(tmp_path / "read_only", "ro")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Detections of 300 photos, their counts, and a folder of a few photos."""
    folder = tmp_path_factory.mktemp("inputs")
    photos, labels = made_up_photos(300, seed=2)
    write_json(folder / "found.json", coco_results(photos))
    rows = [(i, labels.categories[c], n) for i, named in labels.counts.items() for c, n in named.items()]
    write_counts(folder / "counts.csv", rows)
    (folder / "photos").mkdir()
    for path in sample_photos():
        shutil.copy(path, folder / "photos")
    return folder


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_full_disk_under_pictures(small_disk, inputs):
    done = run("count", inputs / "photos", "--save", small_disk / "out", "--json")
    assert done.returncode == 1
    assert len(json.loads(done.stdout)["images"]) == 3
    errors = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    written = files_of(small_disk)
    assert len(errors) + len(written) == 3
    assert errors
    assert all("No space left on device" in line for line in errors)
    for name in written:  # those that fit are whole
        with Image.open(small_disk / name) as picture:
            picture.load()


@pytest.mark.parametrize("earlier", [True, False])
def test_a_full_disk_under_a_table(small_disk, inputs, earlier):
    table = small_disk / "counts.csv"
    if earlier:
        table.write_text("earlier")
    (small_disk / "filling").write_bytes(bytes(SMALL_BYTES - 16 * 1024))
    done = run("count", inputs / "found.json", "--estimator", SHIPPED_ESTIMATOR, "--csv", table, "--json")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert f"{table}: No space left on device" in done.stderr
    assert len(json.loads(done.stdout)["images"]) == 300
    assert files_of(small_disk) == {"filling"} | ({"counts.csv"} if earlier else set())
    assert not earlier or table.read_text() == "earlier"


WRITERS = {
    "detect": lambda inputs, out: ("detect", inputs / "photos", "--out", out / "found.json"),
    "explain": lambda inputs, out: ("explain", sample_photos()[0], "--out", out / "page.html"),
    "simulate": lambda inputs, out: ("vqa", "simulate", "--train-photos", 50, "--out", out / "data"),
    "csv": lambda inputs, out: ("count", sample_photos()[0], "--csv", out / "counts.csv"),
    "save": lambda inputs, out: ("count", sample_photos()[0], "--save", out / "pictures"),
    "fit": lambda inputs, out: ("fit", inputs / "found.json", inputs / "counts.csv", "--out", out / "a.estimator"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_read_only_folder_is_one_line(read_only, inputs, name):
    done = run(*WRITERS[name](inputs, read_only))
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert str(read_only) in line


def test_a_killed_command_leaves_the_earlier_file_or_the_whole_one(inputs, tmp_path):
    table = tmp_path / "counts.csv"
    arguments = ("count", inputs / "found.json", "--estimator", SHIPPED_ESTIMATOR, "--csv", table)
    began = time.perf_counter()
    assert run(*arguments).returncode == 0
    seconds, whole = time.perf_counter() - began, table.read_bytes()
    random = np.random.default_rng(0)
    for _ in range(3):
        table.write_text("earlier")
        with subprocess.Popen(command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(seconds * random.uniform(0.3, 1.0))
            process.send_signal(signal.SIGKILL)
        assert table.read_bytes() in (b"earlier", whole)
