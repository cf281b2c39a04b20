"""Files of features that are missing, broken, or come later."""

import json
import re
import shutil
import zipfile
from contextlib import contextmanager

import numpy as np
import pytest

from tallybox.errors import InputError
from tallybox.vqa.batches import data_checksum
from tallybox.vqa.data import store as store_module
from tallybox.vqa.data.feature_files import write_features
from tallybox.vqa.data.features import write_tsv
from tallybox.vqa.data.prepare import SplitFiles, official_files, prepare
from tallybox.vqa.data.splits import open_pairs, open_questions, open_records
from tallybox.vqa.data.store import FeatureStore
from tallybox.vqa.data.vocabulary import Vocabulary
from tests.support.vqa_feature_files import write_lxmert, write_published_h5
from tests.support.vqa_files import annotation, annotations_file, question, questions_file, small_photos, small_set


@pytest.fixture
def official(tmp_path):
    return small_set(tmp_path / "official")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(store_module, "PHOTOS_IN_BLOCK", 8)


@contextmanager
def interrupted_at(image_id, monkeypatch):
    add = store_module.StoreWriter.add

    def interrupted(self, photo, source, position, where):
        if photo.image_id == image_id:
            raise KeyboardInterrupt
        add(self, photo, source, position, where)

    with monkeypatch.context() as patched:
        patched.setattr(store_module.StoreWriter, "add", interrupted)
        yield


def break_records(path, *records):
    lines = path.read_bytes().split(b"\n")
    for record in records:
        lines[record] = lines[record][:-9]
    path.write_bytes(b"\n".join(lines))


def test_missing_photos_are_reported_before_anything_is_stored(tmp_path, official):
    write_tsv(official / "features.tsv", small_photos(30))
    with pytest.raises(InputError, match=r"photo 31 .* 18 questions of val about 9 photos in all; repeat the command"):
        prepare(official_files(official), [official / "features.tsv"], tmp_path / "prepared")
    assert not list((tmp_path / "prepared").glob("photos*"))


def cut_in_half(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def html_page(path):
    path.write_text("<!DOCTYPE html>\n<html>\n\t<body>\tQuota\texceeded\tnow</body>\n</html>\n")


@pytest.mark.parametrize(
    ("name", "damage", "found"),
    [
        ("a.tsv", cut_in_half, r"photos in all; .*a\.tsv: its last line has no end; is the file cut short\?$"),
        ("a.tsv.gz", cut_in_half, r"photos in all; .*a\.tsv\.gz must be a whole gzip file, but it is cut short"),
        ("a.tsv", html_page, r"photos in all; .*a\.tsv: 4 of its 4 lines are no records of features$"),
        ("a.tsv.zip", None, r"a\.tsv\.zip must be a TSV of features, but it is a zip archive; unpack it first$"),
    ],
)
def test_a_download_cut_short_is_reported_as_such(tmp_path, official, name, damage, found):
    path, splits = tmp_path / name, official_files(official)
    if damage is None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.write(official / "features.tsv")
    else:
        write_tsv(path, small_photos(40))
        damage(path)
    for _ in range(2):  # what was found is kept with the list of photos
        with pytest.raises(InputError, match=found):
            prepare(splits, [path], tmp_path / "prepared")


def cut_safetensors(path):
    write_features(path, small_photos(40))
    cut_in_half(path)
    return r"a\.safetensors must have image_ids and the arrays"


def cut_h5(path):
    write_published_h5(path, small_photos(40))
    cut_in_half(path)
    return r"a\.h5 must be a whole HDF5 file"


@pytest.mark.parametrize(("name", "damaged"), [("a.safetensors", cut_safetensors), ("a.h5", cut_h5)])
def test_a_file_that_cannot_be_opened_is_skipped_like_a_record(tmp_path, official, name, damaged):
    reason, splits = damaged(tmp_path / name), official_files(official)
    with pytest.raises(InputError, match=reason):
        prepare(splits, [tmp_path / name, official / "features.tsv"], tmp_path / "strict")
    done = prepare(splits, [tmp_path / name, official / "features.tsv"], tmp_path / "prepared", skip_broken=True)
    assert done["photos"] == 40
    (message,) = done["broken_records"]
    assert re.search(reason, message)
    with pytest.raises(InputError, match=rf"at least one photo, but there is none; .*{reason}"):
        prepare(splits, [tmp_path / name], tmp_path / "alone", skip_broken=True)


def test_a_first_record_of_another_width_does_not_take_the_others_with_it(tmp_path, official):
    write_tsv(official / "features.tsv", [*small_photos(1, features=5), *small_photos(39, first_id=2)])
    with pytest.raises(
        InputError, match=r"record 1: features must be 5 numbers as before, but got 6, and so for 39 photos, more than"
    ):
        prepare(official_files(official), [official / "features.tsv"], tmp_path / "prepared", skip_broken=True)
    write_tsv(
        tmp_path / "later.tsv",
        [*small_photos(3), *small_photos(1, features=5, first_id=4), *small_photos(36, first_id=5)],
    )
    done = prepare(official_files(official), [tmp_path / "later.tsv"], tmp_path / "other", skip_broken=True)
    assert (done["photos"], len(done["broken_records"])) == (39, 1)


def test_test_questions_without_photos_are_left_out_until_their_photos_come(tmp_path, official):
    photos, folder, splits = small_photos(40), tmp_path / "prepared", official_files(official)
    asked = questions_file(tmp_path / "test.json", [question(9, 99)])
    splits["test"] = SplitFiles(asked)
    write_tsv(tmp_path / "trainval.tsv", photos)
    done = prepare(splits, [tmp_path / "trainval.tsv"], folder)
    assert (list(done["questions"]), done["left_out"]) == (["train", "val"], {"test": 1})
    learned_from = data_checksum(folder)
    write_tsv(tmp_path / "test2015.tsv", small_photos(1, first_id=99))
    done = prepare(splits, [tmp_path / "test2015.tsv"], folder)
    assert (done["questions"]["test"], done["left_out"]) == (1, {})
    assert data_checksum(folder) == learned_from, "a run goes on after photos were added"
    vocabulary = Vocabulary.load(folder / "vocabulary.json")
    with pytest.raises(InputError, match=r"photo 99 must be .* repeat the command with more --features$"):
        prepare({"test": splits["test"]}, [tmp_path / "trainval.tsv"], tmp_path / "test", vocabulary=vocabulary)


def test_a_split_without_photos_is_reported_before_anything_is_stored(tmp_path, official):
    write_tsv(official / "features.tsv", small_photos(3, first_id=900))
    with pytest.raises(InputError, match=r"record 0: photo 1 must be .* 38 questions of train about 19 photos in all"):
        prepare(official_files(official), [official / "features.tsv"], tmp_path / "prepared", skip_broken=True)
    assert not list((tmp_path / "prepared").glob("photos*"))


def test_the_same_command_with_more_files_goes_on(tmp_path, official):
    photos, folder = small_photos(40), tmp_path / "prepared"
    write_tsv(tmp_path / "one.tsv", photos[:30])
    write_lxmert(tmp_path / "two.tsv", photos[30:])
    splits = official_files(official)
    with pytest.raises(InputError, match="repeat the command with more --features"):
        prepare(splits, [tmp_path / "one.tsv"], folder)
    prepare(splits, [tmp_path / "one.tsv", tmp_path / "two.tsv"], folder)
    prepare(splits, [tmp_path / "one.tsv", tmp_path / "two.tsv"], tmp_path / "at_once")
    store, at_once = (FeatureStore.open(one / "photos") for one in (folder, tmp_path / "at_once"))
    np.testing.assert_array_equal(store.features, at_once.features)
    assert store.image_ids.tolist() == [photo.image_id for photo in photos]


@pytest.mark.parametrize("named_again", [True, False])
def test_more_files_extend_a_finished_store_and_bring_their_questions(tmp_path, official, named_again):
    photos, folder = small_photos(40), tmp_path / "prepared"
    write_tsv(tmp_path / "one.tsv", photos[:30])
    write_tsv(tmp_path / "two.tsv", photos[25:])
    splits = official_files(official)
    first = prepare(splits | {"test": splits["val"]}, [tmp_path / "one.tsv"], folder, skip_broken=True)
    assert first["lost_questions"] == {"train": 0, "val": 18, "test": 18}
    assert json.loads((folder / "skipped.json").read_text())["questions"]["val"][0] == 310
    rows = open_questions(folder, "train").images
    files = [tmp_path / "one.tsv"] * named_again + [tmp_path / "two.tsv"]
    done = prepare(splits | {"test": splits["val"]}, files, folder)
    assert (done["photos"], done["repeated_photos"], done["questions"]["val"]) == (40, 5, 40)
    assert done["lost_questions"] == {"train": 0, "val": 0, "test": 0}
    assert not (folder / "skipped.json").exists()
    store = FeatureStore.open(folder / "photos")
    store.verify()
    np.testing.assert_array_equal(store.features, np.concatenate([photo.features for photo in photos]).astype("f2"))
    np.testing.assert_array_equal(open_questions(folder, "train").images, rows)
    assert [store.image_ids[row] for row in open_questions(folder, "val").images] == [
        record.image_id for record in open_records(folder, "val")
    ]


def test_broken_records_are_skipped_on_request_and_listed_with_their_questions(tmp_path, official):
    break_records(official / "features.tsv", 3, 19, 38)
    splits = official_files(official)
    with pytest.raises(InputError, match=r"record 3: features must be .*; with --skip-broken it is left out"):
        prepare(splits, [official / "features.tsv"], tmp_path / "strict")
    done = prepare(splits, [official / "features.tsv"], tmp_path / "prepared", skip_broken=True)
    assert [message.split(": ")[0].rpartition(", ")[2] for message in done["broken_records"]] == [
        "record 3",
        "record 19",
        "record 38",
    ]
    assert done["lost_questions"] == {"train": 2, "val": 4, "test": 0}
    listed = json.loads((tmp_path / "prepared" / "skipped.json").read_text())
    assert listed == {
        "records": done["broken_records"],
        "questions": {"train": [40, 41], "val": [200, 201, 390, 391], "test": []},
    }
    assert len(open_questions(tmp_path / "prepared", "val")) == 36
    assert open_pairs(tmp_path / "prepared", "val").tolist() == []  # one of its questions is lost
    again = prepare(splits, [official / "features.tsv"], tmp_path / "prepared", skip_broken=True)
    assert again == done


def test_interrupted_it_lists_every_broken_record_once(tmp_path, official, monkeypatch):
    break_records(official / "features.tsv", 3, 12, 20, 39)
    splits = {split: files for split, files in official_files(official).items() if split != "test"}
    whole = prepare(splits, [official / "features.tsv"], tmp_path / "whole", skip_broken=True)
    with interrupted_at("22", monkeypatch), pytest.raises(KeyboardInterrupt):
        prepare(splits, [official / "features.tsv"], tmp_path / "again", skip_broken=True)
    assert prepare(splits, [official / "features.tsv"], tmp_path / "again", skip_broken=True) == whole
    for path in (tmp_path / "whole" / "photos").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / "photos" / path.name).read_bytes(), path.name


def test_a_file_that_must_be_named_again(tmp_path, official, monkeypatch):
    photos = small_photos(40)
    write_tsv(tmp_path / "one.tsv", photos[:30])
    write_tsv(tmp_path / "two.tsv", photos[30:])
    splits = official_files(official)
    with interrupted_at("22", monkeypatch), pytest.raises(KeyboardInterrupt):
        prepare(splits, [tmp_path / "one.tsv", tmp_path / "two.tsv"], tmp_path / "prepared")
    with pytest.raises(
        InputError, match=r"one.tsv was not read to its end; name it again .* or delete .*photos.unfinished"
    ):
        prepare(splits, [tmp_path / "two.tsv"], tmp_path / "prepared")


def broken_addition(folder, record):
    write_tsv(folder / "more.tsv", small_photos(30, first_id=100))
    break_records(folder / "more.tsv", record)
    return folder / "more.tsv"


@pytest.mark.parametrize("record", [0, 20])
@pytest.mark.parametrize("then", ["nothing", "skipped", "repaired", "another"])
def test_a_broken_file_leaves_the_finished_store_in_use(tmp_path, official, record, then):
    splits, folder = official_files(official), tmp_path / "prepared"
    prepare(splits, [official / "features.tsv"], folder)
    more = broken_addition(tmp_path, record)
    with pytest.raises(InputError, match=rf"record {record}: features must be"):
        prepare(splits, [more], folder)
    FeatureStore.open(folder / "photos").verify()
    assert len(open_questions(folder, "train")) == 38
    added = 0
    if then == "skipped":
        added = prepare(splits, [more], folder, skip_broken=True)["photos"] - 40
        assert added == 29
    elif then == "repaired":
        write_tsv(more, small_photos(30, first_id=100))
        added = prepare(splits, [more], folder)["photos"] - 40
        assert added == 30
    elif then == "another":
        write_tsv(tmp_path / "another.tsv", small_photos(5, first_id=200))
        if record:
            with pytest.raises(InputError, match=r"more.tsv was not read to its end; .* or delete .*photos.unfinished"):
                prepare(splits, [tmp_path / "another.tsv"], folder)
            shutil.rmtree(folder / "photos.unfinished")
        added = prepare(splits, [tmp_path / "another.tsv"], folder)["photos"] - 40
        assert added == 5
    store = FeatureStore.open(folder / "photos")
    store.verify()
    assert len(store) == 40 + added
    rows = open_questions(folder, "train").images
    assert store.image_ids[rows].tolist() == [question.image_id for question in open_records(folder, "train")]
    assert not list(folder.glob("photos.replaced"))


def test_a_file_read_to_its_end_need_not_be_named_again(tmp_path, official):
    splits, folder = official_files(official), tmp_path / "prepared"
    prepare(splits, [official / "features.tsv"], folder)
    write_tsv(tmp_path / "whole.tsv", small_photos(10, first_id=200))
    more = broken_addition(tmp_path, 0)
    with pytest.raises(InputError, match="record 0: features must be"):
        prepare(splits, [tmp_path / "whole.tsv", more], folder)
    assert prepare(splits, [more], folder, skip_broken=True)["photos"] == 40 + 10 + 29


def test_a_file_named_by_mistake_need_not_be_named_again(tmp_path, official):
    photos, folder = small_photos(40), tmp_path / "prepared"
    write_tsv(tmp_path / "wrong.tsv", small_photos(3, first_id=900))
    write_tsv(tmp_path / "one.tsv", photos[:30])
    write_tsv(tmp_path / "two.tsv", photos[30:])
    splits = official_files(official)
    for wrong in ([tmp_path / "wrong.tsv"], [tmp_path / "one.tsv", tmp_path / "wrong.tsv"]):
        with pytest.raises(InputError, match="repeat the command with more --features"):
            prepare(splits, wrong, folder)
    done = prepare(splits, [tmp_path / "one.tsv", tmp_path / "two.tsv"], folder)
    assert done["photos"] == 40
    assert len((folder / "feature_files.jsonl").read_text().splitlines()) == 2


def test_nothing_but_broken_records(tmp_path, official):
    (official / "features.tsv").write_text("no features\n")
    with pytest.raises(
        InputError, match=r"must hold at least one photo, but there is none; .*record 0: must have the 6 columns"
    ):
        prepare(official_files(official), [official / "features.tsv"], tmp_path / "prepared", skip_broken=True)


def test_ids_are_text_from_end_to_end(tmp_path):
    photos = [
        photo._replace(image_id=name)
        for photo, name in zip(small_photos(3), ("kitchen/a.jpg", "b", "COCO_val2014_000000000042"), strict=True)
    ]
    write_tsv(tmp_path / "features.tsv", photos)
    names = ("kitchen/a", "b.png", 42)
    questions_file(
        tmp_path / "v2_OpenEnded_mscoco_train2014_questions.json", [question(n, name) for n, name in enumerate(names)]
    )
    answers = [annotation(n, ["2"] * 10, name) for n, name in enumerate(names)]
    annotations_file(tmp_path / "v2_mscoco_train2014_annotations.json", answers)
    prepare(official_files(tmp_path), [tmp_path / "features.tsv"], tmp_path / "prepared")
    store = FeatureStore.open(tmp_path / "prepared" / "photos")
    assert store.image_ids.tolist() == ["kitchen/a", "b", "42"]
    assert open_questions(tmp_path / "prepared", "train").images.tolist() == [0, 1, 2]
