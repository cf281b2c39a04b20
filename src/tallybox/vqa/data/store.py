"""The feature store: the proposals of all photos in one memory-mapped file, in half precision, without padding.

A folder with ``features.f16`` (`[P, F]`), ``boxes.f32`` (`[P, 4]`), ``image_ids.npy``, ``sizes_wh.npy``,
``offsets.npy``, ``header.json`` and ``journal.jsonl``, which lists the blocks of up to 256 photos with their checksums.
While it is written, the folder's name ends in ``.unfinished``; blocks in the journal are safely on the disk, so that an
interrupted write can be resumed. A finished store is extended in such a folder, too, whose data files are the same ones
on the disk: the store stays in use, with data behind its end, until the longer one takes its name.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallybox.errors import InputError
from tallybox.files import atomic_writing, error_summary, write_text
from tallybox.runs import read_results
from tallybox.vqa.data.features import FilePosition, PhotoFeatures

PHOTOS = "photos"  # the store of a prepared folder
FEATURES, BOXES, HEADER, JOURNAL = "features.f16", "boxes.f32", "header.json", "journal.jsonl"
INDEX = ("image_ids", "sizes_wh", "offsets")
FLOAT16, FLOAT32 = np.dtype("<f2"), np.dtype("<f4")
MAX_FEATURE = float(np.finfo(FLOAT16).max)
PHOTOS_IN_BLOCK = 256  # photos that share a write, an fsync and a checksum
FORMAT = 2


@dataclass(frozen=True, eq=False)
class FeatureStore:
    """Proposals of I photos, P in all, with F features each; open one with `FeatureStore.open`."""

    folder: Path
    header: dict[str, Any]
    image_ids: NDArray[np.str_]  # [I]
    sizes_wh: NDArray[np.float32]  # [I, 2] pixels
    offsets: NDArray[np.int64]  # [I + 1] where each photo's proposals begin
    features: NDArray[np.float16]  # [P, F]
    boxes_xyxy: NDArray[np.float32]  # [P, 4] pixels

    @classmethod
    def open(cls, folder: Path) -> "FeatureStore":
        """Open a store; only its index is read."""
        if not (folder / HEADER).exists():
            raise InputError(f"{folder} must be a feature store, but it is none; run tallybox vqa prepare")
        with _undamaged(folder / HEADER):
            header = json.loads((folder / HEADER).read_text())
            proposals, width = int(header["proposals"]), int(header["features"])
        index, arrays = [], []
        for name in INDEX:
            with _undamaged(folder / f"{name}.npy"):
                index.append(np.load(folder / f"{name}.npy"))
        index[0] = index[0].astype(str)  # numbers in stores of tallybox 0.1
        for name, dtype, shape in ((FEATURES, FLOAT16, (proposals, width)), (BOXES, FLOAT32, (proposals, 4))):
            with _undamaged(folder / name):
                expected, size = dtype.itemsize * shape[0] * shape[1], (folder / name).stat().st_size
                if size < expected:  # behind it, photos may be added
                    raise InputError(f"{folder / name} must have {expected} bytes, but has {size}; prepare it again")
                mapped = np.memmap(folder / name, dtype, "r", shape=shape)
            arrays.append(mapped.view(np.ndarray))  # still mapped; slicing an ndarray is cheaper
        return cls(folder, header, *index, *arrays)

    def __len__(self) -> int:
        return len(self.image_ids)

    @property
    def identity(self) -> str:
        """A checksum of all that is stored: what is written with row numbers of this store is of no other."""
        return checksum(json.dumps([self.header["sha256"], self.header["blocks"]]).encode())

    def rows_of(self, image_ids: Sequence[str]) -> NDArray[np.int64]:
        """Return the rows of photos, `[B]`."""
        row_of = {image_id: row for row, image_id in enumerate(self.image_ids.tolist())}
        rows = np.fromiter((row_of.get(image_id, -1) for image_id in image_ids), np.int64, len(image_ids))
        if (rows < 0).any():
            missing = sorted({image_ids[index] for index in np.flatnonzero(rows < 0).tolist()})
            raise InputError(
                f"photos must be among the {len(self)} of {self.folder}, but {len(missing)} are not, "
                f"among them {missing[0]}"
            )
        return rows

    def read_into(
        self, rows: NDArray[np.int64], features: NDArray[np.float16], boxes_xyxy: NDArray[np.float32]
    ) -> NDArray[np.bool_]:
        """Fill ``features [B, N, F]`` and ``boxes_xyxy [B, N, 4]`` with the proposals of photos, padded with zeros.

        Returns the mask ``[B, N]``, True for a real proposal.
        """
        column = np.arange(features.shape[1])
        mask: NDArray[np.bool_] = column < np.diff(self.offsets)[rows, None]
        index = (self.offsets[rows, None] + column).ravel()
        # One call for all photos, in which other threads can run; "clip" because "raise" makes a copy first.
        for source, target in ((self.features, features), (self.boxes_xyxy, boxes_xyxy)):
            np.take(source, index, 0, out=target.reshape(len(index), source.shape[1]), mode="clip")
            target[~mask] = 0
        return mask

    def verify(
        self, *, index_only: bool = False, on_progress: Callable[[int, int], None] = lambda done, total: None
    ) -> None:
        """Raise unless every checksum is right; with ``index_only``, those of the index."""
        for name in INDEX:
            if checksum((self.folder / f"{name}.npy").read_bytes()) != self.header["sha256"][name]:
                raise _damaged(self.folder / f"{name}.npy", "its checksum differs")
        stop = 0
        for number, *sums in [] if index_only else self.header["blocks"]:
            photos = slice(stop, stop := stop + number)
            start, end = int(self.offsets[photos.start]), int(self.offsets[photos.stop])
            parts = {FEATURES: self.features[start:end].data, BOXES: self.boxes_xyxy[start:end].data}
            for (name, part), expected in zip(parts.items(), sums, strict=True):
                if checksum(part) != expected:
                    where = f"in photos {photos.start} to {photos.stop - 1}"
                    raise _damaged(self.folder / name, f"its checksum differs {where}")
            on_progress(stop, len(self))


class StoreWriter:
    """Writes a store block by block; a new writer on the same folder resumes after the last block, or extends a store.

    ``source`` and ``position`` say where in the input the first missing photo begins.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._unfinished = folder, unfinished_store(folder)
        is_extended = complete_store(folder)
        self._unfinished.mkdir(parents=True, exist_ok=True)
        if is_extended:
            _begin_extension(folder, self._unfinished)
        self._journal = self._complete_blocks()
        last = self._journal[-1] if self._journal else {}
        self.source: int = last.get("source", 0)
        self.position = FilePosition(*last.get("place", ()))
        self.repeated: int = last.get("repeated", 0)  # photos that have the id of an earlier photo
        self._seen = {image_id for block in self._journal for image_id in block["image_ids"]}
        self.broken = [message for block in self._journal for message in block["broken"]]  # records that were skipped
        self._width: int | None = last.get("features")
        self._odd: list[str] = []  # why photos with another number of features could not be added
        self._block: list[PhotoFeatures] = []

    def add(self, photo: PhotoFeatures, source: int, position: FilePosition, where: str) -> None:
        """Add a photo that ends at ``position`` of the input's ``source``, unless its id was there before."""
        if photo.image_id in self._seen:
            self.repeated += 1
            return
        width = photo.features.shape[1]
        self._width = self._width or width
        if width != self._width:
            self._odd.append(f"{where}: features must be {self._width} numbers as before, but got {width}")
            raise InputError(self._odd[-1])
        if np.abs(photo.features).max() > MAX_FEATURE:
            raise InputError(
                f"{where}: features must be at most {MAX_FEATURE:g} for half precision, but some are larger"
            )
        self._seen.add(photo.image_id)
        self._block.append(photo)
        if len(self._block) == PHOTOS_IN_BLOCK:
            self._write_block(source, position)

    def end_source(self, source: int) -> None:
        """Write what is left of a source that was read to its end, which need not be named again then.

        Raise where more photos had another number of features than the store has photos: then its first is the odd one.
        """
        if len(self._odd) > len(self._seen):
            raise InputError(
                f"{self._odd[0]}, and so for {len(self._odd)} photos, more than the {len(self._seen)} that fit; "
                "name a new folder and leave out what came first"
            )
        if self._width is not None:
            self._write_block(source + 1, FilePosition())

    def finish(self) -> None:
        """Write the index and the header, and rename the folder; all sources must have ended."""
        if self._width is None:
            reason = f"; {self.broken[0]}" if self.broken else ""
            raise InputError(f"files of features must hold at least one photo, but there is none{reason}")
        image_ids, sizes_wh, proposals = (
            list(chain.from_iterable(block[key] for block in self._journal))
            for key in ("image_ids", "sizes_wh", "proposals")
        )
        index: dict[str, NDArray[Any]] = {
            "image_ids": np.array(image_ids, np.str_),
            "sizes_wh": np.array(sizes_wh, np.float32),
            "offsets": np.concatenate(([0], np.cumsum(proposals, dtype=np.int64))),
        }
        for name, array in index.items():
            with atomic_writing(self._unfinished / f"{name}.npy") as file:
                np.save(file, array)
        header = {
            "format": FORMAT,
            "photos": len(proposals),
            "proposals": sum(proposals),
            "features": self._width,
            "repeated": self.repeated,
            "broken": self.broken,
            "sources": self._journal[-1]["source"],
            "sha256": {name: checksum((self._unfinished / f"{name}.npy").read_bytes()) for name in index},
            "blocks": [[len(block["image_ids"]), *block["sha256"]] for block in self._journal if block["image_ids"]],
        }
        write_text(self._unfinished / HEADER, json.dumps(header, indent=1) + "\n")
        complete_store(self.folder)

    def _write_block(self, source: int, position: FilePosition) -> None:
        no_photo = np.empty((0, self._width or 0), FLOAT16)  # the last block may have skipped records only
        features = np.concatenate([no_photo, *(photo.features for photo in self._block)]).astype(FLOAT16)
        boxes = np.concatenate([np.empty((0, 4)), *(photo.boxes_xyxy for photo in self._block)]).astype(FLOAT32)
        block = {
            "source": source,
            "place": position[:2],  # how much was read of the file depends on where reading began
            "repeated": self.repeated,
            "broken": self.broken[sum(len(block["broken"]) for block in self._journal) :],
            "features": self._width,
            "image_ids": [photo.image_id for photo in self._block],
            "sizes_wh": [photo.size_wh for photo in self._block],
            "proposals": [len(photo.boxes_xyxy) for photo in self._block],
            "sha256": [checksum(features), checksum(boxes)],
        }
        # The journal comes last: it lists only blocks that are on the disk.
        for name, content in ((FEATURES, features.data), (BOXES, boxes.data), (JOURNAL, _journal_line(block))):
            with (self._unfinished / name).open("ab") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        self._journal.append(block)
        self._block = []

    def _complete_blocks(self) -> list[dict[str, Any]]:
        """Return the journal's complete blocks, and truncate the files to them."""
        blocks = read_results(self._unfinished / JOURNAL)
        for name in (FEATURES, BOXES):
            (self._unfinished / name).touch()
            size = (self._unfinished / name).stat().st_size
            ends = np.cumsum([_block_bytes(block, name) for block in blocks])
            blocks = blocks[: int((ends <= size).sum())]
        for name in (FEATURES, BOXES):
            os.truncate(self._unfinished / name, sum(_block_bytes(block, name) for block in blocks))
        write_text(self._unfinished / JOURNAL, b"".join(map(_journal_line, blocks)).decode())
        return blocks


def unfinished_store(folder: Path) -> Path:
    """Return the folder in which a store is written or extended."""
    return folder.with_name(folder.name + ".unfinished")


def complete_store(folder: Path) -> bool:
    """Rename a store that was written completely, and return whether the folder holds a complete store now."""
    unfinished, replaced = unfinished_store(folder), folder.with_name(folder.name + ".replaced")
    if (unfinished / HEADER).exists():
        if folder.exists():
            shutil.rmtree(replaced, ignore_errors=True)
            folder.rename(replaced)
        unfinished.rename(folder)
    if complete := (folder / HEADER).exists():
        shutil.rmtree(replaced, ignore_errors=True)
    return complete


def stored_sources(folder: Path) -> tuple[int, int]:
    """Return how many sources a store has all photos of, finished or not, and how many with one that was begun."""
    whole = int(FeatureStore.open(folder).header["sources"]) if complete_store(folder) else 0
    journal = read_results(unfinished_store(folder) / JOURNAL)
    ended = int(journal[-1]["source"]) if journal else 0
    begun = ended + 1 if journal and journal[-1]["place"][0] else ended
    return max(whole, ended), max(whole, begun)


def drop_begun_source(folder: Path) -> None:
    """Take the photos of a source that was not read to its end out of an unfinished store."""
    journal = unfinished_store(folder) / JOURNAL
    blocks = read_results(journal)
    ends = [number for number, block in enumerate(blocks, start=1) if not block["place"][0]]
    whole = max(ends[-1] if ends else 0, len(read_results(folder / JOURNAL)))
    write_text(journal, b"".join(map(_journal_line, blocks[:whole])).decode())


def _begin_extension(folder: Path, unfinished: Path) -> None:
    """Begin to extend a store, unless that was begun; the journal comes last, as data that it does not list is cut."""
    journal = (folder / JOURNAL).read_text()
    if (unfinished / JOURNAL).exists() and (unfinished / JOURNAL).read_text().startswith(journal):
        return
    for name in (FEATURES, BOXES):
        (unfinished / name).unlink(missing_ok=True)
        try:
            os.link(folder / name, unfinished / name)
        except OSError:  # a file system without links
            shutil.copyfile(folder / name, unfinished / name)
    write_text(unfinished / JOURNAL, journal)


def _journal_line(block: dict[str, Any]) -> bytes:
    return json.dumps(block, separators=(",", ":")).encode() + b"\n"


def _block_bytes(block: dict[str, Any], name: str) -> int:
    width = FLOAT16.itemsize * block["features"] if name == FEATURES else FLOAT32.itemsize * 4
    return int(sum(block["proposals"]) * width)


def checksum(content: Any) -> str:
    """Return the SHA-256 of bytes or of an array."""
    return hashlib.sha256(content).hexdigest()


@contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    """Report what goes wrong with a file of a store in a line that says what to do."""
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        raise _damaged(path, f"it cannot be read ({type(error).__name__}: {error_summary(error)})") from None


def _damaged(path: Path, found: str) -> InputError:
    extension = unfinished_store(path.parent)  # which shares the data
    folders = f"{path.parent} and {extension}" if extension.exists() else f"{path.parent}"
    return InputError(
        f"{path} must be as it was written, but {found}: it is damaged; "
        f"delete {folders} and repeat tallybox vqa prepare"
    )
