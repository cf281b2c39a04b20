"""Files as plain bytes, gzipped or not, with one line for each way in which a file can be no file."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from tallybox.errors import InputError

GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def open_plain(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading, unpacking it where it is gzipped, whatever its name says."""
    try:
        with path.open("rb") as file:
            start = file.read(len(GZIP_MAGIC))
            file.seek(0)
            if not start:
                raise InputError(f"{path} must hold data, but it is empty")
            if start == GZIP_MAGIC:
                with gzip.open(file) as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                yield file
    except FileNotFoundError:
        raise InputError(f"{path} must be a file, but there is none; check the path") from None
    except IsADirectoryError:
        raise InputError(f"{path} must be a file, but it is a folder") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} must be a whole gzip file, but it is cut short or damaged: {error}") from None


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a text file likewise, in UTF-8 with or without a byte order mark; line ends are kept, as csv wants them."""
    with open_plain(path) as file:
        text = TextIOWrapper(file, encoding="utf-8-sig", newline="")
        try:
            yield text
        finally:
            text.detach()  # the file is closed by who opened it


def plain_suffix(path: Path) -> str:
    """Return what kind of file the name stands for, without the ``.gz``.

    >>> plain_suffix(Path("results.JSON.gz"))
    '.json'
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return suffixes[-1] if suffixes else ""
