"""Reading files, writing them atomically, and importing optional packages; every failure is an error of one line."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import secrets
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from tallybox.errors import InputError, TallyboxError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
MAX_JSON_BYTES = 4 << 30  # unpacked; a gzip file of 4 MB may hold as much
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors start a file with it
GZIP_MAGIC = b"\x1f\x8b"
USUAL_PERMISSIONS = 0o666  # less what the user's umask takes away
UNFINISHED = ".unfinished"  # the suffix of a file that is being written
LEFTOVER = re.compile(r"\..*\.[0-9a-f]{8}" + re.escape(UNFINISHED), re.DOTALL)
MIN_LEFTOVER_SECONDS = 60.0


@contextmanager
def atomic_writing(path: Path, mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """Open a file for writing that takes its name only when the block ends without an error.

    After a crash, the file is complete, as it was before, or absent. Of two writers, the last to finish wins. The next
    process that writes into the folder deletes what killed writers left behind. ``mode`` and ``options`` are those of
    `open`; missing folders are made.
    """
    name = os.fsencode(path.name)[:200].decode(errors="ignore")
    unfinished = path.with_name(f".{name}.{secrets.token_hex(4)}{UNFINISHED}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(path.parent.resolve())
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, USUAL_PERMISSIONS)
        try:
            with open(descriptor, mode, **options) as file:  # noqa: PTH123 - the file is open already
                _lock(descriptor)
                yield file
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink()
            raise
    except BrokenPipeError:  # of standard output, to which the block writes as well
        raise
    except OSError as error:
        raise InputError(f"{path} must be a file that can be written, but: {error.strerror or error}") from error


@cache
def _remove_leftovers(folder: Path) -> None:
    """Delete what killed writers left in a folder, once in a process; a writer that still runs holds a lock."""
    for path in folder.glob(f".*{UNFINISHED}"):
        with suppress(OSError), path.open("rb") as file:
            is_old = time.time() - path.stat().st_mtime > MIN_LEFTOVER_SECONDS  # a new one may not be locked yet
            if is_old and LEFTOVER.fullmatch(path.name) and _lock(file.fileno()):
                path.unlink()


def _lock(descriptor: int) -> bool:
    """Lock a file until it is closed; return whether that worked, which it never does without locks in the system."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def check_writable(path: Path) -> None:
    """Raise, before hours of work, if a file cannot be written; make missing folders."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path.parent):
            pass
        if path.is_dir():
            raise InputError(f"{path} must be a file, but it is a folder")
    except OSError as error:
        raise InputError(f"{path} must be a file that can be written, but: {error.strerror}") from error


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8."""
    with atomic_writing(path, "w", encoding="utf-8") as file:
        file.write(text)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write tensors as safetensors, atomically, with a JSON header and a checksum of both in the metadata.

    The same content gives the same bytes: the metadata has one entry, because safetensors orders several at random.
    """
    package = _safetensors()
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(dict(header))
    stored = json.dumps({"header": text, "sha256": _digest(text, content)})
    with atomic_writing(path) as file:
        file.write(package.save(content, {"tallybox": stored}))


def read_tensors(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the header and the tensors of what `write_tensors` wrote; raise ValueError where it is damaged."""
    _safetensors()
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            stored = json.loads((file.metadata() or {})["tallybox"])
            text, digest = str(stored["header"]), str(stored["sha256"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is a file, not a dict
    except (KeyError, TypeError):
        raise ValueError("its header is not tallybox's") from None
    except (SafetensorError, OSError) as error:
        raise ValueError(error_summary(error)) from None
    if digest != _digest(text, tensors):
        raise ValueError("its content was changed after it was written")
    header = json.loads(text)
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    return header, tensors


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    import torch

    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _safetensors() -> Any:
    return import_optional("safetensors.torch", needed_for="a file of weights", install="'tallybox[detections]'")


def open_regular(path: Path) -> BinaryIO:
    """Open a file that must be regular and hold data; reading a pipe could wait forever."""
    try:
        if path.is_dir():
            raise InputError(f"{path} must be a file, but it is a folder")
        if not path.exists():
            raise InputError(f"{path} must be a file, but there is none; check the path")
        if not path.is_file():
            raise InputError(f"{path} must be a regular file, but it is a pipe or a device")
        if path.stat().st_size == 0:
            raise InputError(f"{path} must hold data, but it is empty")
        return path.open("rb")
    except OSError as error:
        raise InputError(f"{path} must be a file that can be read, but: {error.strerror or error}") from None


@contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading, unpacking it where it is gzipped, whatever its name says."""
    try:
        with open_regular(path) as file:
            is_packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            file.seek(0)
            if is_packed:
                with gzip.open(file) as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} must be a whole gzip file, but it is cut short or damaged: {error}") from None


def read_json(path: Path, kind: type[T], what: str, *, max_bytes: int = MAX_JSON_BYTES) -> T:
    """Decode a JSON file, gzipped or not, as a ``kind`` that msgspec knows; errors say ``what`` the file should be."""
    msgspec = import_optional("msgspec", needed_for=f"reading {path}", install="'tallybox[detections]'")
    with open_binary(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise InputError(f"{path}: more than {max_bytes:,} bytes of JSON; split the file or use Parquet")
    try:
        return cast(T, msgspec.json.decode(content.removeprefix(BYTE_ORDER_MARK), type=kind))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not {what}: {error_summary(error)}") from None


def suffix_without_gz(path: Path) -> str:
    """Return what kind of file the name stands for: ``.json`` of ``results.JSON.gz``."""
    plain = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return plain.suffix.lower()


def import_optional(module: str, *, needed_for: str, install: str, package: str | None = None) -> Any:
    """Import a module of an optional package, or raise what is wrong with it and what to install."""
    try:
        return import_module(module)
    except Exception as error:  # a library built for another torch raises whatever it stumbles on
        top = module.partition(".")[0]
        is_missing = isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == top
        reason = "is not installed" if is_missing else f"cannot be imported here: {error_summary(error)}"
        raise TallyboxError(
            f"{needed_for} needs the package {package or top}, which {reason}; pip install {install}"
        ) from (None if is_missing else error)


def error_summary(error: Exception) -> str:
    """Return the first line of an error's message, its type where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip() if lines else type(error).__name__
