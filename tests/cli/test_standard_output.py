import subprocess
import sys

from tallybox.photos.shipped import SHIPPED_ESTIMATOR
from tests.support.detection_sets import write_json


def test_a_pipe_whose_reader_is_gone_ends_the_command_quietly():
    command = [sys.executable, "-m", "tallybox", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""


def test_a_full_device_is_one_line(tmp_path):
    results = [{"image_id": 7, "category_id": 1, "bbox": [10, 10, 200, 300], "score": 0.9}]
    path = write_json(tmp_path / "results.json", results)
    command = [sys.executable, "-m", "tallybox", "count", path, "--estimator", SHIPPED_ESTIMATOR]
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr.startswith("Error: ")
    assert "No space left" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.returncode == 1
