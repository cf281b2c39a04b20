from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallybox.detections.json_stream import JsonRecord, JsonStream
from tallybox.errors import InputError


class Named(JsonRecord):
    id: int
    name: str = ""


# Records with all that can mislead a search for their ends: brackets and quotes in texts, objects within.
texts = st.text('a{}[],":\\é\n ', max_size=8)
inner = st.recursive(
    st.integers() | texts, lambda values: st.lists(values, max_size=3) | st.dictionaries(texts, values, max_size=3)
)
records = st.builds(
    lambda number, name, extra: {"id": number, "extra": extra, "name": name, "parts": [{"deep": extra}, {"id": "no"}]},
    st.integers(0, 2**60),
    texts,
    inner,
)
layouts = st.sampled_from([{"separators": (",", ":")}, {}, {"indent": 2}, {"ensure_ascii": False, "indent": "\t"}])
piece_sizes = st.integers(1, 64)


def stream_of(text: str | bytes, piece_bytes: int = 32) -> JsonStream:
    content = text.encode() if isinstance(text, str) else text
    return JsonStream(io.BytesIO(content), Path("file.json"), "a list of names", piece_bytes=piece_bytes)


def read_all(text: str | bytes, piece_bytes: int = 32) -> list[tuple[int, str]]:
    stream, found = stream_of(text, piece_bytes), []
    for first, piece in stream.records(Named):
        assert first == len(found)
        found += [(record.id, record.name) for record in piece]
    stream.finish()
    return found


@given(st.lists(records, max_size=6), layouts, piece_sizes)
def test_an_array_is_read_as_json_reads_it_however_it_is_cut(rows, layout, piece_bytes):
    assert read_all(json.dumps(rows, **layout), piece_bytes) == [(row["id"], row["name"]) for row in rows]


@given(st.lists(records, min_size=1, max_size=3), layouts, piece_sizes, st.floats(0, 1, exclude_max=True))
def test_a_file_that_is_cut_short_is_never_read_as_whole(rows, layout, piece_bytes, share):
    content = json.dumps(rows, **layout).encode()
    with pytest.raises(InputError, match=r"file\.json"):
        read_all(content[: int(share * len(content))], piece_bytes)


@given(st.dictionaries(texts, inner, max_size=4), st.lists(records, max_size=3), layouts, piece_sizes)
def test_members_of_an_object_are_read_or_skipped(others, rows, layout, piece_bytes):
    content = {**others, "names": rows, "last": others}
    stream, keys, found = stream_of(json.dumps(content, **layout), piece_bytes), [], []
    for key in stream.members():
        keys.append(key)
        if key == "names":
            found = [record.id for _, piece in stream.records(Named) for record in piece]
        else:
            stream.skip()
    stream.finish()
    assert keys == list(content)
    assert found == [row["id"] for row in rows]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"id": 1}, {"id": "x"}]', r"file.json, record 1: Expected `int`, got `str` in id"),
        ('[{"id": 1}, {"name": "x"}]', r"file.json, record 1: Object missing required field `id`"),
        (
            '[{"id": 1}, {"id": NaN}]',
            "file.json, record 1: numbers must be finite, but got NaN; leave such records out",
        ),
        ('[{"id": 1}, {"id": -Infinity}]', "record 1: numbers must be finite, but got -Infinity"),
        ('[{"id": 1} {"id": 2}]', "malformed JSON.* expected ',' or ']'"),
        ('[{"id": 1},]', "record 1: malformed JSON, a record must be an object; the file must be a list of names"),
        ('[{"id": 1}, 5]', "record 1: malformed JSON, a record must be an object; the file must be a list of names"),
        ('[{"id": 1}, {"id" 2}]', "file.json, record 1: malformed JSON"),
        ('[{"id": 1}] x', "malformed JSON: nothing may follow the end"),
        ('[{"id": 1}', "ends where ',' or ']' after record 0 should be whole; the file is cut short"),
        ('[{"id": 1},', "ends where record 1 should be whole; the file is cut short"),
        ('{"id": 1}', "expected an array, but got '{'"),
    ],
)
@pytest.mark.parametrize("piece_bytes", [5, 1000])
def test_a_wrong_record_is_named_with_its_number(text, message, piece_bytes):
    with pytest.raises(InputError, match=message):
        read_all(text, piece_bytes)


@pytest.mark.parametrize("text", ['{"a" 1}', "{1: 2}", '{"a": 1 "b": 2}', '{"a": [1', '{"a', '{"a": 1'])
def test_a_malformed_object_is_an_error(text):
    with pytest.raises(InputError, match=r"file\.json must be a list of names, but it"):
        skip_all(stream_of(text, 2))


def skip_all(stream: JsonStream) -> None:
    for _ in stream.members():
        stream.skip()


def test_a_byte_order_mark_is_passed_over():
    assert read_all("\ufeff" + '[{"id": 1}]') == [(1, "")]


def test_a_file_of_spaces_holds_no_json():
    with pytest.raises(InputError, match="but it holds no JSON"):
        stream_of("  \n").kind()
