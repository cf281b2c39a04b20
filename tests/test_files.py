import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tallybox.errors import InputError, TallyboxError
from tallybox.files import (
    atomic_writing,
    check_writable,
    import_optional,
    open_binary,
    read_tensors,
    write_tensors,
    write_text,
)


def test_a_file_has_the_usual_permissions_and_leaves_nothing_else(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "new" / "a.txt", "whole")
    finally:
        os.umask(before)
    assert (tmp_path / "new" / "a.txt").stat().st_mode & 0o777 == 0o640
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.txt"]


def test_a_failed_write_leaves_the_earlier_file(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "earlier")
    with pytest.raises(TypeError), atomic_writing(path, "w") as file:
        file.writelines(["cut sh", None])
    assert path.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [path]


def test_an_output_that_is_an_input_is_refused_also_by_another_name(tmp_path):
    labels, link = tmp_path / "labels.csv", tmp_path / "link.csv"
    labels.write_text("image_id,category,count")
    link.symlink_to(labels)
    for path in (labels, link):
        with pytest.raises(InputError, match="input"):
            check_writable(path, [tmp_path / "photos", labels])
    check_writable(tmp_path / "other.csv", [labels])
    check_writable(Path(os.devnull), [Path(os.devnull)])


def test_a_pipe_is_written_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_writable(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        write_text(pipe, "whole")
        assert reader.stdout.read() == "whole"
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_symbolic_link_keeps_pointing_to_its_file(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "file")
    write_text(link, "whole")
    assert link.is_symlink()
    assert (tmp_path / "file").read_text() == "whole"


def test_a_closed_pipe_is_not_the_fault_of_the_file(tmp_path):
    with pytest.raises(BrokenPipeError), atomic_writing(tmp_path / "a.txt"):
        raise BrokenPipeError
    assert list(tmp_path.iterdir()) == []


def test_of_two_writers_the_last_to_finish_wins(tmp_path):
    path = tmp_path / "a.txt"
    with atomic_writing(path, "w") as first:
        first.write("first")
        with atomic_writing(path, "w") as second:
            second.write("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"


def test_a_killed_writer_leaves_the_earlier_file(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "earlier")
    code = (
        "import os, sys; from pathlib import Path; from tallybox.files import atomic_writing\n"
        "with atomic_writing(Path(sys.argv[1])) as file:\n"
        "    file.write(b'cut sh'); file.flush(); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == -9
    assert path.read_text() == "earlier"


def test_long_names_can_be_written(tmp_path):
    for name in ("x" * 255, "\u732b" * 85):
        write_text(tmp_path / name, "whole")
        assert (tmp_path / name).read_text() == "whole"


def test_a_place_that_cannot_be_written_is_one_line_also_before_the_work(tmp_path):
    check_writable(tmp_path / "new" / "a.txt")
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "a.txt", tmp_path / "new"):
        for write in (check_writable, lambda place: write_text(place, "text")):
            with pytest.raises(InputError, match=path.name):
                write(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "new"]


def test_tensors_come_back_with_their_header_and_the_same_content_gives_the_same_bytes(tmp_path):
    tensors = {"a.weight": torch.arange(6.0).view(2, 3), "a.step": torch.tensor(3), "b": torch.ones(2).half()}
    one, other = tmp_path / "one", tmp_path / "other"
    write_tensors(one, tensors, {"kind": "test", "names": ["b", "a"]})
    write_tensors(other, dict(reversed(tensors.items())), {"kind": "test", "names": ["b", "a"]})
    assert one.read_bytes() == other.read_bytes()
    header, found = read_tensors(one)
    assert header == {"kind": "test", "names": ["b", "a"]}
    assert {name: value.tolist() for name, value in found.items()} == {n: v.tolist() for n, v in tensors.items()}


@pytest.mark.parametrize("place", [0, 9, 60, -1])
def test_a_damaged_file_of_tensors_is_refused(tmp_path, place):
    path: Path = tmp_path / "file"
    write_tensors(path, {"a": torch.arange(6.0)}, {"kind": "test"})
    content = bytearray(path.read_bytes())
    content[place] ^= 0x40
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"."):
        read_tensors(path)


def test_a_pipe_is_refused_before_anything_waits_for_it(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    for path, message in (
        (tmp_path / "pipe.json", "pipe"),
        (tmp_path, "folder"),
        (tmp_path / "none", "No such file"),
        (tmp_path / ("a" * 300), "too long"),
    ):
        with pytest.raises(InputError, match=message), open_binary(path):
            pass


def test_a_missing_package_is_named_with_what_to_install():
    with pytest.raises(TallyboxError) as caught:
        import_optional("no_such_module", needed_for="flying", install="'tallybox[wings]'")
    assert "no_such_module" in str(caught.value)
    assert "pip install 'tallybox[wings]'" in str(caught.value)
