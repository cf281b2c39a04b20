"""Experiment B's data: human questions of VQA v2, and proposals made up from what their photos are known to show.

    python research/vqa_questions.py ../shared/data/vqa2-subset runs/vqa-questions --at-once 2    # about 3 minutes

It writes what these two commands do, with several processes side by side (a photo looks the same either way):

    tallybox vqa simulate --questions TRAIN --questions VAL --inventory object_inventory.csv.gz --out runs/vqa-questions
    tallybox vqa prepare FOLDER --features runs/vqa-questions/features.tsv --out runs/vqa-questions/prepared
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tallybox.vqa.bottom_up import write_tsv
from tallybox.vqa.preparing import official_files, prepare
from tallybox.vqa.questions import read_questions
from tallybox.vqa.simulation.inventory import photos_of_inventory, read_inventory
from tallybox.vqa.simulation.world import World

INVENTORY = "object_inventory.csv.gz"


def write_part(path: Path, image_ids: list[int], inventory: Path) -> None:
    """Write the proposals of some of the photos."""
    write_tsv(path, photos_of_inventory(image_ids, read_inventory(inventory), World()))


def main() -> None:
    """Make up the proposals and prepare the questions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--at-once", type=int, default=1, help="processes")
    given = parser.parse_args()
    start = time.perf_counter()
    files = official_files(given.data)
    image_ids = sorted({one.image_id for split in files.values() for one in read_questions(split.questions)})
    parts = [given.out / f"features-{number:02}.tsv" for number in range(given.at_once)]
    # Spawned, not forked: threads of libraries do not survive a fork.
    with ProcessPoolExecutor(given.at_once, multiprocessing.get_context("spawn")) as processes:
        waiting = [
            processes.submit(write_part, path, image_ids[number :: given.at_once], given.data / INVENTORY)
            for number, path in enumerate(parts)
        ]
        for future in waiting:
            future.result()
    print(f"{len(image_ids)} photos, {time.perf_counter() - start:.0f} s", flush=True)
    done = prepare(files, parts, given.out / "prepared")
    print(
        f"{given.out / 'prepared'}: {dict(done.questions)} questions, {time.perf_counter() - start:.0f} s", flush=True
    )


if __name__ == "__main__":
    main()
