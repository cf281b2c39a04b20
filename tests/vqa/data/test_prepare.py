import numpy as np
import pytest

from tallybox.errors import InputError
from tallybox.vqa.data.official import official_files, read_questions, read_records
from tallybox.vqa.data.prepare import prepare
from tallybox.vqa.data.splits import open_pairs, open_questions, open_records
from tallybox.vqa.data.store import FeatureStore, PhotoFeatures, write_features, write_tsv
from tallybox.vqa.data.vocabulary import Vocabulary
from tests.support.shared_data import data_folder
from tests.support.vqa_files import annotation, annotations_file, small_photos, small_set, write_json


@pytest.fixture
def official(tmp_path):
    return small_set(tmp_path / "official")


@pytest.fixture
def prepared(tmp_path, official):
    prepare(official_files(official), [official / "features.tsv"], tmp_path / "prepared")
    return tmp_path / "prepared"


def test_questions_point_at_their_photos_words_and_answers(official, prepared):
    vocabulary, store = Vocabulary.load(prepared / "vocabulary.json"), FeatureStore.open(prepared / "photos")
    assert vocabulary.split == "train"
    for split in ("train", "val"):
        records, questions = open_records(prepared, split), open_questions(prepared, split)
        files = official_files(official)[split]
        assert records == read_records(files.questions, files.annotations)
        assert [store.image_ids[row] for row in questions.images] == [record.image_id for record in records]
        for row, record in enumerate(records):
            words = questions.words[row, : questions.lengths[row]].tolist()
            assert words == vocabulary.encode_question(record.text)
            assert questions.answers[row].tolist() == vocabulary.encode_answers(record.answers)
    assert open_questions(prepared, "test").answers is None
    assert open_pairs(prepared, "train").tolist() == [[10, 20]]


def test_trainval_is_both(prepared):
    both, train, val = (open_questions(prepared, split) for split in ("trainval", "train", "val"))
    assert both.question_ids.tolist() == [*train.question_ids, *val.question_ids]
    assert both.images.tolist() == [*train.images, *val.images]
    assert len(open_pairs(prepared, "trainval")) == 2
    assert len(open_records(prepared, "trainval")) == len(both)


def test_a_vocabulary_of_trainval(tmp_path, official, prepared):
    files, features = official_files(official), [official / "features.tsv"]
    prepare(files, features, tmp_path / "both", vocabulary_from="trainval")
    both = Vocabulary.load(tmp_path / "both" / "vocabulary.json")
    assert both == Vocabulary.of(open_records(prepared, "trainval"), split="trainval")
    with pytest.raises(InputError, match="val"):
        prepare({"train": files["train"]}, features, tmp_path / "none", vocabulary_from="trainval")


def test_a_question_without_a_known_answer_stays(tmp_path, official):
    annotations = official / "v2_mscoco_val2014_annotations.json.gz"
    asked = [record.question_id for record in read_records(official_files(official)["val"].questions)]
    annotations_file(annotations, [annotation(one, ["rare"] * 10, 1) for one in asked])
    done = prepare(official_files(official), [official / "features.tsv"], tmp_path / "prepared")
    assert done["unanswerable"] == {"train": 0, "val": len(asked), "test": 0}
    assert open_questions(tmp_path / "prepared", "val").answers[2].tolist() == [-1] * 10


def test_a_file_of_features_is_read_once_and_more_files_add_photos(tmp_path, official):
    photos, splits = small_photos(40), official_files(official)
    write_tsv(tmp_path / "one.tsv", photos[:15])
    write_features(tmp_path / "two.safetensors", photos[10:])
    with pytest.raises(InputError, match="photos"):
        prepare(splits, [tmp_path / "one.tsv"], tmp_path / "prepared")
    (first,) = (tmp_path / "prepared" / "photos").iterdir()
    before = first.stat().st_mtime_ns
    done = prepare(splits, [tmp_path / "two.safetensors"], tmp_path / "prepared")
    assert (done["photos"], done["repeated_photos"]) == (40, 5)
    assert first.stat().st_mtime_ns == before
    write_tsv(tmp_path / "one.tsv", [*photos[:14], photos[14]._replace(features=photos[14].features + 1)])
    prepare(splits, [tmp_path / "one.tsv"], tmp_path / "prepared")
    assert first.stat().st_mtime_ns != before, "a changed file is read again"


def test_missing_photos_pairs_of_missing_questions_and_test_splits_without_any(tmp_path, official):
    write_json(official / "v2_mscoco_train2014_complementary_pairs.json", [[10, 20], [10, 99]])
    write_tsv(official / "features.tsv", small_photos(38))
    splits, features = official_files(official), [official / "features.tsv"]
    with pytest.raises(InputError, match=r"2 questions are about 1 photos .* among them 39"):
        prepare(splits, features, tmp_path / "prepared")
    done = prepare(splits, features, tmp_path / "prepared", skip_missing=True)
    assert done["left_out"] == {"test": 1}
    assert open_pairs(tmp_path / "prepared", "train").tolist() == [[10, 20]]
    assert done["lost_questions"] == {"train": 0, "val": 2}


def test_real_questions(tmp_path):
    real = official_files(data_folder("vqa2-subset"))
    assert list(real) == ["train", "val"]
    box, feature = np.array([[0, 0, 9, 9]], np.float32), np.ones((1, 2), np.float32)
    ids = sorted({one.image_id for one in read_questions(real["val"].questions)})
    write_tsv(tmp_path / "features.tsv", [PhotoFeatures(str(one), (640, 480), box, feature) for one in ids])
    done = prepare({"train": real["val"]}, [tmp_path / "features.tsv"], tmp_path / "prepared")
    assert (done["questions"]["train"], done["answers"]) == (8977, 3000)
    assert 0 < done["unanswerable"]["train"] < 900
    assert set(Vocabulary.load(tmp_path / "prepared" / "vocabulary.json").answers[:3]) == {"yes", "no", "2"}


@pytest.mark.parametrize("name", ["train.safetensors", "train.jsonl", "vocabulary.json"])
def test_damaged_files_are_one_line(prepared, name):
    readers = {"train.safetensors": open_questions, "train.jsonl": open_records}
    (prepared / name).write_bytes((prepared / name).read_bytes()[:-20])
    with pytest.raises(InputError, match=name):
        readers[name](prepared, "train") if name in readers else Vocabulary.load(prepared / name)
    (prepared / name).unlink()
    with pytest.raises(InputError, match="prepare"):
        readers[name](prepared, "train") if name in readers else Vocabulary.load(prepared / name)
