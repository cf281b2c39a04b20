"""Read files, write them atomically, and import optional packages; every failure is a one-line error."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TextIO, TypeVar, cast

from tallybox.errors import InputError, TallyboxError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
MAX_JSON_BYTES = 4 << 30  # unpacked; a gzip file of 4 MB may hold as much
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors start a file with it
GZIP_MAGIC = b"\x1f\x8b"
USUAL_PERMISSIONS = 0o666  # less what the user's umask takes away
UNFINISHED = ".unfinished"  # the suffix of a file that is being written


@contextmanager
def atomic_writing(path: Path, mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """Write to a temporary file and rename it on success.

    After a crash, the file is complete, unchanged or absent. If two processes write the same file, the last to finish
    wins. Devices and pipes are written directly. ``mode`` and ``options`` are those of `open`; missing folders are
    created.
    """
    try:
        if is_special(path):
            with path.open(mode, **options) as file:
                yield file
            return
        path = path.resolve()  # a symbolic link stays one
        path.parent.mkdir(parents=True, exist_ok=True)
        name = os.fsencode(path.name)[:200].decode(errors="ignore")
        unfinished = path.with_name(f".{name}.{secrets.token_hex(4)}{UNFINISHED}")
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, USUAL_PERMISSIONS)
        try:
            with open(descriptor, mode, **options) as file:  # noqa: PTH123 - the file is open already
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
        raise InputError(f"Cannot write {path}: {error.strerror or error}") from error


def is_special(path: Path) -> bool:
    """Tell whether a path is a device, a pipe or a socket."""
    return path.exists() and not path.is_file() and not path.is_dir()


def check_writable(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Raise, before any work, if a file cannot be written or is one of the inputs; create missing folders."""
    for other in inputs if path.is_file() else ():
        if other.exists() and path.samefile(other):
            raise InputError(f"{path} is an input; choose another name for the output.")
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder; name a file.")
        if is_special(path):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror or error}") from error


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8."""
    with atomic_writing(path, "w", encoding="utf-8") as file:
        file.write(text)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write tensors as safetensors, atomically, with a JSON header and a checksum of both in the metadata.

    The same content gives the same bytes: the metadata has one entry, because safetensors orders several at random.
    """
    package = import_optional("safetensors.torch", needed_for=f"writing {path.name}", install="'tallybox[detections]'")
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(dict(header))
    stored = json.dumps({"header": text, "sha256": _digest(text, content)})
    with atomic_writing(path) as file:
        file.write(package.save(content, {"tallybox": stored}))


def read_tensors(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the header and tensors of a file from `write_tensors`; raise ValueError if it is damaged."""
    metadata, tensors = read_safetensors(path)
    try:
        stored = json.loads(metadata["tallybox"])
        text, digest = str(stored["header"]), str(stored["sha256"])
    except (KeyError, TypeError):
        raise ValueError("not a file of tallybox") from None
    if digest != _digest(text, tensors):
        raise ValueError("the checksum does not match; the file is damaged")
    return json.loads(text), tensors


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    import torch

    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def read_safetensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata and the tensors, memory-mapped, of a safetensors file; raise ValueError if it is damaged."""
    package = import_optional("safetensors", needed_for=f"reading {path.name}", install="'tallybox[detections]'")
    try:
        with package.safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is a file, not a dict
            return file.metadata() or {}, tensors
    except (package.SafetensorError, OSError) as error:
        raise ValueError(error_summary(error)) from None


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file that is not empty; reading a pipe could wait forever."""
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder; name a file.")
        if is_special(path):
            raise InputError(f"{path} is a pipe or a device, not a regular file.")
        if path.stat().st_size == 0:
            raise InputError(f"{path} is empty.")
        return path.open("rb")
    except OSError as error:
        raise InputError(f"Cannot open {path}: {error.strerror or error}") from None


@contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading, decompressed if it is gzipped, whatever its name."""
    try:
        with open_regular(path) as file:
            is_packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            file.seek(0)
            with gzip.open(file) if is_packed else nullcontext(file) as unpacked:
                yield cast(BinaryIO, unpacked)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: truncated or damaged gzip file ({error})") from None


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a text file, gzipped or not, in UTF-8 with or without a byte order mark; keep line ends, as csv needs."""
    with open_binary(path) as file:
        text = TextIOWrapper(file, encoding="utf-8-sig", newline="")
        try:
            yield text
        finally:
            text.detach()  # `open_binary` closes the file


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
    """Return a file's suffix in lower case, without ``.gz``: ``.json`` for ``results.JSON.gz``."""
    plain = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return plain.suffix.lower()


def import_optional(module: str, *, needed_for: str, install: str, package: str | None = None) -> Any:
    """Import a module of an optional package; raise an error that names what to install."""
    try:
        return import_module(module)
    except Exception as error:  # a library built for another torch may raise anything
        top = module.partition(".")[0]
        is_missing = isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == top
        reason = "is not installed" if is_missing else f"cannot be imported here: {error_summary(error)}"
        message = f"{needed_for} needs the package {package or top}, which {reason}; pip install {install}"
        raise TallyboxError(message) from (None if is_missing else error)


def error_summary(error: Exception) -> str:
    """Return the first line of an error's message, or its type if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip() if lines else type(error).__name__


@contextmanager
def wrap_errors(message: str, kind: type[TallyboxError] = TallyboxError) -> Iterator[None]:
    """Turn an exception of another library into an error of one line; our own errors pass."""
    try:
        yield
    except TallyboxError:
        raise
    except Exception as error:
        raise kind(f"{message}: {type(error).__name__}: {error_summary(error)}") from error
