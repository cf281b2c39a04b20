"""The feature store: proposals of all photos one after another, half precision, no padding, memory-mapped.

A folder with ``features.f16`` (`[P, F]`), ``boxes.f32`` (`[P, 4]`), ``image_ids.npy``, ``sizes_wh.npy``,
``offsets.npy`` and ``header.json``, which holds a checksum of every 256 photos. It comes to be under another name,
with a journal of what is safely on the disk, so that writing can be stopped at any moment and taken up again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallybox.errors import InputError
from tallybox.files import write_text
from tallybox.runs import read_results
from tallybox.vqa.bottom_up import Photo, Place
from tallybox.vqa.prepared import Proposals

FEATURES, BOXES, HEADER, JOURNAL = "features.f16", "boxes.f32", "header.json", "journal.jsonl"
INDEX = ("image_ids", "sizes_wh", "offsets")
FLOAT16, FLOAT32 = np.dtype("<f2"), np.dtype("<f4")
LARGEST = float(np.finfo(FLOAT16).max)
PHOTOS_IN_BLOCK = 256  # written, made safe and summed together
FORMAT = 1


@dataclass(frozen=True)
class RaggedProposals:
    """Proposals of B photos one after another, M in all, with F features each."""

    features: NDArray[np.float16]  # [M, F]
    boxes_xyxy: NDArray[np.float32]  # [M, 4] pixels
    offsets: NDArray[np.int64]  # [B + 1] where each photo's begin


class FeatureStore:
    """Proposals of I photos, P in all, with F features each; open one with `FeatureStore.open`."""

    def __init__(
        self, folder: Path, header: dict[str, Any], index: dict[str, NDArray[Any]], arrays: dict[str, NDArray[Any]]
    ) -> None:
        self.folder, self.header = folder, header
        self.image_ids: NDArray[np.int64] = index["image_ids"]  # [I]
        self.sizes_wh: NDArray[np.float32] = index["sizes_wh"]  # [I, 2] pixels
        self.offsets: NDArray[np.int64] = index["offsets"]  # [I + 1] where each photo's proposals begin
        self.features: NDArray[np.float16] = arrays[FEATURES]  # [P, F]
        self.boxes_xyxy: NDArray[np.float32] = arrays[BOXES]  # [P, 4] pixels
        self._rows = {image_id: row for row, image_id in enumerate(self.image_ids.tolist())}

    @classmethod
    def open(cls, folder: Path) -> FeatureStore:
        """Open a store; nothing is read but its index."""
        try:
            header = json.loads((folder / HEADER).read_text())
            index = {name: np.load(folder / f"{name}.npy") for name in INDEX}
        except (FileNotFoundError, NotADirectoryError):
            raise InputError(f"{folder} must be a feature store, but it is none; run tallybox vqa prepare") from None
        shapes: dict[str, tuple[np.dtype[Any], int]] = {FEATURES: (FLOAT16, header["features"]), BOXES: (FLOAT32, 4)}
        arrays: dict[str, NDArray[Any]] = {}
        for name, (dtype, width) in shapes.items():
            shape = (header["proposals"], width)
            expected, found = dtype.itemsize * shape[0] * shape[1], (folder / name).stat().st_size
            if found != expected:
                raise InputError(f"{folder / name} must have {expected} bytes, but has {found}; prepare it again")
            mapped = np.memmap(folder / name, dtype, "r", shape=shape)
            arrays[name] = mapped.view(np.ndarray)  # still mapped; parts of it are cheaper to name
        return cls(folder, header, index, arrays)

    def __len__(self) -> int:
        """Return the number of photos."""
        return len(self.image_ids)

    def rows_of(self, image_ids: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of photos, `[B]`."""
        rows = np.fromiter((self._rows.get(int(image_id), -1) for image_id in image_ids), np.int64, len(image_ids))
        if (rows < 0).any():
            missing = sorted({int(image_ids[place]) for place in np.flatnonzero(rows < 0).tolist()})
            raise InputError(
                f"photos must be among the {len(self)} of {self.folder}, but {len(missing)} are not, "
                f"among them {missing[0]}"
            )
        return rows

    def read(self, rows: Sequence[int] | NDArray[np.int64], buffer: Buffer | None = None) -> Proposals:
        """Return the proposals of some photos, padded with zeros to the longest of them.

        With a buffer they lie in its memory, until it is used again: several times faster than new memory each time.
        """
        rows = np.asarray(rows, np.int64)
        starts, numbers = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        longest = int(numbers.max(initial=0))
        features, boxes = (buffer or Buffer()).arrays(len(rows), longest, self.features.shape[1])
        for place, (start, number) in enumerate(zip(starts.tolist(), numbers.tolist(), strict=True)):
            features[place, :number] = self.features[start : start + number]
            features[place, number:] = 0
            boxes[place, :number] = self.boxes_xyxy[start : start + number]
            boxes[place, number:] = 0
        return Proposals(features, boxes, np.arange(longest) < numbers[:, None])

    def gather(self, rows: Sequence[int] | NDArray[np.int64], buffer: Buffer | None = None) -> RaggedProposals:
        """Return the proposals of some photos one after another, without padding: half the bytes to copy and to send.

        With a buffer they lie in its memory, as for `read`.
        """
        rows = np.asarray(rows, np.int64)
        starts, ends = self.offsets[rows], self.offsets[rows + 1]
        offsets = np.concatenate(([0], np.cumsum(ends - starts, dtype=np.int64)))
        features, boxes = (buffer or Buffer()).arrays(1, int(offsets[-1]), self.features.shape[1])
        parts = [slice(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        if parts:
            np.concatenate([self.features[part] for part in parts], out=features[0])
            np.concatenate([self.boxes_xyxy[part] for part in parts], out=boxes[0])
        return RaggedProposals(features[0], boxes[0], offsets)

    def verify(self) -> None:
        """Raise unless every byte is what was written."""
        for name in INDEX:
            if _sha256((self.folder / f"{name}.npy").read_bytes()) != self.header["sha256"][name]:
                raise _damaged(self.folder / f"{name}.npy")
        for number, sums in enumerate(self.header["blocks"]):
            photos = slice(number * PHOTOS_IN_BLOCK, min((number + 1) * PHOTOS_IN_BLOCK, len(self)))
            start, end = int(self.offsets[photos.start]), int(self.offsets[photos.stop])
            parts = {FEATURES: self.features[start:end].data, BOXES: self.boxes_xyxy[start:end].data}
            for (name, part), expected in zip(parts.items(), sums, strict=True):
                if _sha256(part) != expected:
                    raise _damaged(self.folder / name, f" in photos {photos.start} to {photos.stop - 1}")


class Buffer:
    """Memory for the proposals of a batch, kept and grown; one for each batch that is in use at a time."""

    def __init__(self) -> None:
        self._features, self._boxes = np.empty(0, np.float16), np.empty(0, np.float32)

    def arrays(self, photos: int, proposals: int, width: int) -> tuple[NDArray[np.float16], NDArray[np.float32]]:
        """Return `[photos, proposals, width]` and `[photos, proposals, 4]`, filled with whatever was there."""
        if self._features.size < photos * proposals * width:
            self._features = np.empty(photos * proposals * width, np.float16)
        if self._boxes.size < photos * proposals * 4:
            self._boxes = np.empty(photos * proposals * 4, np.float32)
        return (
            self._features[: photos * proposals * width].reshape(photos, proposals, width),
            self._boxes[: photos * proposals * 4].reshape(photos, proposals, 4),
        )


class StoreWriter:
    """Writes a store block by block; made again on the same folder after an interruption, it goes on after the last.

    ``source`` and ``place`` say where in the input the first photo that is still missing begins.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._unfinished = folder, folder.with_name(folder.name + ".unfinished")
        self._unfinished.mkdir(parents=True, exist_ok=True)
        self._journal = self._whole_blocks()
        last = self._journal[-1] if self._journal else {}
        self.source: int = last.get("source", 0)
        self.place = Place(*last.get("place", ()))
        self.repeated: int = last.get("repeated", 0)  # photos that came again
        self._seen = {image_id for block in self._journal for image_id in block["image_ids"]}
        self._width: int | None = last.get("features")
        self._block: list[Photo] = []

    def __len__(self) -> int:
        """Return the number of photos so far."""
        return len(self._seen)

    def add(self, photo: Photo, source: int, place: Place, where: str) -> None:
        """Take a photo that the input's ``source`` has before ``place``; the first of several with one id counts."""
        if photo.image_id in self._seen:
            self.repeated += 1
            return
        width = photo.features.shape[1]
        if self._width is None:
            self._width = width
        if width != self._width:
            raise InputError(f"{where}: features must be {self._width} numbers as before, but got {width}")
        if np.abs(photo.features).max() > LARGEST:
            raise InputError(f"{where}: features must be at most {LARGEST:g} for half precision, but some are larger")
        self._seen.add(photo.image_id)
        self._block.append(photo)
        if len(self._block) == PHOTOS_IN_BLOCK:
            self._write_block(source, place)

    def finish(self, source: int, place: Place) -> None:
        """Write what is left, the index and the header; the folder appears under its name."""
        if self._block:
            self._write_block(source, place)
        if not self._journal:
            raise InputError("files of features must hold at least one photo, but there is none")
        numbers = [number for block in self._journal for number in block["proposals"]]
        index: dict[str, NDArray[Any]] = {
            "image_ids": np.array([one for block in self._journal for one in block["image_ids"]], np.int64),
            "sizes_wh": np.array([one for block in self._journal for one in block["sizes_wh"]], np.float32),
            "offsets": np.concatenate(([0], np.cumsum(numbers, dtype=np.int64))),
        }
        for name, array in index.items():
            _write_safely(self._unfinished / f"{name}.npy", array)
        header = {
            "format": FORMAT,
            "photos": len(numbers),
            "proposals": sum(numbers),
            "features": self._width,
            "repeated": self.repeated,
            "sha256": {name: _sha256((self._unfinished / f"{name}.npy").read_bytes()) for name in index},
            "blocks": [block["sha256"] for block in self._journal],
        }
        write_text(self._unfinished / HEADER, json.dumps(header, indent=1) + "\n")
        complete_store(self.folder)

    def _write_block(self, source: int, place: Place) -> None:
        features = np.concatenate([photo.features for photo in self._block]).astype(FLOAT16)
        boxes = np.concatenate([photo.boxes_xyxy for photo in self._block]).astype(FLOAT32)
        for name, array in ((FEATURES, features), (BOXES, boxes)):
            with (self._unfinished / name).open("ab") as file:
                file.write(array.data)
                file.flush()
                os.fsync(file.fileno())
        block = {
            "source": source,
            "place": list(place),
            "repeated": self.repeated,
            "features": self._width,
            "image_ids": [photo.image_id for photo in self._block],
            "sizes_wh": [photo.size_wh for photo in self._block],
            "proposals": [len(photo.boxes_xyxy) for photo in self._block],
            "sha256": [_sha256(features), _sha256(boxes)],
        }
        with (self._unfinished / JOURNAL).open("a") as file:
            file.write(json.dumps(block, separators=(",", ":")) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._journal.append(block)
        self._block = []

    def _whole_blocks(self) -> list[dict[str, Any]]:
        """Return the journal, and cut off the files what it does not speak of."""
        blocks = read_results(self._unfinished / JOURNAL)
        for name in (FEATURES, BOXES):
            path = self._unfinished / name
            path.touch()
            blocks = blocks[: _blocks_within(blocks, name, path.stat().st_size)]
        for name in (FEATURES, BOXES):
            os.truncate(self._unfinished / name, sum(_block_bytes(block, name) for block in blocks))
        lines = "".join(json.dumps(block, separators=(",", ":")) + "\n" for block in blocks)
        write_text(self._unfinished / JOURNAL, lines)
        return blocks


def complete_store(folder: Path) -> bool:
    """Give a store that was finished its name, and say whether there is one under it now."""
    unfinished = folder.with_name(folder.name + ".unfinished")
    if (unfinished / HEADER).exists():
        (unfinished / JOURNAL).unlink(missing_ok=True)
        unfinished.rename(folder)
    return (folder / HEADER).exists()


def _blocks_within(blocks: list[dict[str, Any]], name: str, size: int) -> int:
    kept = 0
    for block in blocks:
        size -= _block_bytes(block, name)
        if size < 0:
            break
        kept += 1
    return kept


def _block_bytes(block: dict[str, Any], name: str) -> int:
    width = FLOAT16.itemsize * block["features"] if name == FEATURES else FLOAT32.itemsize * 4
    return int(sum(block["proposals"]) * width)


def _write_safely(path: Path, array: NDArray[Any]) -> None:
    with path.open("wb") as file:
        np.save(file, array)
        file.flush()
        os.fsync(file.fileno())


def _sha256(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()


def _damaged(path: Path, where: str = "") -> InputError:
    return InputError(f"{path} must be as it was written, but its checksum differs{where}; prepare it again")
