import gzip
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tallybox.errors import InputError
from tallybox.vqa.data.answers import normalise
from tallybox.vqa.data.features import PhotoFeatures, write_tsv
from tallybox.vqa.data.prepare import SplitFiles, official_files, prepare
from tallybox.vqa.data.questions import read_questions, read_records
from tallybox.vqa.data.splits import open_pairs, open_questions, open_records
from tallybox.vqa.data.store import FeatureStore
from tallybox.vqa.data.vocabulary import Vocabulary
from tests.support.killing import command, kill_when
from tests.support.shared_data import data_folder
from tests.support.vqa_files import annotation, annotations_file, question, questions_file, small_photos, small_set


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def official(tmp_path):
    return small_set(tmp_path / "official")


@pytest.fixture
def prepared(tmp_path, official):
    prepare(official_files(official), [official / "features.tsv"], tmp_path / "prepared")
    return tmp_path / "prepared"


def test_questions_as_numbers(prepared):
    vocabulary = Vocabulary.load(prepared / "vocabulary.json")
    store = FeatureStore.open(prepared / "photos")
    for split, number in (("train", 38), ("val", 40), ("test", 1), ("trainval", 78)):
        questions, records = open_questions(prepared, split), open_records(prepared, split)
        assert len(questions) == len(records) == number
        assert questions.words.shape[1] == questions.lengths.max()
        for row, record in enumerate(records):
            assert questions.question_ids[row] == record.question_id
            assert store.image_ids[questions.images[row]] == record.image_id
            places = questions.words[row]
            assert places[: questions.lengths[row]].tolist() == vocabulary.encode_question(record.text)
            assert not places[questions.lengths[row] :].any()
            if questions.answers is not None:
                assert questions.answers[row].tolist() == vocabulary.encode_answers(record.answers)
    assert open_questions(prepared, "test").answers is None
    assert open_records(prepared, "test")[0].answers is None
    assert open_questions(prepared, "trainval").answers.shape == (78, 10)
    assert open_pairs(prepared, "val").tolist() == [[200, 210]]
    assert open_pairs(prepared, "trainval").shape == (2, 2)
    assert open_pairs(prepared, "test").shape == (0, 2)


def test_the_vocabulary_is_of_the_training_split(tmp_path, official):
    done = prepare(official_files(official), [official / "features.tsv"], tmp_path / "prepared", answers=2)
    vocabulary = Vocabulary.load(tmp_path / "prepared" / "vocabulary.json")
    assert vocabulary.answers == ("yes", "2")
    assert "unicorns" not in vocabulary.words
    assert done["unanswerable"]["train"] == 0  # "two" is among the ten of each
    assert (done["words"], done["answers"], done["photos"], done["questions"]["val"]) == (
        len(vocabulary.words),
        2,
        40,
        40,
    )
    assert -1 in open_questions(tmp_path / "prepared", "train").answers


def test_the_vocabulary_is_of_both_splits_where_that_is_wanted(tmp_path, official):
    asked = official / "v2_OpenEnded_mscoco_val2014_questions.json"
    asked.write_text(asked.read_text().replace("dogs", "zebras"))
    files, features = official_files(official), [official / "features.tsv"]
    (official / "v2_OpenEnded_mscoco_test-dev2015_questions.json").write_bytes(
        gzip.decompress((official / "v2_OpenEnded_mscoco_test2015_questions.json.gz").read_bytes())
    )
    of_train, of_both = tmp_path / "train", tmp_path / "trainval"
    prepare(files, features, of_train)
    files = official_files(official)
    assert list(files) == ["train", "val", "test", "test-dev"]
    prepare(files, features, of_both, vocabulary_from="trainval")
    both, records = Vocabulary.load(of_both / "vocabulary.json"), open_records(of_both, "trainval")
    assert both == Vocabulary.of(records)
    assert set(both.words) - set(Vocabulary.load(of_train / "vocabulary.json").words) == {"zebras"}
    assert open_questions(of_both, "test-dev").question_ids.tolist() == [9]
    with pytest.raises(InputError, match="another configuration \\(vocabulary_from trainval, not none\\)"):
        prepare(files, features, of_both)
    with pytest.raises(InputError, match="splits must include val to make a vocabulary from, but got train"):
        prepare({"train": files["train"]}, features, tmp_path / "none", vocabulary_from="trainval")


def test_a_question_without_a_known_answer_stays(tmp_path, official):
    records = [question(1, 1), question(2, 1), question(3, 1)]
    questions_file(official / "own.json", records)
    answers = [["yes"] * 10, ["yes"] * 10, ["rare"] * 10]
    annotations_file(official / "own_answers.json", [annotation(n, a, 1) for n, a in enumerate(answers, 1)])
    files = {"train": SplitFiles(official / "own.json", official / "own_answers.json")}
    done = prepare(files, [official / "features.tsv"], tmp_path / "prepared", answers=1)
    assert done["unanswerable"] == {"train": 1}
    assert open_questions(tmp_path / "prepared", "train").answers[2].tolist() == [-1] * 10
    assert open_records(tmp_path / "prepared", "train")[2].answers == ("rare",) * 10


def test_test_alone_with_an_earlier_vocabulary(tmp_path, official, prepared):
    splits = {"test": official_files(official)["test"]}
    with pytest.raises(InputError, match="splits must include train to make a vocabulary from, but got test"):
        prepare(splits, [official / "features.tsv"], tmp_path / "test")
    earlier = Vocabulary.load(prepared / "vocabulary.json")
    prepare(splits, [official / "features.tsv"], tmp_path / "test", vocabulary=earlier)
    assert open_questions(tmp_path / "test", "test").words[0].tolist() == [*earlier.encode_question("how many"), 0]


def test_several_files_of_features_and_a_photo_twice(tmp_path, official, prepared):
    photos = small_photos(40)
    write_tsv(tmp_path / "one.tsv", photos[:15])
    write_tsv(tmp_path / "two.tsv.gz", photos[10:])
    done = prepare(official_files(official), [tmp_path / "one.tsv", tmp_path / "two.tsv.gz"], tmp_path / "parts")
    assert (done["photos"], done["repeated_photos"]) == (40, 5)
    for name in ("features", "boxes_xyxy", "image_ids"):
        one, other = (getattr(FeatureStore.open(folder / "photos"), name) for folder in (prepared, tmp_path / "parts"))
        np.testing.assert_array_equal(one, other)


def test_real_questions(tmp_path):
    folder = data_folder("vqa2-subset")
    real = official_files(folder)
    assert list(real) == ["train", "val"]
    asked = read_questions(real["val"].questions)
    box, feature = np.array([[0, 0, 9, 9]], np.float32), np.ones((1, 2), np.float32)
    photos = [
        PhotoFeatures(str(image_id), (640, 480), box, feature) for image_id in sorted({one.image_id for one in asked})
    ]
    write_tsv(tmp_path / "features.tsv", photos)
    done = prepare({"train": real["val"]}, [tmp_path / "features.tsv"], tmp_path / "prepared")
    vocabulary = Vocabulary.load(tmp_path / "prepared" / "vocabulary.json")
    assert (done["questions"]["train"], done["answers"]) == (8977, 3000)
    said = Counter(
        normalise(answer) for record in open_records(tmp_path / "prepared", "train") for answer in record.answers
    )
    assert [said[answer] for answer in vocabulary.answers] == sorted(said.values(), reverse=True)[:3000]
    assert set(vocabulary.answers[:3]) == {"yes", "no", "2"}
    assert 0 < done["unanswerable"]["train"] < 900
    records = open_records(tmp_path / "prepared", "train")
    assert records == read_records(real["val"].questions, real["val"].annotations)


def test_again_it_changes_nothing(official, prepared):
    before = {path: path.stat().st_mtime_ns for path in prepared.rglob("*.npy")}
    prepare(official_files(official), [official / "features.tsv"], prepared)
    assert {path: path.stat().st_mtime_ns for path in prepared.rglob("*.npy")} == before


def test_another_input_needs_another_folder(official, prepared):
    write_tsv(official / "features.tsv", small_photos(41))
    with pytest.raises(
        InputError, match=r"features.tsv must be as it was when .*prepared was begun, but its content differs"
    ):
        prepare(official_files(official), [official / "features.tsv"], prepared)


def test_missing_photos_are_named(tmp_path, official):
    write_tsv(official / "features.tsv", small_photos(38))
    with pytest.raises(
        InputError, match=r"val2014_questions.json, record 38: photo 39 must .* 2 questions of val about 1 photos"
    ):
        prepare(official_files(official), [official / "features.tsv"], tmp_path / "prepared")


def test_a_changed_split_is_noticed(prepared):
    content = bytearray((prepared / "train" / "answers.npy").read_bytes())
    content[-1] ^= 1
    (prepared / "train" / "answers.npy").write_bytes(content)
    with pytest.raises(InputError, match=r"answers\.npy must be as it was written"):
        open_questions(prepared, "train")


@pytest.mark.parametrize("name", ["words.npy", "records.jsonl", "checksums.json"])
def test_a_damaged_split_is_one_line(prepared, name):
    for content, found in ((b"{", "its checksum differs|cannot be read"), (None, "there is none|has .val, test")):
        path = prepared / "train" / name
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(InputError, match=rf"must be .*({found}).* tallybox vqa prepare"):
            (open_records if name == "records.jsonl" else open_questions)(prepared, "train")


def test_folders_without_what_is_needed(tmp_path, official, prepared):
    with pytest.raises(InputError, match="must have files like v2_OpenEnded"):
        official_files(tmp_path)
    (official / "v2_mscoco_val2014_annotations.json.gz").unlink()
    with pytest.raises(InputError, match="split val must have a file of annotations beside"):
        official_files(official)
    shutil.copy(
        official / "v2_OpenEnded_mscoco_val2014_questions.json", official / "OpenEnded_mscoco_val2014_questions.json"
    )
    with pytest.raises(InputError, match="must have one file of val questions, but has"):
        official_files(official)
    with pytest.raises(
        InputError, match=r"split must be one that .* has \(train, val, test, trainval\), but got 'dev'"
    ):
        open_questions(prepared, "dev")


def test_killed_in_both_phases_it_finishes_with_the_same_files(tmp_path):
    """A real process, killed while it writes photos and again while it writes questions."""
    official = tmp_path / "official"
    official.mkdir()
    photos = small_photos(256 * 12, features=64)
    write_tsv(official / "features.tsv", photos)
    asked = [question(n, n % len(photos) + 1, f"How many things like {n} are there here?") for n in range(12000)]
    questions_file(official / "v2_OpenEnded_mscoco_train2014_questions.json", asked)
    answered = [annotation(n, [str(n % 9)] * 10, n % len(photos) + 1) for n in range(12000)]
    annotations_file(official / "v2_mscoco_train2014_annotations.json", answered)
    prepared_to = command("vqa", "prepare", official, "--features", official / "features.tsv", "--out")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    prepare(official_files(official), [official / "features.tsv"], whole)

    journal = killed / "photos.unfinished" / "journal.jsonl"
    kill_when([*prepared_to, str(killed)], lambda: journal.exists() and journal.read_bytes().count(b"\n") > 2)
    assert not (killed / "photos").exists()
    kill_when([*prepared_to, str(killed)], lambda: (killed / "train.unfinished" / "records.jsonl").exists())
    assert (killed / "photos").exists()
    assert not (killed / "train").exists()
    subprocess.run([*prepared_to, str(killed)], check=True, capture_output=True)
    assert contents(killed) == contents(whole)
    FeatureStore.open(killed / "photos").verify()


def test_a_store_in_another_order_brings_its_questions_with_it(tmp_path, official, prepared):
    photos = small_photos(40)
    write_tsv(tmp_path / "one.tsv", photos[20:])
    write_tsv(tmp_path / "two.tsv", photos[:20])
    earlier = shutil.copytree(prepared, tmp_path / "earlier")
    shutil.rmtree(prepared / "photos")
    prepare(official_files(official), [tmp_path / "one.tsv", tmp_path / "two.tsv"], prepared)
    store, questions = FeatureStore.open(prepared / "photos"), open_questions(prepared, "train")
    assert store.image_ids[0] == photos[20].image_id
    assert store.image_ids[questions.images].tolist() == [r.image_id for r in open_records(prepared, "train")]
    shutil.rmtree(earlier / "photos")
    shutil.copytree(prepared / "photos", earlier / "photos")
    with pytest.raises(
        InputError, match=r"val must be about the photos in .*photos, but was written for another store"
    ):
        open_questions(earlier, "val")
