import numpy as np
import pytest

from tallybox.boxes import numpy_box_iou
from tallybox.errors import InputError
from tallybox.vqa.data.official import official_files, read_pairs, read_records
from tallybox.vqa.data.store import read_tsv
from tallybox.vqa.scoring import all_scores
from tallybox.vqa.simulation import COUNTS, FEATURES, KINDS, Detector, World, draw_scene, simulate

SMALL = World(train_photos=60, val_photos=30, test_photos=6, features=16)


def scenes(world: World, number: int):
    random = np.random.default_rng(0)
    return [draw_scene(world, random) for _ in range(number)]


def test_files_are_official_and_pairs_are_balanced(tmp_path):
    questions = simulate(tmp_path, SMALL)
    files = official_files(tmp_path)
    assert list(files) == ["train", "val", "test"] == list(questions)
    assert files["test"].annotations is None
    for split in ("train", "val"):
        records = read_records(files[split].questions, files[split].annotations)
        assert len(records) == questions[split]
        by_id = {record.question_id: record for record in records}
        pairs = read_pairs(files[split].pairs)
        assert len(pairs) > len(records) / 4
        for first, second in pairs.tolist():
            assert by_id[first].text == by_id[second].text
            assert by_id[first].answers != by_id[second].answers
        right = {record.question_id: record.answers[0] for record in records}
        assert all_scores(right, records, pairs)["pair_all"] == 100
        assert {record.answer_type for record in records} == {"yes/no", "number", "other"}
    assert len(list(read_tsv(tmp_path / FEATURES))) == 96


def test_the_same_world_gives_the_same_files(tmp_path):
    for name in ("a", "b"):
        simulate(tmp_path / name, SMALL)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


def test_counts_follow_their_shares_and_answers_are_true():
    drawn = scenes(World(), 2000)
    numbers = np.array([len(boxes) for scene in drawn for boxes in scene.boxes.values()])
    shares = np.bincount(numbers, minlength=6)[1:] / len(numbers)
    np.testing.assert_allclose(shares, COUNTS, atol=0.03)
    facts = {(query.family, dict(query.words)["kind"]): answer for query, answer in drawn[0].facts().items()}
    for kind in KINDS:
        assert facts["count", kind] == str(len(drawn[0].boxes.get(kind, ())))
        assert facts["exists", kind] == ("yes" if kind in drawn[0].boxes else "no")


def test_neither_objects_nor_proposals_reveal_a_count():
    world = World(features=8)
    detector = Detector(world)
    drawn = scenes(world, 600)
    counts = np.array([len(next(iter(scene.boxes.values()))) for scene in drawn])
    proposals = np.array([len(detector.detect(1, scene).boxes_xyxy) for scene in drawn])
    objects = np.array([sum(map(len, scene.boxes.values())) + len(scene.clutter) for scene in drawn])
    for seen in (proposals, objects):
        assert abs(np.corrcoef(counts, seen)[0, 1]) < 0.15


@pytest.mark.parametrize("difficulty", [0.0, 1.0])
def test_every_object_has_a_proposal_that_overlaps_it(difficulty):
    world = World(difficulty=difficulty, features=8)
    detector = Detector(world)
    for scene in scenes(world, 40):
        photo = detector.detect(1, scene)
        for boxes in scene.boxes.values():
            assert (numpy_box_iou(boxes, photo.boxes_xyxy.astype(float)).max(1) > 0.3 * (2 - difficulty)).all()


@pytest.mark.parametrize("wrong", [{"difficulty": 3}, {"train_photos": 1}, {"features": 0}])
def test_impossible_worlds_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        World(**wrong)
