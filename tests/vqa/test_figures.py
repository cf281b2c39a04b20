"""Which photo is drawn under the boxes of a question."""

import pytest
from PIL import Image

from tallybox.errors import InputError
from tallybox.vqa.figures import with_photos

FILES = {
    "VG/400": "VG_100K/400.jpg",
    "kitchen/a": "kitchen/a.png",
    "a": "a.png",
    "42": "val2014/COCO_val2014_000000000042.png",
    "7": "deep/below/000007.png",
}


def test_photos_are_found_by_their_paths_and_else_by_their_names(tmp_path):
    for name in FILES.values():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9)).save(tmp_path / name)
    examples = [{"image_id": image_id} for image_id in (*FILES, "absent")]
    drawn = {example["image_id"]: example["photo"] for example in with_photos(examples, tmp_path)}
    assert drawn == {image_id: tmp_path / name for image_id, name in FILES.items()} | {"absent": None}
    with pytest.raises(InputError, match="absent"):
        with_photos(examples[-1:], tmp_path)
