import pytest

pytest.importorskip("numba")

from tallybox.kernels.cpu import compiling


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Make up a package of kernels that import a constant."""
    (tmp_path / "counting" / "cpu").mkdir(parents=True)
    (tmp_path / "counting" / "cpu" / "kernel.py").write_text("from counting.constants import SIZE")
    (tmp_path / "counting" / "constants.py").write_text("SIZE = 1")
    (tmp_path / "command.py").write_text("")
    monkeypatch.setattr(compiling, "PACKAGE", tmp_path)
    return tmp_path


def test_the_cache_is_another_when_a_file_that_kernels_import_changes(package):
    before = compiling.cache_directory()
    assert compiling.cache_directory() == before
    (package / "command.py").write_text("print()")
    assert compiling.cache_directory() == before
    (package / "counting" / "constants.py").write_text("SIZE = 2")
    assert compiling.cache_directory() != before
