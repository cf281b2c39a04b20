"""What is masking worth? The counter model with padding masked and with padding as published, on a simulated world.

    python research/vqa_padding.py docs/results/vqa/padding --seeds 12 --photos 4000 --device cuda --at-once 12

The simulated detector gives 24 to 28 proposals; here it gives up to MOST, the rest of them clutter, so that a photo is
padded by up to MOST - 24. Each model is trained with one sort of padding and answers with both. Every run is a line of
results.jsonl when it ends; the same command again makes the runs that are missing, and prints the table.
"""

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from tallybox.runs import append_results, open_run, read_results
from tallybox.vqa import demo
from tallybox.vqa.batches import open_training_data
from tallybox.vqa.checkpoints import load_model
from tallybox.vqa.config import Padding, VqaConfig
from tallybox.vqa.data.features import PhotoFeatures, read_tsv, write_tsv
from tallybox.vqa.data.prepare import official_files, prepare
from tallybox.vqa.data.splits import open_pairs, open_questions, open_records
from tallybox.vqa.evaluation import mean_and_deviation
from tallybox.vqa.model import VqaModel
from tallybox.vqa.prediction import predict
from tallybox.vqa.scoring import all_scores
from tallybox.vqa.simulation.simulate import FEATURES, simulate
from tallybox.vqa.simulation.world import CLUTTER, SIZE_WH, World, prototypes
from tallybox.vqa.training import train

COLUMNS = ("count", "count_2_or_more", "pair_count", "all")


def with_clutter(path: Path, world: World, most: int) -> Iterator[PhotoFeatures]:
    """Yield the photos of a TSV with further proposals of clutter, at random up to ``most`` in all."""
    random = np.random.default_rng([world.seed, 1])
    known = prototypes(world)
    clutter = np.stack([known[name] + known["background"] / 2 for name in CLUTTER])
    for photo, _ in read_tsv(path):
        extra = int(random.integers(0, most - len(photo.boxes_xyxy) + 1))
        shown = clutter[random.integers(len(CLUTTER), size=extra)]
        noise = random.normal(size=shown.shape) * world.noise / np.sqrt(world.features)
        corners = random.uniform(0, 0.8, (extra, 2)) * SIZE_WH
        sizes = random.uniform(40, 110, (extra, 2))
        boxes = np.concatenate((corners, np.minimum(corners + sizes, SIZE_WH)), 1)
        order = random.permutation(len(photo.boxes_xyxy) + extra)
        yield photo._replace(
            boxes_xyxy=np.concatenate((photo.boxes_xyxy, boxes)).astype(np.float32)[order],
            features=np.concatenate((photo.features, shown + noise)).astype(np.float32)[order],
        )


def prepare_world(folder: Path, world: World, most: int) -> Path:
    """Simulate and prepare the world, unless that is done."""
    files, prepared = folder / "files", folder / "prepared"
    if not (files / "with_clutter.tsv").exists():
        simulate(files, world)
        write_tsv(files / "unfinished.tsv", with_clutter(files / FEATURES, world, most))
        (files / "unfinished.tsv").rename(files / "with_clutter.tsv")
    prepare(official_files(files), [files / "with_clutter.tsv"], prepared)
    return prepared


def scores_with(run: Path, prepared: Path, padding: Padding, device: torch.device) -> dict[str, float]:
    """Score a trained model that answers with one sort of padding."""
    model, checkpoint = load_model(run)
    answering = VqaModel(replace(checkpoint.config.model, padding=padding), checkpoint.sizes)
    answering.load_state_dict(model.state_dict())
    data = open_training_data(prepared, "val")
    answers = predict(answering, checkpoint, open_questions(prepared, "val"), data.store, device=device)
    return all_scores(answers, open_records(prepared, "val"), open_pairs(prepared, "val"))


def configuration(padding: Padding, seed: int, epochs: int) -> VqaConfig:
    """The simulated world's small model and schedule; either sort of padding trains operation by operation."""
    small = demo.CONFIG
    training = replace(small.training, seed=seed, epochs=epochs, count_rate=1.0, fast=False)
    return VqaConfig(replace(small.model, padding=padding), training)


def table(results: list[dict[str, Any]]) -> str:
    """Return the scores by the padding that a model was trained with and the one that it answers with."""
    lines = [
        "| trained with | answers with | Count | counts from 2 | Pair count | All |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for trained in get_args(Padding):
        for answering in get_args(Padding):
            runs = [one["scores"][answering] for one in results if one["padding"] == trained]
            cells = []
            for key in COLUMNS:
                mean, deviation = mean_and_deviation([run[key] for run in runs])
                cells.append(f"{mean:.1f}" + ("" if deviation is None else f"±{deviation:.1f}"))
            lines.append(f"| {trained} | {answering} | {' | '.join(cells)} |")
    return "\n".join(lines)


def make(prepared: Path, padding: Padding, seed: int, epochs: int, device: torch.device) -> dict[str, Any]:
    """Train a model with one sort of padding, and score it with both."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train(
            open_training_data(prepared, "train"),
            run,
            configuration(padding, seed, epochs),
            device=device,
            curves=False,
        )
        scores = {other: scores_with(run, prepared, other, device) for other in get_args(Padding)}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    seconds = round(time.perf_counter() - start, 1)
    return {"padding": padding, "seed": seed, "device": name, "seconds": seconds, "scores": scores}


def main() -> None:
    """Make the runs that are missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--most", type=int, default=56, help="proposals of a photo")
    parser.add_argument("--photos", type=int, default=demo.WORLD.train_photos, help="to learn from")
    parser.add_argument("--epochs", type=int, default=demo.CONFIG.training.epochs)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--at-once", type=int, default=1, help="runs side by side")
    parser.add_argument("--world", type=Path, help="where the simulated world is kept; else a temporary folder")
    given = parser.parse_args()
    results_path = open_run(given.out, {"most": given.most, "photos": given.photos, "epochs": given.epochs})
    done = {(result["padding"], result["seed"]) for result in read_results(results_path)}
    wanted = [(padding, seed) for seed in range(given.seeds) for padding in get_args(Padding)]
    with (
        tempfile.TemporaryDirectory() as temporary,
        # Spawned, not forked: a GPU cannot be used in a fork.
        ProcessPoolExecutor(given.at_once, multiprocessing.get_context("spawn")) as processes,
    ):
        prepared = prepare_world(given.world or Path(temporary), World(train_photos=given.photos), given.most)
        waiting = [
            processes.submit(make, prepared, padding, seed, given.epochs, given.device)
            for padding, seed in wanted
            if (padding, seed) not in done
        ]
        for future in as_completed(waiting):
            append_results(results_path, [future.result()])
            print(f"{len(read_results(results_path))} of {len(wanted)} runs", flush=True)
    print(table(read_results(results_path)))


if __name__ == "__main__":
    main()
