from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tallybox.vqa.data.answers import normalise
from tallybox.vqa.data.features import read_tsv
from tallybox.vqa.data.prepare import official_files, prepare
from tallybox.vqa.data.questions import check_pairs, read_pairs, read_records
from tallybox.vqa.data.splits import open_questions
from tallybox.vqa.scoring import KEYS, accuracy, score
from tallybox.vqa.simulation.simulate import FEATURES, simulate
from tallybox.vqa.simulation.world import World

SMALL = World(train_photos=120, val_photos=60, test_photos=5, features=16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("made-up")
    simulate(out, SMALL)
    return out


@pytest.fixture(scope="module")
def train(folder):
    files = official_files(folder)["train"]
    return read_records(files.questions, files.annotations), read_pairs(files.pairs)


def test_all_files_of_all_splits(folder):
    files = official_files(folder)
    assert list(files) == ["train", "val", "test"]
    assert files["test"].annotations is None
    assert files["val"].pairs is not None
    photos = [photo for photo, _ in read_tsv(folder / FEATURES)]
    assert len(photos) == len({photo.image_id for photo in photos}) == 185
    assert {photo.features.shape[1] for photo in photos} == {16}


def test_three_answer_types_ten_people_who_disagree(train):
    records, _ = train
    types = Counter(record.answer_type for record in records)
    assert min(types[name] for name in ("yes/no", "number", "other")) > 0.2 * len(records)
    assert 0.3 < np.mean([record.counts for record in records]) < 0.6
    assert {"yes", "no"} == {normalise(answer) for r in records if r.answer_type == "yes/no" for answer in r.answers}
    unanimous = np.mean([len(set(record.answers)) == 1 for record in records])
    assert 0.1 < unanimous < 0.6
    best = [max(accuracy(answer, record.answers) for answer in record.answers) for record in records]
    assert np.mean(best) > 0.99


def test_pairs_are_one_question_with_two_answers(train, folder):
    records, pairs = train
    check_pairs(folder, pairs, records)
    by_id = {record.question_id: record for record in records}
    assert len(pairs) > 0.4 * len(records)
    assert set(pairs.ravel().tolist()) == set(by_id)
    for first, second in pairs.tolist():
        one, other = by_id[first], by_id[second]
        assert one.text == other.text
        assert one.image_id != other.image_id
        assert Counter(map(normalise, one.answers)).most_common(1) != Counter(
            map(normalise, other.answers)
        ).most_common(1)


def test_words_alone_do_not_tell(train):
    """The best answer to each wording, chosen with hindsight, is wrong on one of every pair."""
    records, pairs = train
    by_text: dict[str, Counter[str]] = {}
    for record in records:
        by_text.setdefault(record.text, Counter()).update(map(normalise, record.answers))
    said = {record.question_id: by_text[record.text].most_common(1)[0][0] for record in records}
    scores = score(said, records, pairs)
    assert set(scores) == set(KEYS)
    assert scores["pair_all"] < 3
    assert scores["count"] < 60


def test_the_same_world_gives_the_same_files(folder, tmp_path):
    simulate(tmp_path / "again", SMALL)
    simulate(tmp_path / "other", replace(SMALL, seed=1))
    for path in folder.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()
        assert (tmp_path / "other" / path.name).read_bytes() != path.read_bytes()


def test_it_can_be_prepared(folder, tmp_path):
    done = prepare(official_files(folder), [folder / FEATURES], tmp_path / "prepared")
    assert done["photos"] == 185
    assert done["unanswerable"]["train"] == 0
    questions = open_questions(tmp_path / "prepared", "train")
    assert (questions.words.max(1) > 0).all()


def test_no_test_split_on_demand(tmp_path):
    questions = simulate(tmp_path, World(train_photos=8, val_photos=8, test_photos=0, features=4))
    assert list(questions) == ["train", "val"]
