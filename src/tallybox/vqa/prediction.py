"""`tallybox vqa predict` and `evaluate`: the answers of runs to the questions of a split, and their scores."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch

from tallybox.errors import InputError
from tallybox.files import write_text
from tallybox.runs import read_config
from tallybox.vqa.batches import Examples, load_examples
from tallybox.vqa.checkpoints import Checkpoint, load_model
from tallybox.vqa.config import MODELS, VqaConfig
from tallybox.vqa.data.questions import JOINED_SPLITS
from tallybox.vqa.data.splits import EncodedQuestions, encode_words, open_pairs, open_questions, open_records
from tallybox.vqa.data.store import PHOTOS, FeatureStore
from tallybox.vqa.data.vocabulary import VOCABULARY, Vocabulary
from tallybox.vqa.model import VqaModel
from tallybox.vqa.published import PUBLISHED_SUFFIXES
from tallybox.vqa.scoring import Scorer
from tallybox.vqa.steps import autocast, compute_dtype

BATCH_QUESTIONS = 512

OnProgress = Callable[[int, int], None]  # how much is done, of how much
Scores = dict[str, float]  # by the names of `scoring.KEYS` and `COUNT_KEYS`


def predict_run(
    run: Path,
    *,
    split: str,
    device: torch.device,
    prepared: Path | None = None,
    name: str | None = None,
    on_progress: OnProgress = lambda done, total: None,
) -> tuple[Checkpoint, dict[int, str]]:
    """Return a run's checkpoint and its answers to the questions of a split, by question id."""
    folder = prepared_folder(run, prepared)
    model, checkpoint = load_model(run, name)
    examples = examples_of(checkpoint.config, *open_for_model(checkpoint, folder, split), device)
    return checkpoint, answer(model, checkpoint.answers, examples, on_progress)


def open_for_model(checkpoint: Checkpoint, folder: Path, split: str) -> tuple[EncodedQuestions, FeatureStore]:
    """Open a split's questions, in the word indices of a model, and the photos of a prepared folder.

    The model's vocabulary may differ from the folder's, as that of a published file does.
    """
    store = FeatureStore.open(folder / PHOTOS)
    questions = open_questions(folder, split, store)
    if store.width != checkpoint.sizes.features:
        raise InputError(f"{folder} has {store.width} features a proposal, the model {checkpoint.sizes.features}.")
    if Vocabulary.load(folder / VOCABULARY).words != checkpoint.words:
        words, lengths = encode_words(Vocabulary(checkpoint.words, checkpoint.answers), open_records(folder, split))
        questions = replace(questions, words=words, lengths=lengths, answers=None)
    return questions, store


def examples_of(config: VqaConfig, questions: EncodedQuestions, store: FeatureStore, device: torch.device) -> Examples:
    """Return questions as a model reads them: its precision, its length of features."""
    dtype = compute_dtype(config.training.precision, device)
    return load_examples(questions, store, device, dtype, config.model.feature_length)


def answer(
    model: VqaModel, texts: Sequence[str], examples: Examples, on_progress: OnProgress = lambda done, total: None
) -> dict[int, str]:
    """Return a model's most probable answer, one of ``texts``, to each question of examples, by question id."""
    questions, device, dtype = examples.questions, examples.device, examples.dtype
    model = model.to(device, torch.float64 if dtype == torch.float64 else torch.float32).eval()
    order = np.split(np.arange(len(questions)), range(BATCH_QUESTIONS, len(questions), BATCH_QUESTIONS))
    indices: list[int] = []
    with torch.inference_mode(), autocast(dtype, device):
        for labelled in examples.batches(order):
            indices += model(labelled.batch)[0].argmax(-1).tolist()
            on_progress(len(indices), len(questions))
    return dict(zip(questions.question_ids.tolist(), (texts[index] for index in indices), strict=True))


def prepared_folder(run: Path, prepared: Path | None) -> Path:
    """Return ``prepared`` if given, else the prepared folder that a run was trained from."""
    source = prepared or run_settings(run).get("prepared")
    if source is None or not Path(source).exists():
        raise InputError(f"{run}: its prepared folder ({source or 'unknown'}) is not there; name one with --prepared")
    return Path(source)


def run_settings(run: Path) -> dict[str, Any]:
    """Return the config.json of a run, given its folder or a checkpoint in it; empty for a checkpoint alone."""
    # A config.json beside a file of the published code is not of tallybox.
    return {} if run.suffix in PUBLISHED_SUFFIXES else read_config(run if run.is_dir() else run.parent)


def read_answers(path: str | Path) -> dict[int, str]:
    """Read a results file of the test server: answers by question id."""
    try:
        results = json.loads(Path(path).read_text())
        return {int(result["question_id"]): str(result["answer"]) for result in results}
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"Cannot read {path} as a list of question_id and answer: {error}") from None


def write_results(predictions: dict[int, str], path: Path) -> None:
    """Write the results file of the test server: a JSON array of question ids with answers."""
    results = [{"question_id": question_id, "answer": answer} for question_id, answer in predictions.items()]
    write_text(path, json.dumps(results) + "\n")


def evaluate_runs(
    runs: Sequence[Path],
    *,
    split: str,
    device: torch.device,
    prepared: Path | None = None,
    name: str | None = None,
    on_progress: Callable[[str, int, int], None] = lambda run, done, total: None,
) -> dict[str, list[Scores]]:
    """Score runs on a split of the folder they were trained from, or of another; by model, in the paper's order.

    Runs of one model, such as those of several seeds, are listed together. ``name`` is the component of your own that
    runs use.
    """
    scores: dict[str, list[Scores]] = {model: [] for model in MODELS}
    for run in runs:
        folder = prepared_folder(run, prepared)
        scorer = Scorer(open_records(folder, split), open_pairs(folder, split))
        show = partial(on_progress, str(run))
        found, answers = predict_run(run, split=split, device=device, prepared=folder, name=name, on_progress=show)
        scores.setdefault(found.config.model.name, []).append(scorer.scores(answers))
    return {model: of_runs for model, of_runs in scores.items() if of_runs}


def is_trained_on(run: Path, split: str) -> bool:
    """Return whether a run was trained on a split, by its config.json."""
    learned = run_settings(run).get("split")
    return split in (learned, *JOINED_SPLITS.get(str(learned), ()))


def summarise(scores: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Return mean scores by model, ready for JSON, with sample deviations if there are several runs.

    The scores of a single model are also under "model".
    """
    summary: dict[str, Any] = {}
    for name, runs in scores.items():
        values = {key: [run[key] for run in runs] for key in runs[0] if all(key in run for run in runs)}
        summary[name] = {key: fmean(of_runs) for key, of_runs in values.items()} | {"runs": len(runs)}
        if len(runs) > 1:
            summary[name]["deviation"] = {key: stdev(of_runs) for key, of_runs in values.items()}
    if len(summary) == 1:
        summary["model"] = next(iter(summary.values()))
    return summary


def format_score(values: Sequence[float]) -> str:
    """Return the scores of several runs as "mean±deviation", of a single run as its score.

    >>> format_score([44.6, 44.7, 44.8, 44.9]), format_score([64.0]), format_score([])
    ('44.75±0.1', '64.00', '–')
    """
    if not values:
        return "–"
    return f"{fmean(values):.2f}" + (f"±{stdev(values):.1f}" if len(values) > 1 else "")
