"""Figures of a trained VQA model: curves, activations with the toy task's, examples."""

import collections
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from tallybox import plotting
from tallybox.activation import activation_knots
from tallybox.counter.module import Counter
from tallybox.errors import InputError
from tallybox.photos.images import read_photo
from tallybox.photos.sources import find_photos
from tallybox.plotting import BLUE, GREEN, GREY, ORANGE, PURPLE, add_letters, add_scale, draw_all, panels, picture
from tallybox.runs import read_results
from tallybox.toy.figures import Results, draw_role, read_sweep
from tallybox.vqa.batches import StreamedExamples
from tallybox.vqa.checkpoints import Checkpoint, load_model
from tallybox.vqa.components import GlimpseCounter, PublishedGlimpseCounter
from tallybox.vqa.data.questions import QuestionRecord
from tallybox.vqa.data.splits import EncodedQuestions, open_records
from tallybox.vqa.data.store import FeatureStore, photo_id
from tallybox.vqa.model import VqaModel
from tallybox.vqa.prediction import open_for_model, prepared_folder
from tallybox.vqa.scoring import true_count
from tallybox.vqa.training import VALIDATION

# The toy task's activations are drawn for noise near these values, as in the paper's last figure of activations.
TOY_NOISE = {0.4: GREEN, 0.7: ORANGE, 1.0: PURPLE}
NEAR = 0.015  # at most this far away
PIXELS_OF_A_PHOTO = 500  # of its longer side
EXAMPLE_COUNTS = range(1, 7)  # an example for each true count
ON_PAPER = LinearSegmentedColormap.from_list("paper", ("#dbe7f3", "#5a9fd0", "#08458c"))
ON_PHOTOS = colormaps["plasma"]
LETTERS_IN_A_LINE = 30
MATRICES = {"A": "relevance", "D": "distance", "C": "count_matrix"}
SCORES = {"all": GREY, "number": ORANGE, "count": BLUE}  # the scores that have a curve


def draw_run_figures(
    run: Path, out: Path, *, split: str, prepared: Path | None, toy: Path | None, photos: Path | None, pdf: bool = False
) -> list[Path]:
    """Draw a run's figures into a folder; return the files."""
    model, checkpoint = load_model(run)
    folder = run if run.is_dir() else run.parent
    log, validated = read_results(folder / "results.jsonl"), read_results(folder / VALIDATION)
    drawings: dict[str, Callable[[Path], None]] = {}
    if log:
        drawings["curves"] = partial(draw_learning_curves, log=log, validated=validated)
    if isinstance(model.count, GlimpseCounter) and isinstance(model.count.counter, Counter):
        trained = {"VQA": [activation_knots(model.count.counter.weight.detach()[0].double()).tolist()]}
        fixed, results = (None, []) if toy is None else read_sweep(toy)
        drawings["activations"] = partial(draw_trained_activations, trained=trained, toy=results, side_length=fixed)
        source = prepared_folder(run, prepared)
        records = open_records(source, split)
        first_of_count = {true_count(record): record.question_id for record in reversed(records)}
        if question_ids := [first_of_count[count] for count in EXAMPLE_COUNTS if count in first_of_count]:
            examples = explained(model, checkpoint, *open_for_model(checkpoint, source, split), records, question_ids)
            drawings["examples"] = partial(draw_examples, examples=with_photos(examples, photos))
    return draw_all(out, drawings, pdf=pdf)


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
            odds = model.count.log_odds(glimpses, batch.mask)
            trace = vars(model.count.counter.explain(odds, batch.boxes, batch.mask))
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
    with picture(path, plotting.WIDE, 2.6) as figure:
        loss, scores = axes = panels(figure, 1, 2)
        steps = [line["step"] for line in log]
        loss.plot(steps, [line["loss"] for line in log], color=GREY)
        loss.set(title="Training", xlabel="steps", ylabel="loss")
        scores.plot(steps, [line["accuracy"] for line in log], color=GREY, ls=":", label="all, in training")
        for name, colour in SCORES.items():
            points = [(line["step"], line[name]) for line in validated if name in line]
            if points:
                scores.plot(*zip(*points, strict=True), color=colour, marker=".", label=f"{name}, validation")
        scores.set(title="Answers", xlabel="steps", ylabel="VQA accuracy, %")
        figure.legend(loc="outside lower center", ncols=2, labelcolor="linecolor")
        add_letters(axes)


def draw_trained_activations(
    path: Path, trained: Mapping[str, Sequence[list[list[float]]]], toy: Results, side_length: float | None
) -> None:
    """Draw f1 … f8 of trained models (thick, by name) over those of the toy task at three levels of noise."""
    ink, styles = plotting.STYLE.get("text.color", "black"), dict(zip(trained, ("-", (0, (2, 1))), strict=False))
    at_length = [result for result in toy if result["side_length"] == side_length]
    near = {q: [one["activations"] for one in at_length if abs(one["noise"] - q) < NEAR] for q in TOY_NOISE}
    with picture(path, plotting.WIDE, 3.8) as figure:
        grid = panels(figure, 2, 4, narrow=2)
        for role, axes in enumerate(grid):
            for noise, components in near.items():
                draw_role(axes, role, components, color=TOY_NOISE[noise], lw=0.5, alpha=0.5)
            for name, runs in trained.items():
                draw_role(axes, role, runs, color=ink, lw=1, ls=styles[name])
        add_letters(grid, size=7)
        marks = [Line2D([], [], color=ink, lw=1, ls=styles[name], label=name) for name in trained]
        marks += [Line2D([], [], color=TOY_NOISE[q], label=rf"toy, $q \approx$ {q:g}") for q in near if near[q]]
        columns = len(marks) if figure.get_figwidth() > plotting.NARROW else 2
        figure.legend(handles=marks, loc="outside lower center", ncols=columns)


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


def draw_examples(path: Path, examples: Sequence[Mapping[str, Any]]) -> None:
    """Draw each example of `explained`: its boxes, A, D and C, count and answers; three in a row."""
    columns = 1 if path.stem.endswith("-narrow") else min(len(examples), 3)
    rows = -(-len(examples) // columns)
    colours = ON_PHOTOS if any(example.get("photo") for example in examples) else ON_PAPER
    with picture(path, plotting.WIDE, 3 * rows) as figure:
        grid = figure.add_gridspec(2 * rows, 3 * columns, height_ratios=(2.6, 1) * rows, hspace=0.1)
        for number, example in enumerate(examples):
            row, column = 2 * (number // columns), 3 * (number % columns)
            draw_boxes(figure.add_subplot(grid[row, column : column + 3]), example, colours)
            for place, name in enumerate(MATRICES):
                axes = figure.add_subplot(grid[row + 1, column + place], xticks=[], yticks=[])
                axes.imshow(example[name], cmap=colours, vmin=0, vmax=1)
                axes.set_title(f"${name}$", loc="center", pad=2)
            figure.axes[-2].set_xlabel(f"count $c$ = {example['count']:.2f}")
        add_letters(figure.axes[::4], size=7.5)
        add_scale(figure, figure.axes, "attention, $A$, $D$, $C$", colours)


def draw_boxes(axes: Axes, example: Mapping[str, Any], colours: Colormap) -> None:
    """Draw the boxes that the component kept over the photo if known, with the question and the answer."""
    width, height = example["size_wh"]
    if example.get("photo") is not None:
        photo = read_photo(example["photo"], reduced_to=PIXELS_OF_A_PHOTO).image
        axes.imshow(photo, extent=(0, width, height, 0), alpha=0.8)
    for weight, (x1, y1, x2, y2) in sorted(zip(example["attention"], example["boxes"], strict=True)):
        axes.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, edgecolor=colours(weight), linewidth=1.4))
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal", anchor="N", xticks=[], yticks=[])
    axes.set(title=fill(example["question"], LETTERS_IN_A_LINE))
    axes.spines[:].set_visible(True)
    truth, prediction = example["truth"], example["prediction"]
    note = "" if truth is None else " (right)" if prediction == truth else f" (truth: {truth})"
    colour = GREY if truth is None else GREEN if prediction == truth else ORANGE
    axes.set_xlabel(f"answer: {prediction}{note}", color=colour, weight="bold")
