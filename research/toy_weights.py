"""Collect what counters learned on the toy task from the results of its sweeps, for the explorer page.

    python research/toy_weights.py docs/results/toy

writes ``service/data/toy_weights.json``: for a few settings the activations of the paper's component and the weights of
each head of presence counting. Results hold functions at their knots, rounded; weights are what rises between knots.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tallybox.files import write_text
from tallybox.runs import read_results

TOY_WEIGHTS = Path(__file__).parents[1] / "src" / "tallybox" / "service" / "data" / "toy_weights.json"

# (sweep, side length l, noise q): clear boxes that overlap; little noise; much noise with little and much overlap.
SETTINGS = (("easy", 0.5, 0.0), ("hard", 0.5, 0.25), ("hard", 0.2, 0.5), ("hard", 0.5, 0.5))
SEED = 0


def collect(results: Path) -> list[dict[str, Any]]:
    """Return the settings' weights from the folder that holds both sweeps."""
    found = []
    for sweep, side_length, noise in SETTINGS:
        rows = read_results(results / sweep / "results.jsonl")
        wanted = {"side_length": side_length, "noise": noise, "seed": SEED}
        row = next(row for row in rows if wanted.items() <= row.items())
        heads = range(len(row["presence"]["slope"]))
        found.append(
            {
                **wanted,
                "accuracy": row["accuracy"],
                "activations": row["activations"],
                "presence": [head_weights({name: f[head] for name, f in row["presence"].items()}) for head in heads],
            }
        )
    return found


def head_weights(functions: dict[str, Any]) -> dict[str, Any]:
    """Turn the functions of one head, at their knots, into the weights that make them.

    >>> identity = [[0.0, 0.0, 0.0], [0.5, 0.5, 0.5], [1.0, 1.0, 1.0]]
    >>> plain = {"slope": 1.0, "shift": 0.0, "sharpness": 1.0, "step": 1.0, "evidence": [[0.0] * 3] * 3}
    >>> head_weights({**plain, "calibration": [0.0, 0.4, 1.0], "order": [0.0, 0.0], "overlap": identity})["overlap"]
    [[0.5, 0.0, 0.0], [0.5, 0.0, 0.0]]
    """
    overlap = np.array(functions["overlap"])  # [E + 1, E + 1]
    rises = np.diff(np.diff(overlap, axis=0), axis=1, prepend=0)  # [E, E + 1]
    return {
        "slope": functions["slope"],
        "shift": functions["shift"],
        "calibration": _rises(functions["calibration"]),
        "evidence": functions["evidence"][1:],
        "overlap": rises.round(5).clip(0).tolist(),
        "headroom": round(float(1 - overlap[-1, -1]), 5),
        "order": _rises(functions["order"]),
        "step": functions["step"],
        "sharpness": functions["sharpness"],
    }


def _rises(knots: list[float]) -> list[float]:
    rises: list[float] = np.diff(knots).round(5).clip(0).tolist()
    return rises


if __name__ == "__main__":
    write_text(TOY_WEIGHTS, json.dumps(collect(Path(sys.argv[1])), separators=(",", ":")) + "\n")
