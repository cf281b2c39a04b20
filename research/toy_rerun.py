"""Compare a rerun of the toy task's sweeps with the committed results, point by point.

    tallybox toy sweep --out docs/results/toy/rerun --step 0.2 --seeds 1 --presence-heads 3 --device cpu
    python research/toy_rerun.py docs/results/toy/rerun docs/results/toy

A rerun draws other images than the committed results, which a GPU drew: its differences are compared with those of the
two committed seeds.
"""

import argparse
from pathlib import Path
from statistics import mean

from tallybox.runs import read_results

Point = tuple[float, float]


def accuracies(folder: Path, model: str) -> dict[Point, list[float]]:
    """Return the accuracies of a model at every point, by seed."""
    found: dict[Point, list[float]] = {}
    for result in read_results(folder / "results.jsonl"):
        found.setdefault((result["side_length"], result["noise"]), []).append(result["accuracy"][model])
    return found


def main() -> None:
    """Print a table: for each model and sweep, the rerun's and the seeds' largest and mean differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rerun", type=Path)
    parser.add_argument("committed", type=Path)
    given = parser.parse_args()
    print("| sweep | model | points | largest difference | at l, q | mean | largest between the two seeds | mean |")
    print("|---|---|---:|---:|---|---:|---:|---:|")
    for sweep in ("easy", "hard"):
        for model in ("counter", "baseline", "presence"):
            earlier = accuracies(given.committed / sweep, model)
            again = accuracies(given.rerun / sweep, model)
            differences = {point: abs(values[0] - mean(earlier[point])) for point, values in again.items()}
            spreads = [max(earlier[point]) - min(earlier[point]) for point in again]
            largest = max(differences, key=lambda point: differences[point])
            print(
                f"| {sweep} | {model} | {len(again)} | {differences[largest]:.4f} | {largest[0]:g}, {largest[1]:g} "
                f"| {mean(differences.values()):.4f} | {max(spreads):.4f} | {mean(spreads):.4f} |"
            )


if __name__ == "__main__":
    main()
