"""JSON files, decoded whole into typed records; a wrong one is one line with its file, record and field.

msgspec decodes in linear time. 529,281 COCO results (44 MB of JSON) take 1.0 s without unpacking.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from tallybox.errors import InputError
from tallybox.files import open_binary

Value = TypeVar("Value")
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

MAX_BYTES = 4 << 30  # unpacked; a gzip file of 4 MB may hold as much
CHUNK_BYTES = 1 << 24
RECORDS_AT_ONCE = 10_000
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors start a file with it
STRING_OR_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)  # possessive: no backtracking
NOT_FINITE = re.compile(rb"-?(?:NaN|Infinity)")


class JsonRecord(msgspec.Struct, gc=False):
    """Base of the records that are read; keys that a record does not declare are ignored."""


def read_json(path: Path, kind: type[Value], what: str, *, hint: str = "") -> Value:
    """Decode a file, gzipped or not, as a ``kind``: a list of records, or a record of such lists.

    Errors say ``what`` the file must be; ``hint`` follows where it is an array instead of an object or vice versa.
    """
    content = _read_content(path)
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise InputError(_invalid(path, content, what, hint, str(error))) from None
    except msgspec.DecodeError as error:
        raise InputError(_malformed(path, content, what, str(error))) from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} must be {what}, but {_undecodable(error)}") from None


def decode_records(
    path: Path, records: Sequence[msgspec.Raw], kind: type[Value], what: str
) -> Iterator[tuple[int, list[Value]]]:
    """Decode 10,000 records at a time and yield the number of the first with them.

    Read with ``list[msgspec.Raw]``, COCO results take 150 bytes each; all at once as ``list[kind]`` they take 390.
    """
    decoder = msgspec.json.Decoder(kind)
    for first in range(0, len(records), RECORDS_AT_ONCE):
        decoded: list[Value] = []
        try:
            for record in records[first : first + RECORDS_AT_ONCE]:
                decoded.append(decoder.decode(record))
        except msgspec.ValidationError as error:
            raise _wrong_record(path, first + len(decoded), _with_field(str(error)), what) from None
        except (UnicodeDecodeError, RecursionError) as error:
            raise _wrong_record(path, first + len(decoded), _undecodable(error), what) from None
        yield first, decoded


def _wrong_record(path: Path, number: int, reason: str, what: str) -> InputError:
    return InputError(f"{path}, record {number}: {reason}; the file must be {what}")


def _read_content(path: Path) -> bytearray:
    content = bytearray()
    with open_binary(path) as file:
        while chunk := file.read(CHUNK_BYTES):
            content += chunk
            if len(content) > MAX_BYTES:
                raise InputError(
                    f"{path} must hold at most {MAX_BYTES >> 30} GiB of JSON, but holds more; split it or use Parquet"
                )
    if content.startswith(BYTE_ORDER_MARK):
        del content[: len(BYTE_ORDER_MARK)]
    if content.isspace():
        raise InputError(f"{path} must hold data, but it holds no JSON")
    return content


def _invalid(path: Path, content: bytearray, what: str, hint: str, error: str) -> str:
    """Say which value of well-formed JSON has another type than it should."""
    if place := re.search(r" - at `\$(?:\.(\w+))?\[(\d+)\]", error):  # `$[3].score` or `$.images[3].id`
        record = f"{place[1]}, record {place[2]}" if place[1] else f"record {place[2]}"
        return f"{path}, {record}: {_with_field(error)}; the file must be {what}"
    if missing := re.fullmatch(r"Object missing required field `(\w+)`", error):
        keys = list(msgspec.json.decode(content, type=dict[str, msgspec.Raw]))
        return f"{path} must be {what}, but {missing[1]} is missing; it has {keys}"
    if found := re.fullmatch(r"Expected `(?:array|object)`, got `(\w+)`", error):
        return f"{path} must be {what}, but it is {'an' if found[1][0] in 'aio' else 'a'} {found[1]}{hint}"
    return f"{path} must be {what}, but: {_with_field(error)}"


def _with_field(error: str) -> str:
    """Turn msgspec's place of an error into the name of a field.

    >>> _with_field("Expected `int`, got `str` - at `$.images[3].id`"), _with_field("Missing `id` - at `$[3]`")
    ('Expected `int`, got `str` in id', 'Missing `id`')
    """
    return re.sub(
        r" - at `\$(?:(?:\.\w+)?\[\d+\])?\.?(.*)`", lambda place: f" in {place[1]}" if place[1] else "", error
    )


def _malformed(path: Path, content: bytearray, what: str, error: str) -> str:
    place = re.fullmatch(r"JSON is malformed: (.*) \(byte (\d+)\)", error)
    if place is None:  # the only other error that msgspec has
        return f"{path} must be {what}, but it ends too early; the file is cut short"
    byte = int(place[2])
    record = _record_at(content, byte)
    not_finite = NOT_FINITE.search(content, max(byte - 9, 0), byte + 9)
    if record and not_finite:
        return f"{path}, {record}: numbers must be finite, but got {not_finite[0].decode()}; leave such records out"
    if record:
        return f"{path}, {record}: malformed JSON, {place[1]}; the file must be {what}"
    return f"{path} must be {what}, but it is malformed JSON: {place[1]}"


def _record_at(content: bytearray, byte: int) -> str:
    """Return the list and number of the record that a byte belongs to; nothing outside of lists of records."""
    list_depth = 1 if re.match(rb"\s*\[", content) else 2
    depth, number, key = 0, 0, ""
    for token in STRING_OR_BRACKET.finditer(content, 0, byte):
        if token[0] in (b"[", b"{"):
            depth += 1
            number = 0 if depth == list_depth else number
        elif token[0] in (b"]", b"}"):
            depth -= 1
            number += depth == list_depth
        elif depth == 1:
            key = token[0].strip(b'"').decode(errors="replace")
    if depth < list_depth:
        return ""
    return f"record {number}" if list_depth == 1 else f"{key}, record {number}"


def _undecodable(error: UnicodeDecodeError | RecursionError) -> str:
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else "a value is nested too deeply"
