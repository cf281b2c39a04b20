"""Damaged and hostile input of every kind: the only outcomes are a right result, or one line and exit status 1.

The cases are seeded, so that a failure can be repeated. Each test stops after `SECONDS`. For a longer run:
``TALLYBOX_FUZZ_SEED=7 TALLYBOX_FUZZ_SECONDS=60 pytest -m slow tests/robustness``.
"""

import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from benchmarks.synthetic_photos import made_up_photos
from click.testing import Result

from tallybox.detections.writers import write_parquet
from tallybox.photos import sample_photos
from tallybox.photos.shipped import SHIPPED_ESTIMATOR
from tests.support.commands import run
from tests.support.detection_sets import coco_results, write_json
from tests.support.estimators import small_estimator
from tests.support.photos import encoded, gradient

SEED = int(os.environ.get("TALLYBOX_FUZZ_SEED", "0"))
SECONDS = float(os.environ.get("TALLYBOX_FUZZ_SECONDS", "3"))  # of each test
MIN_CASES = 5
LONGEST_SECONDS = 10.0  # of one case
PHOTOS, LABELS = made_up_photos(6, seed=4)

# What parsers stumble on; put in the place of a number or a word, or anywhere.
TOKENS = [
    *(b"NaN", b"Infinity", b"-1", b"1e999", b"-1e308", b"1e-400", b"9" * 400, b"9223372036854775808", b"2_0", b"0x10"),
    *(b"null", b"true", b'""', b"[]", b"{}", b"[" * 2000, b'{"a":' * 2000, b'"\\ud800"', b'"\\u0000"', b"\x00"),
    *(b"\xff\xfe", b"\r\n"),
    *(b"\xef\xbb\xbf", b"\r", b"\n\n", b",,,,", b'"', b"\\", b"=1+1", b"\x1b[2J", "\u0663".encode(), b"-0.0"),
]

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Pillow's and torch's, about the damage done


def mutated(content: bytes, random: np.random.Generator, *, tokens: bool) -> bytes:
    """Change some bytes, cut, repeat, move, or put in what parsers stumble on."""
    data = bytearray(content)
    for _ in range(random.integers(1, 4)):
        kind = random.integers(0, 7 if tokens else 5)
        first, second = sorted(random.integers(0, len(data) + 1, 2).tolist())
        second = min(second, first + int(random.integers(1, 200)))
        if kind == 0:
            for place in random.integers(0, max(len(data), 1), random.integers(1, 8)).tolist():
                data[place : place + 1] = bytes([data[place] ^ (1 << int(random.integers(0, 8)))]) if data else b""
        elif kind == 1:
            del data[int(random.integers(0, len(data) + 1)) :]
        elif kind == 2:
            data[first:first] = data[first:second]
        elif kind == 3:
            del data[first:second]
        elif kind == 4:
            data[first:second] = random.bytes(second - first)
        else:
            token = TOKENS[random.integers(0, len(TOKENS))]
            numbers = [place for place, byte in enumerate(data) if chr(byte).isdigit()] if kind == 5 else []
            place = numbers[random.integers(0, len(numbers))] if numbers else first
            end = place
            while end < len(data) and chr(data[end]) in "0123456789.-e":
                end += 1
            data[place:end] = token
    return bytes(data)


def cases(name: str) -> Iterator[np.random.Generator]:
    """Yield a source of random numbers for each case, until the time is over."""
    start, number = time.perf_counter(), 0
    while time.perf_counter() - start < SECONDS or number < MIN_CASES:
        began = time.perf_counter()
        yield np.random.default_rng([SEED, sum(name.encode()), number])
        assert time.perf_counter() - began < LONGEST_SECONDS, f"case {number} of {name} took too long"
        number += 1
    print(f"{name}: {number} cases")


def check_outcome(result: Result, case: object) -> None:
    """Accept whole JSON with possible counts and status 0, or error lines, with or without whole JSON, and status 1."""
    assert result.exception is None or isinstance(result.exception, SystemExit), (case, result.exception)
    assert result.exit_code in (0, 1), (case, result.output)
    assert "Traceback" not in result.output, case
    for line in result.stderr.splitlines():
        assert line.isprintable(), (case, line)
        assert line.startswith(("Error: ", "Warning: ")), (case, line)
        assert len(line) < 1500, (case, line)
    assert (result.exit_code == 1) == ("Error: " in result.stderr), (case, result.output)
    if result.stdout:
        for image in json.loads(result.stdout)["images"]:
            for prediction in image["counts"].values():
                assert 0 <= prediction["low"] <= prediction["count"] <= prediction["high"], (case, prediction)
                assert 0 <= prediction["expected"] < math.inf, (case, prediction)


def seeds_of_files(folder: Path) -> dict[str, Path]:
    rows = [
        f"{image.image_id},{category},{','.join(f'{corner:.2f}' for corner in box)},{score:.3f},640,480\n"
        for image in PHOTOS
        for box, score, category in zip(image.boxes, image.scores, image.category_ids, strict=True)
    ]
    table = folder / "found.csv"
    table.write_text("image_id,category_id,x1,y1,x2,y2,score,width,height\n" + "".join(rows))
    write_parquet(PHOTOS, folder / "found.parquet", categories=dict(LABELS.categories))
    return {
        "json": write_json(folder / "found.json", coco_results(PHOTOS)),
        "json.gz": write_json(folder / "found.json.gz", coco_results(PHOTOS)),
        "csv": table,
        "parquet": folder / "found.parquet",
    }


@pytest.mark.parametrize("kind", ["json", "json.gz", "csv", "parquet"])
def test_files_of_detections(tmp_path, kind):
    whole = seeds_of_files(tmp_path)[kind].read_bytes()
    path = tmp_path / f"fuzzed.{kind}"
    for random in cases(kind):
        content = mutated(whole, random, tokens=kind in ("json", "csv"))
        path.write_bytes(content)
        result = run("count", path, "--json", "--estimator", SHIPPED_ESTIMATOR)
        check_outcome(result, content[:2000])
        assert len(result.stderr.splitlines()) <= 1


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_files_of_labels(tmp_path, kind):
    estimator, detections = tmp_path / "small.estimator", seeds_of_files(tmp_path)["json"]
    small_estimator().save(estimator)
    if kind == "csv":
        rows = [f"{i},{LABELS.categories[c]},{n}\n" for i, counts in LABELS.counts.items() for c, n in counts.items()]
        whole = ("image_id,category,count\n" + "".join(rows)).encode()
    else:
        whole = json.dumps(
            {
                "images": [{"id": i, "width": 640, "height": 480, "file_name": f"{i}.jpg"} for i in LABELS.counts],
                "annotations": [
                    {"id": 1000 * index + number, "image_id": i, "category_id": c, "iscrowd": 0}
                    for index, (i, counts) in enumerate(LABELS.counts.items())
                    for number, c in enumerate(c for c, n in counts.items() for _ in range(n))
                ],
                "categories": [{"id": c, "name": name} for c, name in LABELS.categories.items()],
            }
        ).encode()
    path = tmp_path / f"labels.{kind}"
    for random in cases(f"labels {kind}"):
        path.write_bytes(mutated(whole, random, tokens=True))
        result = run("evaluate", estimator, detections, path, "--json")
        assert result.exception is None or isinstance(result.exception, SystemExit), (
            path.read_bytes(),
            result.exception,
        )
        assert result.exit_code in (0, 1)
        assert all(line.startswith(("Error: ", "Warning: ")) for line in result.stderr.splitlines())
        if result.exit_code == 0:
            figures = json.loads(result.stdout)
            assert 0 <= figures["estimator"]["exact"] <= 1


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("jpeg", {"quality": 85}),
        ("png", {}),
        ("webp", {"quality": 80}),
        ("gif", {}),
        ("tiff", {"compression": "tiff_lzw"}),
    ],
)
def test_photos(tmp_path, kind, options):
    whole = encoded(gradient(320, 240), kind, **options)
    if kind == "jpeg":
        whole = sample_photos()[0].read_bytes()
    for number, random in enumerate(cases(kind)):
        folder = tmp_path / str(number)
        folder.mkdir()
        for index in range(4):
            (folder / f"{index}.{kind}").write_bytes(mutated(whole, random, tokens=False))
        result = run("count", folder, "--json")
        check_outcome(result, number)
        assert len(json.loads(result.stdout)["images"]) + len(result.stderr.splitlines()) == 4


def test_estimators(tmp_path):
    whole_path = tmp_path / "whole.estimator"
    small_estimator().save(whole_path)
    whole, path = whole_path.read_bytes(), tmp_path / "fuzzed.estimator"
    detections = seeds_of_files(tmp_path)["json"]
    header_end = 8 + int.from_bytes(whole[:8], "little")
    for random in cases("estimators"):
        head = random.random() < 0.7  # most of the file is weights, and any change of these has one outcome
        content = mutated(whole[:header_end], random, tokens=True) + whole[header_end:] if head else b""
        path.write_bytes(content or mutated(whole, random, tokens=False))
        check_outcome(run("count", detections, "--json", "--estimator", path), path.read_bytes()[:2000])
