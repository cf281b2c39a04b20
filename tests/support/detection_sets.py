"""Hypothesis strategies for detections of images, and COCO files written from them."""

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tallybox import Detections

CATEGORY_IDS = (1, 18, 44)

# Quarters up to 1,000 are exact in float32, also as differences and in COCO's left, top, width, height.
quarters = st.integers(0, 2000).map(lambda steps: steps / 4)
exact_scores = st.integers(0, 1024).map(lambda steps: steps / 1024)


@st.composite
def detections(draw: st.DrawFn, image_id: int | str | None = 7, maximum: int = 8) -> Detections:
    """One image whose numbers survive every file format exactly."""
    number = draw(st.integers(0, maximum))
    rows = st.lists(st.tuples(quarters, quarters, quarters, quarters), min_size=number, max_size=number)
    boxes_xywh = np.array(draw(rows)).reshape(-1, 4)
    return Detections(
        np.concatenate((boxes_xywh[:, :2], boxes_xywh[:, :2] + boxes_xywh[:, 2:]), axis=1),
        draw(st.lists(exact_scores, min_size=number, max_size=number)),
        draw(st.lists(st.sampled_from(CATEGORY_IDS), min_size=number, max_size=number)),
        draw(st.sampled_from([None, (1000, 1000)])),
        image_id,
    )


@st.composite
def image_sets(draw: st.DrawFn, maximum: int = 5, texts: bool | None = None) -> list[Detections]:
    """Several images with ids that are all numbers or all texts."""
    ids: st.SearchStrategy[Any] = st.integers(0, 2**50)
    if draw(st.booleans()) if texts is None else texts:
        ids = st.text("abc./_, 0", max_size=6).map(lambda text: f"a{text}.jpg")
    return [draw(detections(image_id)) for image_id in draw(st.lists(ids, max_size=maximum, unique=True))]


def coco_results(images: Sequence[Detections]) -> list[dict[str, Any]]:
    """The detections as COCO results."""
    return [
        {
            "image_id": image.image_id,
            "category_id": int(category_id),
            "bbox": [float(x1), float(y1), float(x2 - x1), float(y2 - y1)],
            "score": float(score),
        }
        for image in images
        for (x1, y1, x2, y2), score, category_id in zip(image.boxes, image.scores, image.category_ids, strict=True)
    ]


def write_json(path: Path, content: Any) -> Path:
    """Write JSON, gzipped where the name says so."""
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def write_counts(path: Path, rows: Iterable[Sequence[object]], category: str = "category") -> Path:
    """Write a table of counts from rows of an image id, a category, and a number."""
    path.write_text(f"image_id,{category},count\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows))
    return path


def assert_same_images(found: Sequence[Detections], expected: Sequence[Detections]) -> None:
    """Raise unless both hold the same images in the same order, box for box; sizes are not compared."""
    assert [image.image_id for image in found] == [image.image_id for image in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.boxes, other.boxes)
        np.testing.assert_array_equal(one.scores, other.scores)
        np.testing.assert_array_equal(one.category_ids, other.category_ids)
        assert (one.boxes.dtype, one.scores.dtype, one.category_ids.dtype) == (np.float32, np.float32, np.int64)
