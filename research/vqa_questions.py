"""Experiment B's data: human questions of VQA v2, and proposals made up from what their photos are known to show.

    python research/vqa_questions.py ../shared/data/vqa2-subset runs/vqa-questions --at-once 2    # about 5 minutes

No photo is both learned from and scored on: training questions about the 4,000 or so photos of validation questions are
left out. Training adds a written question about each of its photos, and a counterpart, to the human ones
(`--human-only`: it does not); what is scored is human.
"""

import argparse
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from inventory import ask_about_inventory, photos_of_inventory, read_inventory
from synthetic_scenes import World
from written_questions import join

from tallybox.vqa.data.official import official_files, read_questions
from tallybox.vqa.data.prepare import prepare
from tallybox.vqa.data.tsv import write_tsv

INVENTORY = "object_inventory.csv.gz"
WORLD = World(features=256)  # with 64, the 80 categories are too much alike for dropout


def write_part(path: Path, image_ids: list[int], inventory: Path) -> None:
    """Write the proposals of some of the photos."""
    write_tsv(path, photos_of_inventory(image_ids, read_inventory(inventory), WORLD))


def main() -> None:
    """Make up the proposals and prepare the questions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--at-once", type=int, default=1, help="processes")
    parser.add_argument("--human-only", action="store_true", help="learn from human questions alone")
    given = parser.parse_args()
    start = time.perf_counter()
    files = official_files(given.data)
    photos = {split: {record.image_id for record in read_questions(paths.questions)} for split, paths in files.items()}
    image_ids = sorted(set().union(*photos.values()))
    parts = [given.out / f"features-{number:02}.tsv" for number in range(given.at_once)]
    # Spawned, not forked: threads of libraries do not survive a fork.
    with ProcessPoolExecutor(given.at_once, multiprocessing.get_context("spawn")) as processes:
        waiting = [
            processes.submit(write_part, path, image_ids[number :: given.at_once], given.data / INVENTORY)
            for number, path in enumerate(parts)
        ]
        written = None if given.human_only else given.out / "written"
        if written:
            ask_about_inventory(
                sorted(photos["train"] - photos["val"]), read_inventory(given.data / INVENTORY), written
            )
        join(given.data, written, given.out / "questions", "train", without_photos=frozenset(photos["val"]))
        files |= official_files(given.out / "questions")
        for future in waiting:
            future.result()
    print(f"{len(image_ids)} photos, {time.perf_counter() - start:.0f} s", flush=True)
    done = prepare(files, parts, given.out / "prepared")
    print(f"{given.out / 'prepared'}: {done['questions']} questions, {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
