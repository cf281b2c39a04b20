import gzip
import json
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallybox import json_files
from tallybox.errors import InputError
from tallybox.json_files import Int64, JsonRecord, decode_records, read_json

WHAT = "a list of names"


class Named(JsonRecord):
    id: Int64
    name: str = ""


class NamesFile(JsonRecord):
    names: list[Named]


# Records with all that can mislead a search for their ends: brackets and quotes in texts, nested objects.
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


def written(folder, text: str | bytes):
    path = folder / "file.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read_all(path) -> list[tuple[int, str]]:
    """Read a list of names at once and record by record, which must agree."""
    at_once = [(record.id, record.name) for record in read_json(path, list[Named], WHAT)]
    one_by_one = decode_records(path, read_json(path, list[msgspec.Raw], WHAT), Named, WHAT)
    assert [(number, (record.id, record.name)) for number, record in one_by_one] == list(enumerate(at_once))
    return at_once


def error_of(read) -> str:
    with pytest.raises(InputError) as raised:
        read()
    assert "\n" not in str(raised.value)
    return str(raised.value)


@given(st.lists(records, max_size=6), layouts)
def test_an_array_is_read_as_json_reads_it(tmp_path_factory, rows, layout):
    path = written(tmp_path_factory.mktemp("json"), json.dumps(rows, **layout))
    assert read_all(path) == [(row["id"], row["name"]) for row in rows]


@given(st.lists(records, min_size=1, max_size=3), layouts, st.floats(0, 1, exclude_max=True))
def test_a_file_that_is_cut_short_is_never_read_as_whole(tmp_path_factory, rows, layout, share):
    content = json.dumps(rows, **layout).encode()
    path = written(tmp_path_factory.mktemp("json"), content[: int(share * len(content))])
    assert "file.json" in error_of(lambda: read_all(path))


@given(st.dictionaries(texts, inner, max_size=4), st.lists(records, max_size=3), layouts)
def test_members_of_an_object_are_read_or_ignored(tmp_path_factory, others, rows, layout):
    path = written(tmp_path_factory.mktemp("json"), json.dumps({**others, "names": rows, "last": others}, **layout))
    assert [record.id for record in read_json(path, NamesFile, WHAT).names] == [row["id"] for row in rows]


@given(
    st.lists(records, min_size=1, max_size=4),
    st.dictionaries(texts, inner, max_size=3),
    layouts,
    st.integers(0, 3),
    st.booleans(),
)
def test_a_number_that_is_not_finite_is_named_with_its_record(tmp_path_factory, rows, others, layout, wrong, in_object):
    wrong %= len(rows)
    rows[wrong] = {**rows[wrong], "score": float("nan")}
    content = {"first": others, "info": "[", "names": rows} if in_object else rows
    path = written(tmp_path_factory.mktemp("json"), json.dumps(content, **layout))
    kind, place = (NamesFile, f"names, record {wrong}") if in_object else (list[Named], f"record {wrong}")
    expected = f"{path}, {place}: numbers must be finite, but got NaN; leave such records out"
    assert error_of(lambda: read_json(path, kind, WHAT)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"id": 1}, {"id": "x"}]', r"file.json, record 1: Expected `int`, got `str` in id; the file must be a list"),
        ('[{"id": 1}, {"name": "x"}]', r"file.json, record 1: Object missing required field `id`"),
        (
            '[{"id": 1}, {"id": NaN}]',
            "file.json, record 1: numbers must be finite, but got NaN; leave such records out",
        ),
        ('[{"id": 1}, {"id": -Infinity}]', "record 1: numbers must be finite, but got -Infinity"),
        ('[{"id": 1} {"id": 2}]', "malformed JSON.* expected ',' or ']'"),
        ('[{"id": 1},]', "record 1: malformed JSON, trailing comma in array; the file must be a list of names"),
        ('[{"id": 1}, 5]', "record 1: Expected `object`, got `int`; the file must be a list of names"),
        ('[{"id": 1}, {"id" 2}]', "file.json, record 1: malformed JSON"),
        ('[{"id": 1}] x', "malformed JSON: trailing characters"),
        ('[{"id": 1}', "file.json must be a list of names, but it ends too early; the file is cut short"),
        ('[{"id": 1},', "file.json must be a list of names, but it ends too early; the file is cut short"),
        ('{"id": 1}', "file.json must be a list of names, but it is an object"),
        ("  \n", "but it holds no JSON"),
        (b'[{"id": 1}, {"id": 2, "name": "\xff"}]', "file.json.* not UTF-8"),
        ('[{"id": 1}, {"id": 2, "x": ' + "[" * 5000 + "]" * 5000 + "}]", "file.json.* nested too deeply"),
        ('[{"id": 1}, {"id": 9223372036854775808}]', "record 1: Expected `int` <= 9223372036854775807 in id"),
        ('[{"id": 1}, {"id": ' + "9" * 5000 + "}]", "record 1: Integer value out of range in id"),
    ],
)
def test_a_wrong_record_is_named_with_its_number(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=message) as raised:
        read_all(path)
    assert "\n" not in str(raised.value)
    with pytest.raises(InputError, match=message):
        list(decode_records(path, read_json(path, list[msgspec.Raw], WHAT), Named, WHAT))


@pytest.mark.parametrize(
    "text",
    ['{"a" 1}', "{1: 2}", '{"a": 1 "b": 2}', '{"a": [1', '{"a', '{"a": 1', '{"a": []}', '{"names": 5}', "[]", "7"],
)
def test_a_wrong_object_is_an_error(tmp_path, text):
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=r"file\.json must be a list of names, but"):
        read_json(path, NamesFile, WHAT)


def test_a_key_that_is_missing_is_named_beside_those_there(tmp_path):
    path = written(tmp_path, '{"a": [1], "b": 2}')
    assert error_of(lambda: read_json(path, NamesFile, WHAT)).endswith("but names is missing; it has ['a', 'b']")
    path = written(tmp_path, b'{"\xff": 1}')
    assert error_of(lambda: read_json(path, NamesFile, WHAT)).endswith("but names is missing")


def test_a_key_that_is_missing_from_an_object_with_more_behind_it_is_one_line(tmp_path):
    path = written(tmp_path, '{"a": 1}]}')
    assert error_of(lambda: read_json(path, NamesFile, WHAT)).endswith("but names is missing")


def test_a_byte_order_mark_is_ignored(tmp_path):
    assert read_all(written(tmp_path, "\ufeff" + '[{"id": 1}]')) == [(1, "")]


@pytest.mark.parametrize("field", ['"' + "a\\n" * (1 << 23) + '"', "9" * (1 << 24), '{"a": ' + "1," * 5 + "}"])
def test_a_long_field_is_read_in_linear_time(tmp_path, field):
    for text in ('[{"id": 1, "x": ' + field + "}]", '[{"id": 1, "x": ' + field + '}, {"id": NaN}]'):
        path = written(tmp_path, text)
        begin = time.process_time()
        if "NaN" in text or "1,}" in text:
            assert "record" in error_of(lambda path=path: read_json(path, list[Named], WHAT))
        else:
            assert read_all(path) == [(1, "")]
        assert time.process_time() - begin < 5  # 23 s and more where a field was read again with every piece


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(json_files, "MAX_BYTES", 1 << 20)
    monkeypatch.setattr(json_files, "CHUNK_BYTES", 1 << 16)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b"[" + b" " * (1 << 24) + b"]"))
    assert "bomb.json.gz must hold at most" in error_of(lambda: read_json(path, list[Named], WHAT))
