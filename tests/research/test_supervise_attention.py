import sys
from pathlib import Path

import numpy as np

from tallybox.detections.categories import COCO_CATEGORIES
from tallybox.vqa.data.official import official_files, read_questions
from tallybox.vqa.data.prepare import prepare
from tallybox.vqa.data.splits import open_questions
from tallybox.vqa.data.store import PhotoFeatures, write_tsv
from tests.support.shared_data import data_folder
from tests.support.vqa_files import annotation, annotations_file, question, questions_file, write_json

sys.path.append(str(Path(__file__).parent.parent.parent / "research"))  # as its scripts see each other
from category_words import CategoryWords
from supervise_attention import supervise

DOGS = [[0, 0, 10, 10], [50, 50, 20, 20]]  # left, top, width, height
PROPOSALS = [[0, 0, 10, 10], [0, 0, 10, 6], [0, 0, 10, 4], [52, 50, 70, 70], [50, 0, 90, 40]]
RELEVANT = [1, 1, 0, 1, 0]


def instances(path, crowd=False):
    names = {1: "person", 18: "dog", 58: "hot dog"}
    boxes = [(7, 18, box, 0) for box in DOGS] + [(8, 1, [0, 0, 9, 9], 1)] * crowd
    annotations = [
        {"id": number, "image_id": image, "category_id": category, "bbox": box, "iscrowd": is_crowd}
        for number, (image, category, box, is_crowd) in enumerate(boxes)
    ]
    categories = [{"id": category, "name": name} for category, name in names.items()]
    return write_json(path, {"images": [{"id": 7}, {"id": 8}], "annotations": annotations, "categories": categories})


def supervised(folder, texts: list[tuple[int, str]], instances):
    """Prepare questions about photos 7 and 8, which have true boxes, and 9, which has none."""
    folder.mkdir(exist_ok=True)
    boxes = {7: PROPOSALS, 8: PROPOSALS[:2], 9: PROPOSALS[:3]}
    write_tsv(
        folder / "features.tsv",
        [
            PhotoFeatures(str(one), (99, 99), np.array(some, np.float32), np.ones((len(some), 2)))
            for one, some in boxes.items()
        ],
    )
    asked = [question(number, image_id, text) for number, (image_id, text) in enumerate(texts)]
    answers = [annotation(one["question_id"], ["2"] * 10, one["image_id"]) for one in asked]
    questions_file(folder / "v2_OpenEnded_mscoco_train2014_questions.json", asked)
    annotations_file(folder / "v2_mscoco_train2014_annotations.json", answers)
    prepare(official_files(folder), [folder / "features.tsv"], folder / "prepared")
    before = open_questions(folder / "prepared", "train")
    number = supervise(folder / "prepared", instances)
    after = open_questions(folder / "prepared", "train")
    assert (before.words.tolist(), before.answers.tolist()) == (after.words.tolist(), after.answers.tolist())
    assert before.relevance is None
    return number, after.relevance


def test_proposals_that_overlap_a_true_box_by_half_are_relevant(tmp_path):
    texts = [
        (7, "How many dogs are there?"),
        (7, "Where is the puppy?"),
        (7, "How many people are there?"),  # none are there
        (7, "Is the dog eating a hot dog?"),  # two categories
        (7, "What time is it?"),
        (8, "How many dogs are there?"),
        (9, "How many dogs are there?"),  # no true boxes
    ]
    number, relevance = supervised(tmp_path, texts, [instances(tmp_path / "instances.json.gz")])
    unknown = [-1] * 5
    assert relevance.dtype == np.int8
    assert relevance.tolist() == [RELEVANT, RELEVANT, [0] * 5, unknown, unknown, [0, 0, -1, -1, -1], unknown]
    assert number == 4


def test_crowds_are_not_known(tmp_path):
    path = instances(tmp_path / "instances.json", crowd=True)
    _, relevance = supervised(tmp_path, [(8, "How many people are there?"), (8, "How many dogs?")], [path])
    assert relevance[:, :2].tolist() == [[-1, -1], [0, 0]]


def test_most_questions_about_real_photos_name_one_category():
    words = CategoryWords.of(COCO_CATEGORIES)
    asked = read_questions(data_folder("coco-vqa") / "v2_OpenEnded_mscoco_val2014_questions.json.gz")
    assert sum(words.named(one.question) is not None for one in asked) > 0.85 * len(asked)
