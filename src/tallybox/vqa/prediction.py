"""`tallybox vqa predict`: the answers of a run to the questions of a split, and the results file of the test server."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tallybox.errors import InputError
from tallybox.files import write_text
from tallybox.runs import read_config
from tallybox.vqa.batches import ResidentExamples, StreamedExamples, load_examples
from tallybox.vqa.checkpoints import Checkpoint, load_model
from tallybox.vqa.data.splits import EncodedQuestions, encode_words, open_questions, open_records
from tallybox.vqa.data.store import PHOTOS, FeatureStore
from tallybox.vqa.data.vocabulary import VOCABULARY, Vocabulary
from tallybox.vqa.model import VqaModel
from tallybox.vqa.published import load_published
from tallybox.vqa.steps import autocast, compute_dtype

BATCH_QUESTIONS = 512
PUBLISHED_SUFFIXES = (".pth", ".pt")

OnProgress = Callable[[int, int], None]


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
    model, checkpoint = load_run(run, name)
    questions, store = open_for_model(checkpoint, folder, split)
    return checkpoint, predict(model, checkpoint, questions, store, device=device, on_progress=on_progress)


def open_for_model(checkpoint: Checkpoint, folder: Path, split: str) -> tuple[EncodedQuestions, FeatureStore]:
    """Open a split's questions, in the word indices of a model, and the photos of a prepared folder.

    The model's vocabulary may differ from the folder's, as that of a published file does.
    """
    store = FeatureStore.open(folder / PHOTOS)
    questions = open_questions(folder, split, store)
    if store.width != checkpoint.sizes.features:
        raise InputError(
            f"The model was trained on {checkpoint.sizes.features} features a proposal, but {folder} has {store.width}."
        )
    if Vocabulary.load(folder / VOCABULARY).words != checkpoint.words:
        words, lengths = encode_words(Vocabulary(checkpoint.words, checkpoint.answers), open_records(folder, split))
        questions = replace(questions, words=words, lengths=lengths, answers=None)
    return questions, store


def predict(
    model: VqaModel,
    checkpoint: Checkpoint,
    questions: EncodedQuestions,
    store: FeatureStore,
    *,
    device: torch.device,
    on_progress: OnProgress = lambda done, total: None,
) -> dict[int, str]:
    """Return a model's most probable answer to each question, by question id."""
    dtype = compute_dtype(checkpoint.config.training.precision, device)
    examples = load_examples(questions, store, device, dtype, checkpoint.config.model.feature_length)
    return answer(model, checkpoint, examples, on_progress)


def answer(
    model: VqaModel,
    checkpoint: Checkpoint,
    examples: ResidentExamples | StreamedExamples,
    on_progress: OnProgress = lambda done, total: None,
) -> dict[int, str]:
    """Return a model's most probable answer to each question of examples, by question id."""
    questions, device, dtype = examples.questions, examples.device, examples.dtype
    model = model.to(device, torch.float64 if dtype == torch.float64 else torch.float32).eval()
    rows = np.arange(len(questions))
    order = (rows[first : first + BATCH_QUESTIONS] for first in range(0, len(rows), BATCH_QUESTIONS))
    indices: list[int] = []
    with torch.inference_mode(), autocast(dtype, device):
        for labelled in examples.batches(order):
            indices += model(labelled.batch)[0].argmax(-1).tolist()
            on_progress(len(indices), len(questions))
    answers = (checkpoint.answers[index] for index in indices)
    return dict(zip(questions.question_ids.tolist(), answers, strict=True))


def load_run(run: Path, name: str | None = None) -> tuple[VqaModel, Checkpoint]:
    """Return the model of a run, or of a file of the published code; ``name`` is the run's component of your own."""
    return load_published(run) if run.suffix in PUBLISHED_SUFFIXES else load_model(run, name)


def prepared_folder(run: Path, prepared: Path | None) -> Path:
    """Return ``prepared`` if given, else the prepared folder that a run was trained from."""
    if prepared is not None:
        return prepared
    source = run_settings(run).get("prepared")
    if source is None:
        raise InputError(f"{run} has no config.json with its prepared folder; name the folder with --prepared")
    if not Path(source).exists():
        raise InputError(f"{run} was trained from {source}, which is not there; name the folder with --prepared")
    return Path(source)


def run_settings(run: Path) -> dict[str, Any]:
    """Return the config.json of a run, given its folder or a checkpoint in it; empty for a checkpoint alone."""
    folder = run if run.is_dir() else run.parent
    # A config.json beside a file of the published code is not of tallybox.
    return {} if run.suffix in PUBLISHED_SUFFIXES else read_config(folder)


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
