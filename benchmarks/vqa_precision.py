"""Compare the losses of fast steps (bfloat16, compiled, CUDA graphs) with those of plain float32 ones.

    tallybox vqa simulate --out world && tallybox vqa prepare world --features world/features.tsv --out world/prepared
    python benchmarks/vqa_precision.py world/prepared     # JSON; about two minutes on a GPU

The paper's model learns from the simulated world for 2,000 steps, with two seeds each. The same data come in the same
order, so that a difference between the two ways is to be compared with the difference between two seeds.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from tallybox.runs import read_results, versions
from tallybox.vqa.batches import open_training_data
from tallybox.vqa.checkpoints import Checkpoint
from tallybox.vqa.config import read_configuration
from tallybox.vqa.data.splits import open_pairs, open_questions, open_records
from tallybox.vqa.model import VqaModel
from tallybox.vqa.prediction import predict
from tallybox.vqa.scoring import all_scores
from tallybox.vqa.training import train

STEPS, SEEDS, EVERY = 2000, (0, 1), 200
WAYS = {"float32": {"precision": "float32", "fast": False}, "fast": {"precision": "bfloat16", "fast": True}}
SCORES = ("count", "all", "count_mae")


def losses(prepared: Path, device: torch.device, model_name: str, seed: int, way: dict[str, Any]) -> dict[str, Any]:
    """Train one model; return its mean loss over every 200 steps, and its scores on validation questions."""
    data = open_training_data(prepared, "train")
    epochs = -(-STEPS // (len(data.questions) // 256))
    training = way | {"seed": seed, "epochs": epochs, "log_steps": EVERY}
    config = read_configuration(None, model={"name": model_name}, training=training)
    scores: dict[str, float] = {}

    def evaluate(done: int, model: VqaModel) -> None:
        if done == epochs:
            state = Checkpoint(config, data.sizes, data.words, data.answers, done, 0)
            predictions = predict(model, state, open_questions(prepared, "val"), data.store, device=device)
            scores.update(all_scores(predictions, open_records(prepared, "val"), open_pairs(prepared, "val")))

    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        train(
            data,
            Path(folder),
            config,
            device=device,
            on_epoch=evaluate,
        )
        lines = [line for line in read_results(Path(folder) / "results.jsonl") if line["step"] % EVERY == 0]
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "loss": {line["step"]: round(line["loss"], 4) for line in lines},
        **{name: round(scores[name], 2) for name in SCORES},
    }


def main() -> None:
    """Train both ways with both seeds, and print the losses."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("--model", default="counter")
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    result: dict[str, Any] = {"model": arguments.model, "device": arguments.device, "versions": versions()}
    for seed in SEEDS:
        for name, way in WAYS.items():
            result[f"{name}, seed {seed}"] = losses(arguments.prepared, device, arguments.model, seed, way)
            print(json.dumps({f"{name}, seed {seed}": result[f"{name}, seed {seed}"]}), flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
