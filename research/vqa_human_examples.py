"""Draw the examples of docs/results/vqa from the kept counter of research/vqa_human.py; no GPU is needed.

    python research/vqa_human_examples.py ../shared/data runs/human docs/results/vqa    # 20 s

It draws `figures/examples.svg`: three scored questions with a right answer, three with a wrong one. They are not chosen
by hand: for each true count of 2, 3 and 4, the counting question whose id has the smallest SHA-256. Their photos may
not be shown. `figures/examples_photos.webp` and `figures/examples_photos-dark.webp` have the sample photos of the
package, with a question about each. The text between `<!-- examples -->` and `<!-- end -->` in README.md is written
anew.

With `--pdf FOLDER`, both figures are drawn for papers instead, 6.75 and 3.25 inches wide. The model is RUNS/counter-0;
`--model` names another counter. `--prepared` names the folder of prepared data if it is not RUNS/prepared; if there is
none, it is prepared there (25 s), from the same data as for the training.
"""

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from vqa_human import Run
from vqa_human_data import CATEGORIES, MOST_REGIONS, SCORES_OF_A_REGION, Experiment, as_read, prepare_all
from vqa_human_page import filled

import tallybox
from tallybox.files import write_text
from tallybox.photos.images import Photo
from tallybox.photos.picodet import PicoDet
from tallybox.vqa.batches import load_examples
from tallybox.vqa.checkpoints import load_model
from tallybox.vqa.data.questions import QuestionRecord
from tallybox.vqa.data.splits import EncodedQuestions, encode_words
from tallybox.vqa.data.store import FeatureStore
from tallybox.vqa.figures import draw_examples, explained
from tallybox.vqa.prediction import answer
from tallybox.vqa.regions import photo_features
from tallybox.vqa.scoring import all_scores, true_count

sys.path.append(str(Path(__file__).parent.parent / "docs"))
from house_style import DARK, LIGHT, inked, inter, shorten

TRUE_COUNTS = (2, 3, 4)
# COCO's ids of the sample photos, in their order, with a question and COCO's number of objects.
SAMPLES = {
    "423617": ("How many cars are there?", "4"),
    "214753": ("How many horses are there?", "2"),
    "475678": ("How many suitcases are there?", "12"),
}

PAGE = """\
The model is row {model}; the examples are not chosen by hand: for each true count of 2, 3 and 4, the counting
question whose id has the smallest SHA-256, among those with a right answer (top) and among those with a wrong one.
The model is right in {share:.0f} % of all {questions:,} counting questions. Boxes are the {objects} regions of
highest attention. *A*, *D* and *C* are the paper's matrices over them, *c* is the count. The photos may not be shown
here; their boxes are drawn in a square.

![Six examples: boxes, matrices A, D and C, count and answers](figures/examples.svg)

The same model on the three sample photos has {right} of three answers right.

![Three photos: boxes in the colours of their attention, matrices, answers](figures/examples_photos.webp#only-light)
![Three photos: boxes in the colours of their attention, matrices, answers](figures/examples_photos-dark.webp#only-dark)

Photos: Flickr 8195678412, 8392128987 and 3337847570 (COCO val2017), CC BY 2.0."""

Examples = list[dict[str, Any]]


class Kept:
    """A kept model and the data that it reads."""

    def __init__(self, folder: Path, experiment: Experiment) -> None:
        self.model, self.checkpoint = load_model(folder)
        row, _, seed = folder.name.rpartition("-")
        learned = Run(row, int(seed)).settings()[1]
        if not (learned.components or learned.places):
            learned = replace(learned, scores=1.0)  # the factor is in the weights
        self.experiment, self.learned, self.data = experiment, learned, experiment.learned_by(learned)
        self.questions = experiment.scored_by(learned, self.data)
        if self.checkpoint.words != tuple(self.data.words):
            raise SystemExit(f"{folder} was trained on other data than the prepared ones; see --prepared")

    def answer_all(self) -> tuple[list[QuestionRecord], dict[int, str]]:
        """Return the scored counting questions with the model's answers."""
        records = self.experiment.scored.records
        counting = self.questions.at(np.array([record.counts for record in records]))
        length = self.checkpoint.config.model.feature_length
        examples = load_examples(counting, self.data.store, torch.device("cpu"), torch.float32, length)
        return [record for record in records if record.counts], answer(self.model, self.checkpoint.answers, examples)

    def scored(self, records: Sequence[QuestionRecord], answers: Mapping[int, str]) -> Examples:
        """Return examples of right answers, and then as many of wrong ones."""
        ordered = sorted(
            (record for record in records if true_count(record) in TRUE_COUNTS),
            key=lambda one: hashlib.sha256(str(one.question_id).encode()).hexdigest(),
        )
        chosen: list[int] = []
        for is_right in (True, False):
            found = [one for one in ordered if (answers[one.question_id] == str(true_count(one))) == is_right]
            firsts = [next((one for one in found if true_count(one) == count), None) for count in TRUE_COUNTS]
            ids = [one.question_id for one in (*firsts, *found) if one is not None]
            chosen += [*dict.fromkeys(ids)][: len(TRUE_COUNTS)]
        every = self.experiment.scored.records
        return explained(self.model, self.checkpoint, self.questions, self.data.store, every, chosen)

    def samples(self) -> Examples:
        """Return examples about the sample photos, whose regions have scores only."""
        records = [
            QuestionRecord(number, photo, text, (truth,) * 10, "number")
            for number, (photo, (text, truth)) in enumerate(SAMPLES.items())
        ]
        words, lengths = encode_words(self.experiment.vocabulary, records)
        rows = np.arange(len(records))
        questions = as_read(EncodedQuestions(rows, rows, words, lengths, None), self.data)
        store = self.store_of([tallybox.read_photo(path) for path in tallybox.sample_photos()])
        found = explained(self.model, self.checkpoint, questions, store, records, rows.tolist())
        return [one | {"photo": path} for one, path in zip(found, tallybox.sample_photos(), strict=True)]

    def store_of(self, photos: Sequence[Photo]) -> FeatureStore:
        """Return the regions of photos: the best 16 with their six best scores, as those of the data."""
        regions = photo_features(PicoDet(), photos)
        features = []
        for one in regions:
            scores = one.features[:MOST_REGIONS].astype(np.float32)
            scores[scores < -np.partition(-scores, SCORES_OF_A_REGION - 1, 1)[:, SCORES_OF_A_REGION - 1, None]] = 0
            missing = self.data.store.width - CATEGORIES
            features.append(np.pad(self.learned.scores * scores, ((0, 0), (0, missing))).astype(np.float16))
        return FeatureStore(
            [*SAMPLES],
            np.array([photo.size_wh for photo in photos], np.float32),
            np.cumsum([0, *map(len, features)]),
            np.concatenate([one.boxes_xyxy[:MOST_REGIONS] for one in regions]),
            [np.concatenate(features)],
        )


def draw_webp(path: Path, examples: Sequence[dict[str, Any]], ink: str) -> None:
    """Draw examples with photos for a theme."""
    with tempfile.TemporaryDirectory() as folder, inked(ink):
        draw_examples(drawn := Path(folder) / "drawn.png", examples)
        with Image.open(drawn) as picture:
            picture.save(path, quality=80, method=6)


def main() -> None:
    """Draw the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("folder", type=Path, help="of the page")
    parser.add_argument("--model", default="counter-0")
    parser.add_argument("--prepared", type=Path, help="folder called prepared, if not in that of the runs")
    parser.add_argument("--pdf", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    prepared = given.prepared or given.runs / "prepared"
    if not prepared.exists():
        prepare_all(given.data, prepared.parent, 1)
    kept = Kept(given.runs / given.model, Experiment(given.data, prepared, "final"))
    records, answers = kept.answer_all()
    scored, samples = kept.scored(records, answers), kept.samples()
    figures = given.pdf or given.folder / "figures"
    with inter(), inked(LIGHT):
        for ending in (".pdf", "-narrow.pdf") if given.pdf else (".svg",):
            draw_examples(figures / f"examples{ending}", scored)
            shorten(figures / f"examples{ending}")
            if given.pdf:
                draw_examples(figures / f"examples_photos{ending}", samples)
        if given.pdf:
            return
        for name, ink in (("examples_photos.webp", LIGHT), ("examples_photos-dark.webp", DARK)):
            draw_webp(figures / name, samples, ink)
    text = PAGE.format(
        model=f"`{given.model.rpartition('-')[0]}`, seed {given.model.rpartition('-')[2]}",
        share=all_scores(answers, records, np.empty((0, 2), np.int64))["count"],
        questions=len(records),
        objects=kept.checkpoint.config.model.max_objects,
        right=sum(example["prediction"] == example["truth"] for example in samples),
    )
    page = given.folder / "README.md"
    write_text(page, filled(page.read_text(), {"examples": text}))


if __name__ == "__main__":
    main()
