"""Figures of a trained VQA model: curves, activations with the toy task's, examples."""

import collections
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from tallybox.activation import activation_knots
from tallybox.counter.module import Counter
from tallybox.errors import InputError
from tallybox.photos.images import read_photo
from tallybox.photos.sources import find_photos
from tallybox.plotting import BLUE, GREEN, GREY, ORANGE, PURPLE, draw_all, picture
from tallybox.runs import read_results
from tallybox.toy.figures import Results, draw_role, read_sweep
from tallybox.vqa.batches import StreamedExamples
from tallybox.vqa.checkpoints import Checkpoint
from tallybox.vqa.components import GlimpseCounter, PublishedGlimpseCounter
from tallybox.vqa.data.photos import photo_id
from tallybox.vqa.data.questions import QuestionRecord
from tallybox.vqa.data.splits import EncodedQuestions, open_records
from tallybox.vqa.data.store import FeatureStore
from tallybox.vqa.model import VqaModel
from tallybox.vqa.prediction import load_run, open_for_model, prepared_folder
from tallybox.vqa.scoring import true_count
from tallybox.vqa.validation import VALIDATION

# The toy task's activations are drawn for noise near these values, as in the paper's last figure of activations.
TOY_NOISE = {0.4: GREEN, 0.7: ORANGE, 1.0: PURPLE}
NEAR = 0.025  # at most this far away
PIXELS_OF_A_PHOTO = 500  # of its longer side
EXAMPLE_COUNTS = range(1, 7)  # an example for each true count
YELLOW = "#F0E442"  # of the same palette, seen better on photos
MATRICES = {"A": "relevance", "D": "distance", "C": "count_matrix"}
SCORES = {"all": GREY, "number": ORANGE, "count": BLUE}  # the scores that have a curve


def draw_run_figures(
    run: Path, out: Path, *, split: str, prepared: Path | None, toy: Path | None, photos: Path | None
) -> list[Path]:
    """Draw a run's figures into a folder; return the files."""
    model, _ = load_run(run)
    folder = run if run.is_dir() else run.parent
    log, validated = read_results(folder / "results.jsonl"), read_results(folder / VALIDATION)
    drawings: dict[str, Callable[[Path], None]] = {}
    if log:
        drawings["curves"] = partial(draw_learning_curves, log=log, validated=validated)
    if isinstance(model.count, GlimpseCounter) and isinstance(model.count.counter, Counter):
        trained = {"VQA": [activation_knots(model.count.counter.weight.detach()[0].double()).tolist()]}
        fixed, results = (None, []) if toy is None else read_sweep(toy)
        drawings["activations"] = partial(draw_trained_activations, trained=trained, toy=results, side_length=fixed)
        records = reversed(open_records(prepared_folder(run, prepared), split))
        first_of_count = {true_count(record): record.question_id for record in records}
        if question_ids := [first_of_count[count] for count in EXAMPLE_COUNTS if count in first_of_count]:
            examples = counting_examples(run, question_ids, split=split, prepared=prepared)
            drawings["examples"] = partial(draw_examples, with_photos(examples, photos))
    return draw_all(out, drawings)


def counting_examples(
    run: Path, question_ids: Sequence[int], *, split: str = "val", prepared: Path | None = None
) -> list[dict[str, Any]]:
    """Return the counter model's computation for counting questions of a prepared split, see `explained`."""
    model, checkpoint = load_run(run)
    folder = prepared_folder(run, prepared)
    (questions, store), records = open_for_model(checkpoint, folder, split), open_records(folder, split)
    return explained(model, checkpoint, questions, store, records, question_ids)


def explained(
    model: VqaModel,
    checkpoint: Checkpoint,
    questions: EncodedQuestions,
    store: FeatureStore,
    records: Sequence[QuestionRecord],
    question_ids: Sequence[int],
) -> list[dict[str, Any]]:
    """Return a counter model's computation for some of the questions, ready for JSON.

    Each has ``question``, ``question_id``, ``image_id``, ``size_wh``, the kept ``boxes`` (pixels) with their
    ``attention``, the matrices ``A``, ``D`` and ``C``, the ``count``, the ``prediction`` and the ``truth``, the most
    frequent answer.
    """
    if not (isinstance(model.count, GlimpseCounter) and isinstance(model.count.counter, Counter)):
        raise InputError(f"examples need a counter model, but got a {checkpoint.config.model.name} model")
    row_of = {record.question_id: row for row, record in enumerate(records)}
    rows = np.array([row_of[question_id] for question_id in question_ids])
    length = checkpoint.config.model.feature_length
    examples = StreamedExamples(questions, store, torch.device("cpu"), torch.float32, length)
    batch = model.padded(next(examples.batches([rows])).batch)
    with torch.no_grad():
        logits, glimpses = model(batch)
        trace: dict[str, Any]
        if isinstance(model.count, PublishedGlimpseCounter):
            kept, distance, quantities = model.count.quantities(glimpses, batch.boxes)
            trace = {**vars(quantities), **kept._asdict(), "distance": distance, "count": quantities.count.flatten()}
            trace["mask"] = torch.ones_like(kept.attention, dtype=torch.bool)
        else:
            trace = vars(
                model.count.counter.explain(model.count.log_odds(glimpses, batch.mask), batch.boxes, batch.mask)
            )
    described = []
    for index, row in enumerate(rows):
        record, real = records[row], trace["mask"][index]
        described.append(
            {
                "question": record.text,
                "question_id": record.question_id,
                "image_id": record.image_id,
                "size_wh": store.sizes_wh[questions.images[row]].tolist(),
                "boxes": trace["boxes"][index][real].tolist(),
                "attention": trace["attention"][index][real].tolist(),
                **{name: trace[key][index][real][:, real].tolist() for name, key in MATRICES.items()},
                "count": trace["count"][index].item(),
                "prediction": checkpoint.answers[int(logits[index].argmax())],
                "truth": None if record.answers is None else collections.Counter(record.answers).most_common(1)[0][0],
            }
        )
    return described


def draw_learning_curves(path: Path, log: Results, validated: Results) -> None:
    """Draw the loss by step, and the accuracy in training and scores on the validation questions."""
    with picture(path, 9, 3.4) as figure:
        loss, scores = figure.subplots(1, 2)
        steps = [line["step"] for line in log]
        loss.plot(steps, [line["loss"] for line in log], color=GREY)
        loss.set(title="loss in training", xlabel="steps")
        scores.plot(steps, [line["accuracy"] for line in log], color=GREY, ls=":", label="all, in training")
        for name, colour in SCORES.items():
            points = [(line["step"], line[name]) for line in validated if name in line]
            if points:
                scores.plot(*zip(*points, strict=True), color=colour, marker=".", label=f"{name}, validation")
        scores.set(title="VQA accuracy in percent", xlabel="steps")
        scores.legend()
        for axes in (loss, scores):
            axes.grid(alpha=0.3)


def draw_trained_activations(
    path: Path, trained: Mapping[str, Sequence[list[list[float]]]], toy: Results, side_length: float | None
) -> None:
    """Draw f1 … f8 of trained models (thick, by name) over those of the toy task at three levels of noise."""
    with picture(path, 10, 5.6) as figure:
        grid = figure.subplots(2, 4, sharex=True, sharey=True)
        styles = dict(zip(trained, ("-", "--"), strict=False))
        toy_lines = [
            (result["activations"], colour)
            for noise, colour in TOY_NOISE.items()
            for result in toy
            if result["side_length"] == side_length and abs(result["noise"] - noise) < NEAR
        ]
        for role, axes in enumerate(grid.flat):
            draw_role(axes, role, toy_lines, lw=0.6, alpha=0.7)
            for name, runs in trained.items():
                draw_role(axes, role, [(knots, "black") for knots in runs], lw=1.5, ls=styles[name], alpha=0.8)
        marks = [Line2D([], [], color="black", ls=styles[name], label=name) for name in trained]
        drawn = {colour for _, colour in toy_lines}
        marks += [Line2D([], [], color=c, label=f"toy, q ≈ {q:g}") for q, c in TOY_NOISE.items() if c in drawn]
        figure.legend(handles=marks, loc="outside lower center", ncols=len(marks))


def with_photos(examples: list[dict[str, Any]], folder: Path | None) -> list[dict[str, Any]]:
    """Return the examples with the files of their photos in a folder.

    A file's path from the folder is the photo's id, as `tallybox vqa features` takes it; else the file's name is.
    """
    if folder is None:
        return examples
    found = find_photos([folder])
    files = {photo_id(path.stem): path for path in found.values()} | {photo_id(name): found[name] for name in found}
    if not any(example["image_id"] in files for example in examples):
        raise InputError(f"{folder} has none of the questions' photos, for instance {examples[0]['image_id']}")
    return [example | {"photo": files.get(example["image_id"])} for example in examples]


def draw_examples(examples: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw a row for each example of `counting_examples`: its boxes, A, D and C, count and answers."""
    with picture(path, 11, 2.5 * len(examples)) as figure:
        rows = figure.subplots(len(examples), 5, width_ratios=(1.8, 1, 1, 1, 1.1), squeeze=False)
        for axes, example in zip(rows, examples, strict=True):
            draw_boxes(axes[0], example)
            for panel, name in zip(axes[1:4], MATRICES, strict=True):
                panel.imshow(example[name], cmap="gray", vmin=0, vmax=1)
                panel.set(title=name, xticks=[], yticks=[])
            truth = "unknown" if example["truth"] is None else example["truth"]
            lines = f"c = {example['count']:.2f}\n\npredicted: {example['prediction']}\nground truth: {truth}"
            axes[4].text(0, 0.5, lines, va="center", transform=axes[4].transAxes)
            axes[4].axis("off")


def draw_boxes(axes: Axes, example: Mapping[str, Any]) -> None:
    """Draw the boxes that the component kept, the stronger the more it attends to them, over the photo if known."""
    width, height = example["size_wh"]
    colour = BLUE
    if example.get("photo") is not None:
        colour = YELLOW
        photo = read_photo(example["photo"], reduced_to=PIXELS_OF_A_PHOTO).image
        axes.imshow(photo, extent=(0, width, height, 0), alpha=0.8)
    for (x1, y1, x2, y2), weight in zip(example["boxes"], example["attention"], strict=True):
        corner, size = (x1, y1), (x2 - x1, y2 - y1)
        axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=colour, linewidth=2, alpha=0.1 + 0.9 * weight))
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_visible(True)
    axes.set_title(example["question"])
