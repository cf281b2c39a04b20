"""Make the model of `tallybox ask` again: its data, its training, its temperature.

    python research/ask_model.py ../shared/data runs/ask --device cuda    # on one CPU core more than an hour

It needs nothing else than `instance_questions.py`, `written_questions.py`, `category_words.py`,
`supervise_attention.py` and `calibration.py` of this folder, and `configs/vqa_ask.toml`. The folder given holds
`coco-vqa` (regions of photos; questions of VQA v2 and GVTBench) and `coco-count` (COCO instances: further questions are
written from them, and attention is supervised by their boxes). Two photos that the documentation shows answers about,
samples of the package, are not learned from.

Logits are divided by a temperature. It is fitted to models of the same configuration that learned from four fifths of
the training photos, on the questions about the other fifth: no validation photo takes part. The same command goes on
after an interruption; it writes `model/checkpoint.safetensors`, which is
`src/tallybox/vqa/models/photos_presence.safetensors`.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from calibration import calibration_error, fit_temperature, is_right
from instance_questions import simulate_from_instances
from supervise_attention import supervise
from torch import Tensor
from written_questions import join

from tallybox.devices import device_or_default
from tallybox.vqa.batches import TrainingData, load_examples, open_training_data
from tallybox.vqa.checkpoints import load_model, write_checkpoint
from tallybox.vqa.config import VqaConfig, read_configuration
from tallybox.vqa.data.official import official_files
from tallybox.vqa.data.prepare import prepare
from tallybox.vqa.data.splits import EncodedQuestions
from tallybox.vqa.data.store import FeatureStore, PhotoFeatures, write_features
from tallybox.vqa.model import VqaModel
from tallybox.vqa.prediction import BATCH_QUESTIONS
from tallybox.vqa.steps import mean_accuracy
from tallybox.vqa.training import train

CONFIG = Path(__file__).parent.parent / "configs" / "vqa_ask.toml"
SPLITS = ("train", "val")
SAMPLES = frozenset({423617, 475678})  # buses in the rain, a lobby with suitcases; the third is not in the data
FOLDS = 5
HELD_OUT_SEEDS = range(4)


def photos_of(arrays: Path) -> Iterator[PhotoFeatures]:
    """Yield the photos of a file of features as arrays."""
    with np.load(arrays) as file:
        ends = file["num_boxes"].cumsum()
        every = zip(file["image_ids"].tolist(), file["sizes_wh"].tolist(), ends - file["num_boxes"], ends, strict=True)
        boxes, scores = file["boxes_xyxy"], file["scores"]
        for image_id, (width, height), first, stop in every:
            yield PhotoFeatures(str(image_id), (width, height), boxes[first:stop], scores[first:stop])


def prepare_data(data: Path, out: Path) -> Path:
    """Write questions and features, prepare them, supervise attention; return the prepared folder."""
    prepared, features = out / "prepared", out / "features.safetensors"
    for split in SPLITS:
        simulate_from_instances(data / "coco-count" / f"instances_{split}.json.gz", out / "written", split=split)
        join(data / "coco-vqa", out / "written", out / "questions", split, without_photos=SAMPLES)
    if not features.exists():
        arrays = [data / "coco-vqa" / f"features_picodet_{split}.npz" for split in SPLITS]
        write_features(features, (photo for path in arrays for photo in photos_of(path)))
    prepare(official_files(out / "questions"), [features], prepared)
    supervise(prepared, [data / "coco-count" / "instances_train.json.gz"])
    return prepared


def configuration(seed: int) -> VqaConfig:
    """Return the values to train with; a graph of each step pays only for longer runs."""
    return read_configuration(CONFIG, model={"name": "presence"}, training={"seed": seed, "fast": False})


def temperature_of(data: TrainingData, out: Path, device: torch.device) -> float:
    """Return the temperature that fits models which have not seen a fifth of the training photos."""
    is_held = data.questions.images % FOLDS == FOLDS - 1
    held, others = data.questions.at(is_held), replace(data, questions=data.questions.at(~is_held))
    logits = []
    for seed in HELD_OUT_SEEDS:
        run = out / f"held-out-{seed}"
        train(others, run, configuration(seed), device=device)
        logits.append(logits_of(load_model(run)[0], held, data.store))
    every, answers = torch.cat(logits), torch.from_numpy(held.answers).repeat(len(logits), 1)
    temperature = round(fit_temperature(every, answers), 3)
    print(f"{len(logits)} models, {len(every)} answers, accuracy {100 * mean_accuracy(every, answers):.1f} %")
    for divided_by in (1.0, temperature):
        best = (every / divided_by).softmax(-1).max(-1)
        error = calibration_error(best.values, is_right(every, answers))
        print(f"temperature {divided_by}: calibration error {error:.4f}")
    return temperature


def logits_of(model: VqaModel, questions: EncodedQuestions, store: FeatureStore) -> Tensor:
    """Return a model's logits of the answers to questions, ``[Q, K]``."""
    examples = load_examples(questions, store, torch.device("cpu"), torch.float32, model.config.feature_length)
    order = np.array_split(np.arange(len(questions)), -(-len(questions) // BATCH_QUESTIONS))
    with torch.inference_mode():
        return torch.cat([model(labelled.batch)[0] for labelled in examples.batches(order)])


def half_precision(model: VqaModel) -> Iterator[tuple[str, Tensor]]:
    """Yield a model's tensors for a small checkpoint: its large matrices halved, the count component as it is."""
    for name, value in model.state_dict().items():
        is_large = value.dim() > 1 and not name.startswith("count.")
        yield f"model.{name}", value.half() if is_large else value


def main() -> None:
    """Prepare, train, calibrate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device")
    given = parser.parse_args()
    device = device_or_default(given.device)
    data = open_training_data(prepare_data(given.data, given.out), "train")
    train(data, given.out / "trained", configuration(0), device=device)
    model, checkpoint = load_model(given.out / "trained")
    temperature = temperature_of(data, given.out, device)
    write_checkpoint(given.out / "model", replace(checkpoint, temperature=temperature), half_precision(model))


if __name__ == "__main__":
    main()
