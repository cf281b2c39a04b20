import subprocess
import sys
import threading

import pytest

from tallybox.cli.standard_output import reserved_standard_output
from tallybox.photos.shipped import SHIPPED_ESTIMATOR
from tests.support.detection_sets import write_json


def test_what_other_threads_print_and_what_comes_after_the_command_goes_to_standard_error(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # restored after the test
    with reserved_standard_output():
        print("ours")
        other = threading.Thread(target=lambda: print("a machine was lost"))
        other.start()
        other.join()
        assert sys.stdout.encoding
    print("the cluster was left")
    written = capsys.readouterr()
    assert written.out == "ours\n"
    assert written.err == "a machine was lost\nthe cluster was left\n"


def test_a_pipe_whose_reader_is_gone_ends_the_command_quietly():
    command = [sys.executable, "-m", "tallybox", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""


@pytest.mark.parametrize("options", [["--json"], ["--csv", "-"], []])
def test_a_full_device_is_one_line(tmp_path, options):
    results = [{"image_id": 7, "category_id": 1, "bbox": [10, 10, 200, 300], "score": 0.9}]
    path = write_json(tmp_path / "results.json", results)
    command = [sys.executable, "-m", "tallybox", "count", path, "--estimator", SHIPPED_ESTIMATOR, *options]
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == "Error: standard output cannot be written: No space left on device\n"
    assert done.returncode == 1
