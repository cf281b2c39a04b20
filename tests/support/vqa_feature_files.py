"""Photos written in the layouts of other projects, field by field as their own code writes them."""

import base64
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tallybox.vqa.data.store import PhotoFeatures


def coco_name(photo: PhotoFeatures, split: str = "val2014") -> str:
    return f"COCO_{split}_{int(photo.image_id):012d}"


def lxmert_line(photo: PhotoFeatures) -> str:
    """img_id, img_h, img_w, objects_id, objects_conf, attrs_id, attrs_conf, num_boxes, boxes, features."""
    number = len(photo.boxes_xyxy)
    width, height = photo.size_wh
    labels, confidences = np.arange(number, dtype=np.int64), np.full(number, 0.5, np.float32)
    arrays = (labels, confidences, labels, confidences)
    objects = [base64.b64encode(array.tobytes()).decode() for array in arrays]
    proposals = [
        base64.b64encode(array.astype(np.float32).tobytes()).decode() for array in (photo.boxes_xyxy, photo.features)
    ]
    fields = [coco_name(photo), f"{height:g}", f"{width:g}", *objects, str(number), *proposals]
    return "\t".join(fields) + "\n"


def write_lxmert(path: Path, photos: Sequence[PhotoFeatures]) -> Path:
    with path.open("w") as file:
        file.writelines(lxmert_line(photo) for photo in photos)
    return path


def write_openvqa(folder: Path, photos: Sequence[PhotoFeatures], *, transposed: bool = True) -> Path:
    """A file for each photo; MCAN's have ``x [F, N]``, those of bottom-up-attention.pytorch ``[N, F]``."""
    (folder / "val2014").mkdir(parents=True, exist_ok=True)
    for photo in photos:
        features = photo.features.T if transposed else photo.features
        np.savez(
            folder / "val2014" / f"{coco_name(photo)}.jpg.npz",
            x=features,
            bbox=photo.boxes_xyxy,
            num_bbox=len(photo.boxes_xyxy),
            image_h=photo.size_wh[1],
            image_w=photo.size_wh[0],
            info=np.array({"image_id": coco_name(photo)}, dtype=object),  # pickled by numpy
        )
    return folder


def write_published_h5(path: Path, photos: Sequence[PhotoFeatures], width: int = 100, unused: int = 2) -> Path:
    """Padded with zeros, without the number of boxes; some rows at the end are reserved and not filled."""
    import h5py

    rows = len(photos) + unused
    with h5py.File(path, "w", libver="latest") as file:
        features = file.create_dataset("features", (rows, photos[0].features.shape[1], width), "float32")
        boxes = file.create_dataset("boxes", (rows, 4, width), "float32")
        ids, widths, heights = (file.create_dataset(name, (rows,), "int32") for name in ("ids", "widths", "heights"))
        for row, photo in enumerate(photos):
            number = len(photo.boxes_xyxy)
            features[row, :, :number] = photo.features.T
            boxes[row, :, :number] = photo.boxes_xyxy.T
            ids[row], widths[row], heights[row] = int(photo.image_id), *photo.size_wh
    return path
