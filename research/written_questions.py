"""Joins questions that tallybox wrote about photos to those that people asked, as one set of official files."""

import json
from pathlib import Path
from typing import Any

from tallybox.files import open_binary
from tallybox.vqa.simulation import YEARS, write_json

# The two sets number their questions alike; those that were written get ids of their own.
WRITTEN_FROM = 10**12


def join(
    given: Path, written: Path | None, out: Path, split: str, *, without_photos: frozenset[int] = frozenset()
) -> None:
    """Write a split's questions and answers of both folders, and the written ones' pairs.

    Questions about some photos may be left out; without ``written`` questions, this is all that happens.
    """
    left_out: set[int] = set()
    for name, records in (("OpenEnded_mscoco_{}_questions", "questions"), ("mscoco_{}_annotations", "annotations")):
        file = f"v2_{name.format(YEARS[split])}.json.gz"
        human = _read(given / file)
        more = _read(written / file)[records] if written else []
        for record in more:
            record["question_id"] += WRITTEN_FROM
        joined = human[records] + more
        left_out |= {one["question_id"] for one in joined if one["image_id"] in without_photos}
        write_json(out / file, human | {records: [one for one in joined if one["question_id"] not in left_out]})
    if not written:
        return
    pairs = f"v2_mscoco_{YEARS[split]}_complementary_pairs.json"
    numbered = ([one + WRITTEN_FROM for one in pair] for pair in _read(written / pairs))
    write_json(out / pairs, [pair for pair in numbered if left_out.isdisjoint(pair)])


def _read(path: Path) -> Any:
    with open_binary(path) as file:
        return json.load(file)
