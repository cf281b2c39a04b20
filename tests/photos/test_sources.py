import collections
from pathlib import Path

import pytest

from tallybox.errors import InputError
from tallybox.photos.sources import find_photos, find_sources
from tests.support.photos import gradient
from tests.support.small_photos import save_photos


@pytest.fixture
def folder(tmp_path):
    for name in ("c.jpg", "a.JPEG", "b.png", "below/d.webp", "below/.hidden.jpg"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        gradient(20, 10).save(path)
    (tmp_path / "notes.txt").write_text("no photo")
    return tmp_path


def names(sources) -> list[str]:
    return [source.path.name for source in sources]


def test_folders_and_patterns_give_photos_by_name(folder):
    assert names(find_sources([folder])) == ["a.JPEG", "b.png", "d.webp", "c.jpg"]
    assert names(find_sources([str(folder / "*.jp*g"), folder / "b.png"])) == ["c.jpg", "b.png"]
    assert names(find_sources([str(folder / "**" / "*.webp")])) == ["d.webp"]
    assert all(source.is_photo for source in find_sources([folder, folder / "notes.txt"]))


def test_detections_are_recognised_by_their_suffix(folder):
    for name in ("x.json.gz", "y.csv", "z.parquet"):
        (folder / name).touch()
        assert not find_sources([folder / name])[0].is_photo


def test_what_is_not_there_is_one_line(folder):
    (folder / "empty").mkdir()
    for given in (folder / "none.jpg", str(folder / "*.tif"), folder / "empty"):
        with pytest.raises(InputError, match=Path(given).name.replace("*", "")):
            find_sources([given])


def test_ids_are_paths_from_the_folder_that_was_named(tmp_path, monkeypatch):
    save_photos(tmp_path / "photos" / "ripe", 2)
    monkeypatch.chdir(tmp_path / "photos")
    assert [*find_photos([tmp_path / "photos"])] == ["ripe/00.png", "ripe/01.png"]
    assert [*find_photos(["."])] == ["ripe/00.png", "ripe/01.png"]
    assert [*find_photos(["ripe"])] == ["00.png", "01.png"]
    assert [*find_photos(["ripe/*.png"])] == ["00.png", "01.png"]
    assert [*find_photos(["ripe/01.png"])] == ["01.png"]
    assert [*find_photos([".", "ripe/01.png"])] == ["ripe/00.png", "ripe/01.png"]


def test_what_is_named_twice_is_there_once(folder):
    given = [folder / "c.jpg", folder, str(folder / "*.jpg")]
    assert names(find_sources(given)) == ["c.jpg", "a.JPEG", "b.png", "d.webp"]


def test_two_photos_of_one_id_and_what_is_no_photo_are_one_line(tmp_path):
    for name in ("a", "b"):
        save_photos(tmp_path / name, 1)
    with pytest.raises(InputError, match=r"a/00\.png and .*b/00\.png have the same id"):
        find_photos([tmp_path / "a", tmp_path / "b"])
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(InputError, match=r"x\.json"):
        find_photos([tmp_path / "x.json"])


def test_pictures_of_count_are_left_out_of_a_folder_and_counted(tmp_path):
    for name in ("a_counted.jpg", "a_counted-2.jpg", "a.png"):
        gradient(32, 24).save(tmp_path / name)
    skipped = collections.Counter()
    assert names(find_sources([tmp_path], skipped)) == ["a.png"]
    assert skipped == {"_counted.jpg": 2}
    assert names(find_sources([tmp_path / "a_counted.jpg"])) == ["a_counted.jpg"]
