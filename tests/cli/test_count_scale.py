"""Data sets that no memory holds: `tallybox count` needs as much for the last image as for the first."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.synthetic_photos import made_up_photos

from tallybox.detections.writers import write_parquet
from tests.support.estimators import small_estimator

IMAGES = 60_000
GROWTH_MB = 40  # what allocators may keep; all answers together would take ten times that


def resident_mb(process: int) -> float:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc, which is not there")
def test_memory_does_not_grow_with_the_images(tmp_path):
    estimator, data = tmp_path / "small.estimator", tmp_path / "data.parquet"
    small_estimator().save(estimator)
    photos, _ = made_up_photos(100, seed=8)
    images = (replace(photos[number % len(photos)], image_id=number) for number in range(IMAGES))
    assert write_parquet(images, data) == IMAGES
    command = [sys.executable, "-m", "tallybox", "count", str(data), "--estimator", str(estimator), "--json"]
    memory = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for number, _ in enumerate(process.stdout):
            if number in (IMAGES // 4, IMAGES // 2, IMAGES):
                memory.append(resident_mb(process.pid))
    assert process.returncode == 0
    assert number == IMAGES + 1  # a line before and one after the images
    assert max(memory) - memory[0] < GROWTH_MB, memory
