from collections import Counter

import pytest

from tallybox.detections.coco import read_coco_instances
from tallybox.errors import InputError
from tallybox.vqa.data.prepare import official_files
from tallybox.vqa.data.questions import read_pairs, read_records
from tallybox.vqa.simulation.instances import noun, simulate_from_instances
from tests.support.shared_data import data_folder
from tests.support.vqa_files import write_json

CATEGORIES = [
    {"id": 17, "name": "cat", "supercategory": "animal"},
    {"id": 18, "name": "dog", "supercategory": "animal"},
    {"id": 87, "name": "scissors", "supercategory": "indoor"},
]


def instances(path, counts: dict[int, dict[int, int]], crowds: tuple[tuple[int, int], ...] = ()):
    annotations = [
        {
            "id": 0,
            "image_id": image,
            "category_id": category,
            "bbox": [0, 0, 9, 9],
            "iscrowd": int((image, category) in crowds),
        }
        for image, some in counts.items()
        for category, number in some.items()
        for _ in range(number)
    ]
    for number, annotation in enumerate(annotations):
        annotation["id"] = number
    images = [{"id": image, "width": 640, "height": 480} for image in counts]
    return write_json(path, {"images": images, "annotations": annotations, "categories": CATEGORIES})


def written(out, split="train"):
    files = official_files(out)[split]
    return read_records(files.questions, files.annotations), read_pairs(files.pairs)


def test_questions_have_the_true_answers(tmp_path):
    truth = {1: {18: 3}, 2: {17: 1, 18: 1}, 3: {87: 2}, 4: {17: 2}}
    simulate_from_instances(instances(tmp_path / "i.json", truth), tmp_path / "out", questions_per_photo=20)
    records, pairs = written(tmp_path / "out")
    for record in records:
        assert len(set(record.answers)) == 1
        there = truth[int(record.image_id)]
        for category, word in ((17, "cat"), (18, "dog"), (87, "scissors")):
            if word in record.text and record.counts:
                assert record.answers[0] == str(there.get(category, 0)), record
            elif word in record.text:
                assert record.answers[0] == ("yes" if category in there else "no"), record
        if record.text.startswith("Which animal"):
            assert record.answers[0] == {"1": "dog", "4": "cat"}[record.image_id]
            assert record.answer_type == "other"
    by_id = {record.question_id: record for record in records}
    for first, second in pairs.tolist():
        assert by_id[first].text == by_id[second].text
        assert by_id[first].answers != by_id[second].answers


def test_other_words_are_used_with_the_true_answers(tmp_path):
    truth = {1: {18: 3}, 2: {17: 1, 18: 1}, 3: {87: 2}, 4: {17: 2}, 5: {}}
    simulate_from_instances(instances(tmp_path / "i.json", truth), tmp_path / "out", questions_per_photo=40)
    records, _ = written(tmp_path / "out")
    about = {word: [one for one in records if f" {word} " in one.text] for word in ("puppies", "kittens", "animals")}
    assert all(about.values())
    for word, categories in (("puppies", (18,)), ("kittens", (17,)), ("animals", (17, 18))):
        for record in about[word]:
            there = sum(truth[int(record.image_id)].get(category, 0) for category in categories)
            assert (record.counts, record.answers[0]) == (True, str(there)), record
    # Whether a dog is a puppy is not known, so that is not asked.
    assert not any("a puppy" in record.text or "a kitten" in record.text for record in records)
    existing = [record for record in records if "an animal" in record.text]
    assert {record.answers[0] for record in existing} == {"yes", "no"}
    assert all((record.answers[0] == "yes") == bool({17, 18} & {*truth[int(record.image_id)]}) for record in existing)


def test_crowds_are_there_but_not_counted(tmp_path):
    path = instances(tmp_path / "i.json", {1: {18: 1}, 2: {18: 2}, 3: {}}, crowds=((1, 18),))
    simulate_from_instances(path, tmp_path / "out", split="val", questions_per_photo=20)
    records, _ = written(tmp_path / "out", "val")
    about_crowd = [r for r in records if r.image_id == "1" and "dog" in r.text]
    assert about_crowd
    assert not any(record.counts for record in about_crowd)


def test_real_photos_give_all_sorts_of_questions(tmp_path):
    path = data_folder("coco-count") / "instances_val.json.gz"
    simulate_from_instances(path, tmp_path, split="val")
    records, pairs = written(tmp_path, "val")
    assert len(records) > 3000
    assert len(pairs) > 1500
    types = Counter(record.answer_type for record in records)
    assert min(types[name] for name in ("yes/no", "number", "other")) > 200
    labels = read_coco_instances(path)
    counted = [record for record in records if record.counts]
    zeros = sum(record.answers[0] == "0" for record in counted)
    assert 0.05 < zeros / len(counted) < 0.3
    people = [record for record in counted if " people " in record.text]
    assert people
    assert all(labels.count(int(record.image_id), 1) == int(record.answers[0]) for record in people)


@pytest.mark.parametrize(
    ("name", "plural"),
    [
        ("bus", "buses"),
        ("wine glass", "wine glasses"),
        ("sandwich", "sandwiches"),
        ("cherry", "cherries"),
        ("toy", "toys"),
        ("knife", "knives"),
        ("mouse", "mice"),
        ("sheep", "sheep"),
        ("tv", "TVs"),
        ("skis", "pairs of skis"),
    ],
)
def test_plurals(name, plural):
    assert noun(name).plural == plural


def test_what_cannot_be_asked_about(tmp_path):
    path = instances(tmp_path / "i.json", {1: {18: 1}})
    with pytest.raises(InputError, match="but no question has two answers"):
        simulate_from_instances(path, tmp_path / "out")
    with pytest.raises(InputError, match="split must be train or val, as there are answers, but got 'test'"):
        simulate_from_instances(path, tmp_path / "out", split="test")
