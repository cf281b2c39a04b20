"""The data of research/vqa_human.py: prepared once for all rows of the experiment, and cut to what each learns from."""

import csv
import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from category_words import CategoryWords
from numpy.typing import NDArray

from tallybox.boxes import nms
from tallybox.detections.categories import COCO_CATEGORIES, COCO_CATEGORY_IDS, plural
from tallybox.files import open_binary, write_text
from tallybox.vqa.batches import TrainingData
from tallybox.vqa.data.official import SplitFiles, official_files, read_records
from tallybox.vqa.data.prepare import prepare
from tallybox.vqa.data.questions import QuestionRecord
from tallybox.vqa.data.splits import EncodedQuestions, encode_words, open_pairs, open_questions, open_records
from tallybox.vqa.data.store import PHOTOS, FeatureStore, PhotoFeatures, write_features
from tallybox.vqa.data.vocabulary import VOCABULARY, Vocabulary
from tallybox.vqa.simulation import YEARS, write_json

# Ids of questions say where they come from: below, VQA v2's own.
TALLYQA_FROM, WRITTEN_FROM, WHOLE_FROM = 10**11, 10**12, 10**13
SOURCES = {"human": (0, TALLYQA_FROM), "tallyqa": (TALLYQA_FROM, WRITTEN_FROM), "written": (WRITTEN_FROM, WHOLE_FROM)}
SOURCES["whole"] = (WHOLE_FROM, 10**14)  # questions about photos at full size
CATEGORIES, COMPONENTS, PLACES = 80, 48, 6  # columns of a region
SIZE = 256.0  # pixels of the photos of VQA v2, which were stretched to squares
MOST_REGIONS, SCORES_OF_A_REGION = 16, 6  # that those photos have
WHOLE = "whole/"  # before the id of a photo whose regions are those of its full size
FOLDS = 5  # of training photos; one is held out to choose settings
LARGEST_GIVEN = 20
WORDINGS = ("How many {} are there?", "How many {} are in the photo?", "How many {} can you see?")


@dataclass(frozen=True)
class Learned:
    """What a row of the experiment learns from. A factor of 0 leaves those columns out."""

    share: float = 1.0  # of the photos
    sources: tuple[str, ...] = ("human",)
    scores: float = 3.0  # factor of a region's 80 scores
    components: float = 0.2  # of its 48 principal components
    places: float = 0.0  # of its corners and size, as shares of the photo's
    overlap: float = 1.0  # of two regions, at most; the detector's own limit is 0.7
    true_counts: bool = False  # of the category that a question names, as the question's last word


@dataclass(frozen=True)
class Scored:
    """Questions that a model answers after its training."""

    questions: EncodedQuestions
    records: list[QuestionRecord]
    pairs: NDArray[np.int64]
    categories: NDArray[np.int64]  # [Q] the only category that a question names, from 0; else -1


def prepare_all(data: Path, out: Path, share: int) -> None:
    """Write the questions as official files, the regions in the plain layout, and prepare both."""
    prepared, questions = out / "prepared", out / "questions"
    if (out / "done").exists():
        return
    subset = data / "vqa2-subset"
    scored = {one["image_id"] for one in _read(subset / _named("OpenEnded_mscoco_{}_questions", "val"), "questions")}
    asked = [one for one in _official(subset, "train") if one[0]["image_id"] not in scored]
    photos = sorted({one[0]["image_id"] for one in asked})
    asked += [_question(TALLYQA_FROM + n, *row) for n, row in enumerate(_tallyqa(data, "256px"))]
    inventory = read_inventory(subset / "object_inventory.csv.gz")
    asked += [_question(WRITTEN_FROM + n, *row) for n, row in enumerate(written_questions(photos, inventory))]
    if (data / "coco-vqa").exists():  # beside it on a GPU machine, which the full-size rows need
        whole = [(q | {"image_id": f"{WHOLE}{q['image_id']}"}, a) for q, a in _official(data / "coco-vqa", "train")]
        whole += [_question(0, f"{WHOLE}{photo}", *row) for photo, *row in _tallyqa(data, "train")]
        asked += [
            (q | {"question_id": WHOLE_FROM + n}, a | {"question_id": WHOLE_FROM + n}) for n, (q, a) in enumerate(whole)
        ]
    write_json(questions / _named("OpenEnded_mscoco_{}_questions", "train"), {"questions": [q for q, _ in asked]})
    write_json(questions / _named("mscoco_{}_annotations", "train"), {"annotations": [a for _, a in asked]})
    write_features(out / "regions.safetensors", photos_of(data, share))
    files: dict[str, SplitFiles] = official_files(questions) | {"val": official_files(subset)["val"]}
    print(prepare(files, [out / "regions.safetensors"], prepared, skip_missing=share > 1)["questions"], flush=True)
    (out / "regions.safetensors").unlink()  # the prepared folder has its own
    write_text(out / "done", "")


def photos_of(data: Path, share: int) -> Iterator[PhotoFeatures]:
    """Yield the regions of one of ``share`` photos, or of all, with 134 features each; photos at full size last."""
    arrays = _arrays(data / "vqa2-photos" / "features_picodet_256px.npz")
    components = arrays["features"] * arrays["features_scale"] + arrays["features_offset"]
    stops = np.cumsum(arrays["num_boxes"], dtype=np.int64)
    for row in range(0, len(stops), share):
        rows = slice(int(stops[row]) - int(arrays["num_boxes"][row]), int(stops[row]))
        scores = np.zeros((rows.stop - rows.start, CATEGORIES), np.float32)
        np.put_along_axis(scores, arrays["top_categories"][rows].astype(np.int64), arrays["top_scores"][rows] / 255, 1)
        boxes = (arrays["boxes"][rows] / 65_535).astype(np.float32)
        yield _photo(str(arrays["image_ids"][row]), (SIZE, SIZE), boxes, scores, components[rows])
    for split in ("val", "train") if (data / "coco-vqa").exists() else ():
        arrays = _arrays(data / "coco-vqa" / f"features_picodet_{split}.npz")
        stops = np.cumsum(arrays["num_boxes"], dtype=np.int64)
        for row, (image_id, size) in enumerate(zip(arrays["image_ids"], arrays["sizes_wh"].tolist(), strict=True)):
            rows = slice(int(stops[row]) - int(arrays["num_boxes"][row]), int(stops[row]))
            boxes, scores = arrays["boxes_xyxy"][rows] / np.tile(np.float32(size), 2), arrays["scores"][rows]
            missing = np.zeros((len(boxes), COMPONENTS), np.float32)  # their components are others
            yield _photo(f"{WHOLE}{image_id}", tuple(size), boxes, scores.astype(np.float32), missing)
            best = scores[:MOST_REGIONS].astype(np.float32)  # as if the photo were one of VQA v2's
            best[best < -np.partition(-best, SCORES_OF_A_REGION - 1, 1)[:, SCORES_OF_A_REGION - 1, None]] = 0
            few = slice(len(best))
            yield _photo(str(image_id), (SIZE, SIZE), boxes[few], best, missing[few])


def _photo(
    image_id: str,
    size_wh: tuple[float, float],
    boxes: NDArray[np.float32],
    scores: NDArray[np.float32],
    components: NDArray[np.float32],
) -> PhotoFeatures:
    """Return a photo from boxes as shares of its size; one without any region is a region of its own."""
    if not len(boxes):
        boxes, scores, components = (
            np.array([[0, 0, 1, 1]], np.float32),
            *(np.zeros((1, n), np.float32) for n in (CATEGORIES, COMPONENTS)),
        )
    places = np.concatenate((boxes, boxes[:, 2:] - boxes[:, :2]), 1)
    features = np.concatenate((scores, components, places), 1).astype(np.float32)
    return PhotoFeatures(image_id, size_wh, (boxes * np.tile(np.float32(size_wh), 2)).astype(np.float32), features)


def written_questions(photos: Sequence[int], inventory: dict[int, dict[int, int]]) -> Iterator[tuple[int, str, int]]:
    """Yield a counting question with its true count for each photo; the answer to one of four is 0."""
    random = np.random.default_rng(0)
    frequent = np.array([category for counts in inventory.values() for category in counts])
    for photo in photos:
        counts = inventory.get(photo, {})
        present, most = [*counts], max(counts, key=counts.__getitem__, default=0)
        category = int(random.choice(frequent))
        if present and random.random() < 0.75:
            category = most if random.random() < 0.5 else int(random.choice(present))
        wording = WORDINGS[int(random.integers(len(WORDINGS)))]
        yield photo, wording.format(plural(COCO_CATEGORIES[category])), counts.get(category, 0)


def read_inventory(path: Path) -> dict[int, dict[int, int]]:
    """Return how many objects of each category photos hold; a photo without any is not in it."""
    inventory: dict[int, dict[int, int]] = {}
    with gzip.open(path, "rt") as file:
        for row in csv.DictReader(file):
            inventory.setdefault(int(row["image_id"]), {})[int(row["category_id"])] = int(row["count"])
    return inventory


class Experiment:
    """The prepared data, what the rows learn from and what they answer.

    ``split`` is ``final``, where the validation questions are answered, or ``selection``, where those about a fifth of
    the training photos are, which no row learns from then.
    """

    def __init__(self, data: Path, prepared: Path, split: str) -> None:
        self.split = split
        self.store = FeatureStore.open(prepared / PHOTOS)
        self.vocabulary = Vocabulary.load(prepared / VOCABULARY)
        self.train, train_records = open_questions(prepared, "train", self.store), open_records(prepared, "train")
        self.words = CategoryWords.of(COCO_CATEGORIES)
        self.inventory = read_inventory(data / "vqa2-subset" / "object_inventory.csv.gz")
        self.train_counts = self._true_counts(train_records)
        held = np.random.default_rng(0).integers(FOLDS, size=len(self.store.image_ids)) == 0
        self.is_learned = np.ones(len(self.train), np.bool_) if split == "final" else ~held[self.train.images]
        if split == "final":
            self.scored = self._scored(
                open_questions(prepared, "val", self.store), open_records(prepared, "val"), open_pairs(prepared, "val")
            )
            self.scored_counts = self._true_counts(self.scored.records)
        else:
            people = self._from(("human",)) & ~self.is_learned
            records = [record for record, chosen in zip(train_records, people, strict=True) if chosen]
            self.scored = self._scored(self.train.at(people), records, np.empty((0, 2), np.int64))
            self.scored_counts = self.train_counts[people]
        self.others = other_records(data, self.store)
        tallyqa = self._from(("tallyqa",)) & ~self.is_learned  # in the selection, about photos that are not seen
        self.others["tallyqa_256px"] = [r for r, chosen in zip(train_records, tallyqa, strict=True) if chosen]

    def learned_by(self, row: Learned) -> TrainingData:
        """Return the questions and regions that a row learns from."""
        part = np.random.default_rng(1).random(len(self.store.image_ids)) < row.share
        chosen = self.is_learned & self._from(row.sources) & part[self.train.images]
        questions, words = self.train.at(chosen), self.vocabulary.words
        if row.true_counts:
            questions = with_counts(questions, self.train_counts[chosen], len(words))
            words = (*words, *(f"counted{number}" for number in range(LARGEST_GIVEN + 1)))
        return TrainingData(questions, changed(self.store, row), words, self.vocabulary.answers)

    def scored_by(self, row: Learned, data: TrainingData) -> EncodedQuestions:
        """Return the scored questions as a row reads them."""
        questions = self.scored.questions
        if row.true_counts:
            questions = with_counts(questions, self.scored_counts, len(self.vocabulary.words))
        return as_read(questions, data)

    def others_by(self, row: Learned, data: TrainingData) -> dict[str, EncodedQuestions]:
        """Return other counting questions as a row reads them, by the names of `others`."""
        found = {}
        for name, records in self.others.items():
            whole = WHOLE if "whole" in row.sources and name != "tallyqa_256px" else ""
            words, lengths = encode_words(self.vocabulary, records)
            ids = np.array([record.question_id for record in records], np.int64)
            images = self.store.rows_of([whole + record.image_id for record in records])
            found[name] = as_read(EncodedQuestions(ids, images, words, lengths, None), data)
        return found

    def _from(self, sources: Sequence[str]) -> NDArray[np.bool_]:
        ids = self.train.question_ids
        parts = [(ids >= first) & (ids < stop) for first, stop in (SOURCES[name] for name in sources)]
        return np.logical_or.reduce(parts)

    def _scored(self, questions: EncodedQuestions, records: list[QuestionRecord], pairs: NDArray[np.int64]) -> Scored:
        named = [self.words.named(record.text) or () for record in records]
        places = [COCO_CATEGORY_IDS.index(*one) if len(one) == 1 else -1 for one in named]
        return Scored(questions, records, pairs, np.array(places, np.int64))

    def _true_counts(self, records: Sequence[QuestionRecord]) -> NDArray[np.int64]:
        """Return how many objects of what questions name their photos hold, ``[Q]``; -1 if they name nothing."""
        counts = []
        for record in records:
            named = self.words.named(record.text) if record.image_id.isdigit() else None
            held = {} if named is None else self.inventory.get(int(record.image_id), {})
            counts.append(-1 if named is None else sum(held.get(category, 0) for category in named))
        return np.array(counts, np.int64)


def other_records(data: Path, store: FeatureStore) -> dict[str, list[QuestionRecord]]:
    """Return questions about COCO's 1,000 validation photos: TallyQA's, and those that VQA v2's people asked."""
    if not (data / "coco-vqa").exists():
        return {}
    files = official_files(data / "coco-vqa")["val"]
    annotations = data / "coco-vqa" / _named("mscoco_{}_annotations", "val")
    source = {one["question_id"]: one["source"] for one in _read(annotations, "annotations")}
    people = [one for one in read_records(files.questions, files.annotations) if source[one.question_id] == "human"]
    found = {"tallyqa_val": tallyqa_records(data, "val"), "vqa_val": people}
    return {name: [one for one in records if one.image_id in store.row_of] for name, records in found.items()}


def tallyqa_records(data: Path, part: str) -> list[QuestionRecord]:
    """Return TallyQA's questions with their one answer given ten times."""
    return [
        QuestionRecord(TALLYQA_FROM + number, str(photo), text, (str(answer),) * 10, "number")
        for number, (photo, text, answer) in enumerate(_tallyqa(data, part))
    ]


def as_read(questions: EncodedQuestions, data: TrainingData) -> EncodedQuestions:
    """Return questions in which words that a row has not learned are unknown."""
    known = np.zeros(len(data.words) + 1, np.bool_)
    known[data.questions.words] = True
    return replace(questions, words=np.where(known[questions.words], questions.words, 0))


def with_counts(questions: EncodedQuestions, counts: NDArray[np.int64], words: int) -> EncodedQuestions:
    """Return questions with a true count as their last word, of index ``words + 1`` for 0; none where it is -1."""
    given = np.pad(questions.words, ((0, 0), (0, 1)))
    rows = np.flatnonzero(counts >= 0)
    given[rows, questions.lengths[rows]] = words + 1 + counts[rows].clip(max=LARGEST_GIVEN)
    return replace(questions, words=given, lengths=questions.lengths + (counts >= 0))


def changed(store: FeatureStore, row: Learned) -> FeatureStore:
    """Return the regions with the columns that a row uses, and without those that it leaves out."""
    factors = np.repeat(np.float32([row.scores, row.components, row.places]), (CATEGORIES, COMPONENTS, PLACES))
    # Photos at full size have more regions, which would be padding of the others.
    kept = np.array(["whole" in row.sources or not image_id.startswith(WHOLE) for image_id in store.image_ids])
    numbers = store.num_boxes
    chosen = np.repeat(kept, numbers)
    if row.overlap < 1:
        chosen &= np.concatenate([_apart(store, n, row.overlap) for n in range(len(store.image_ids))])
    owner = np.repeat(np.arange(len(numbers)), numbers)
    offsets = np.concatenate(([0], np.bincount(owner[chosen], minlength=len(numbers)).cumsum()))
    columns = np.flatnonzero(factors)
    features = np.concatenate(store.features)[chosen]
    used = (features[:, columns] * factors[columns]).astype(np.float16) if len(columns) else 0 * features[:, :1]
    return FeatureStore(store.image_ids, store.sizes_wh, offsets, store.boxes_xyxy[chosen], [used])


def _apart(store: FeatureStore, photo: int, overlap: float) -> NDArray[np.bool_]:
    boxes = store.boxes_of(photo)
    return nms(boxes, np.linspace(1, 0, len(boxes), dtype=np.float32), [overlap])[0]  # the best come first


def _official(folder: Path, split: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the questions of a split with their annotations."""
    annotations = {a["question_id"]: a for a in _read(folder / _named("mscoco_{}_annotations", split), "annotations")}
    questions = _read(folder / _named("OpenEnded_mscoco_{}_questions", split), "questions")
    return [(question, annotations[question["question_id"]]) for question in questions]


def _question(question_id: int, photo: int | str, text: str, answer: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a counting question with its annotation in the official form."""
    ten = [{"answer": str(answer)}] * 10
    question = {"question_id": question_id, "image_id": photo, "question": text}
    return question, {"question_id": question_id, "answer_type": "number", "question_type": "how many", "answers": ten}


def _tallyqa(data: Path, split: str) -> list[tuple[int, str, int]]:
    with gzip.open(data / "tallyqa" / f"questions_{split}.csv.gz", "rt") as file:
        return [(int(row["image_id"]), row["question"], int(row["answer"])) for row in csv.DictReader(file)]


def _named(name: str, split: str) -> str:
    return f"v2_{name.format(YEARS[split])}.json.gz"


def _read(path: Path, records: str) -> Any:
    with open_binary(path) as file:
        return json.load(file)[records]


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}
