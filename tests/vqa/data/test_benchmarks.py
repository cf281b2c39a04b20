"""TallyQA and HowMany-QA, made up in the exact format of their files."""

import json

import pytest

from tallybox.errors import InputError
from tallybox.vqa.data.benchmarks import count_in, read_tallyqa
from tallybox.vqa.data.features import write_tsv
from tallybox.vqa.data.prepare import SplitFiles, official_files, prepare
from tallybox.vqa.data.splits import open_questions, open_records
from tests.support.vqa_files import annotation, annotations_file, question, questions_file, small_photos, write_json

# As the README of the data set shows one.
HEADLIGHTS = {
    "answer": 4,
    "data_source": "imported_genome",
    "image": "VG_100K_2/2410408.jpg",
    "image_id": 92410408,
    "issimple": False,
    "question": "How many headlights does the black bus have?",
    "question_id": 30095774,
}
COCO = {
    "answer": 2,
    "data_source": "imported_vqa",
    "image": "val2014/COCO_val2014_000000000007.jpg",
    "image_id": 7,
    "issimple": True,
    "question": "How many dogs are there?",
    "question_id": 7001,
}


def tally_training(number: int) -> dict[str, object]:
    made = COCO | {"question_id": number, "answer": number % 5, "image": f"train2014/COCO_train2014_{number:012d}.jpg"}
    return {key: value for key, value in made.items() if key != "issimple"}


@pytest.fixture
def tallyqa(tmp_path):
    write_json(tmp_path / "train.json", [tally_training(number) for number in range(1, 9)])
    write_json(tmp_path / "test.json", [HEADLIGHTS, COCO])
    return tmp_path


def test_tallyqa(tallyqa):
    headlights, dogs = read_tallyqa(tallyqa / "test.json")
    assert headlights == (30095774, "VG/2410408", HEADLIGHTS["question"], ("4",), "number", None, "complex")
    assert (dogs.image_id, dogs.answers, dogs.group) == ("7", ("2",), "simple")
    assert all(record.group is None for record in read_tallyqa(tallyqa / "train.json"))


def test_tallyqa_from_its_folder_to_a_prepared_one(tallyqa):
    photos = small_photos(8)
    write_tsv(tallyqa / "coco.tsv", photos)
    write_tsv(tallyqa / "genome.tsv", [photos[0]._replace(image_id="2410408")])
    splits = official_files(tallyqa)
    assert splits == {"train": SplitFiles(tallyqa / "train.json"), "test": SplitFiles(tallyqa / "test.json")}
    with pytest.raises(InputError, match="photo VG/2410408 must be in the files of features"):
        prepare(splits, [tallyqa / "coco.tsv", tallyqa / "genome.tsv"], tallyqa / "without")
    from tallybox.vqa.data.feature_files import FeatureFile

    done = prepare(splits, [tallyqa / "coco.tsv", FeatureFile(tallyqa / "genome.tsv", "VG")], tallyqa / "prepared")
    assert done["questions"] == {"train": 8, "test": 2}
    questions, records = open_questions(tallyqa / "prepared", "test"), open_records(tallyqa / "prepared", "test")
    assert [record.group for record in records] == ["complex", "simple"]
    assert questions.answers.shape == (2, 10)
    assert (questions.answers[0] == questions.answers[0, 0]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer": "four"}, r"test.json, record 1: Expected `int`.*answer"),
        ({"answer": -1}, r"test.json, record 1: answer must be a count, but got -1"),
        ({"question_id": 30095774}, r"test.json, record 1: question ids must differ"),
        ({"image": 7}, r"test.json, record 1: Expected `str`.*image"),
    ],
)
def test_a_wrong_question_of_tallyqa_is_named(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        read_tallyqa(write_json(tmp_path / "test.json", [HEADLIGHTS, COCO | change]))


@pytest.fixture
def howmany(tmp_path):
    for split, first in (("train2014", 1), ("val2014", 4)):
        asked = [question(number * 1000, number, "How many dogs are there?") for number in range(first, first + 3)]
        answered = [annotation(one["question_id"], ["2"] * 7 + ["3"] * 3, one["image_id"]) for one in asked]
        questions_file(tmp_path / f"v2_OpenEnded_mscoco_{split}_questions.json", asked)
        annotations_file(tmp_path / f"v2_mscoco_{split}_annotations.json", answered)
        write_json(tmp_path / f"v2_mscoco_{split}_complementary_pairs.json", [[first * 1000, first * 1000 + 1000]])
    ids = {"train": {"vqa": [3000, 1000], "visual_genome": [1000, 986]}, "dev": [4000], "test": [6000, 5000]}
    write_json(tmp_path / "question_ids.json", ids)
    genome = [
        {
            "id": 1,
            "qas": [{"qa_id": 1000, "image_id": 1, "question": "How many men?", "answer": "Two.", "a_objects": []}],
        },
        {
            "id": 9,
            "qas": [
                {"qa_id": 986, "image_id": 9, "question": "How many cars?", "answer": "3 or 4.", "q_objects": []},
                {"qa_id": 987, "image_id": 9, "question": "What is it?", "answer": "A dog."},
            ],
        },
    ]
    write_json(tmp_path / "question_answers.json", genome)
    images = [{"image_id": 1, "coco_id": None, "flickr_id": 5}, {"image_id": 9, "coco_id": 8, "flickr_id": None}]
    write_json(tmp_path / "image_data.json", images)
    return tmp_path


def test_howmany_qa_takes_the_listed_questions_of_both_sources(howmany):
    splits = official_files(howmany)
    train, dev, test = (splits[split].read(split) for split in ("train", "val", "test"))
    assert [(one.question_id, one.image_id) for one in train] == [
        *((3000, "3"), (1000, "1")),
        *((-1000, "VG/1"), (-986, "8")),
    ]
    assert [len(one.answers) for one in train] == [10, 10, 1, 1]
    assert [one.answers[0] for one in train[2:]] == ["2", "3"]
    assert [one.question_id for one in dev + test] == [4000, 6000, 5000]
    assert all(one.counts for one in train)
    photos = [photo._replace(image_id=name) for photo, name in zip(small_photos(9), [*"1345678", "VG/1"], strict=False)]
    write_tsv(howmany / "features.tsv", photos)
    done = prepare(splits, [howmany / "features.tsv"], howmany / "prepared")
    assert done["questions"] == {"train": 4, "val": 1, "test": 2}
    assert open_questions(howmany / "prepared", "train").answers.shape == (4, 10)


def test_howmany_qa_without_what_it_lists(howmany):
    splits = official_files(howmany)
    ids = json.loads((howmany / "question_ids.json").read_text())
    write_json(howmany / "question_ids.json", ids | {"test": [6000, 77, 78]})
    with pytest.raises(InputError, match=r"question_ids.json lists 2 questions that must be in .*, among them 77"):
        splits["test"].read("test")
    write_json(howmany / "question_ids.json", {"train": [1], "dev": [], "test": []})
    with pytest.raises(InputError, match=r"question_ids.json.*Expected `object`, got `array`"):
        splits["train"].read("train")
    write_json(howmany / "question_ids.json", ids)
    (howmany / "question_answers.json").unlink()
    with pytest.raises(InputError, match=r"lists questions of Visual Genome for training, but there is no"):
        official_files(howmany)["train"].read("train")
    (howmany / "v2_mscoco_val2014_annotations.json").unlink()
    with pytest.raises(InputError, match=r"must have VQA v2's questions and annotations of val for question_ids.json"):
        official_files(howmany)


@pytest.mark.parametrize(
    ("answer", "count"), [("Two.", 2), ("12", 12), ("There are twenty birds.", 20), ("None", None), ("0.", 0)]
)
def test_counts_in_answers_of_visual_genome(answer, count):
    assert count_in(answer) == count
