from pathlib import Path

import numpy as np
from research.vqa_padding import table, with_clutter

from tallybox.runs import read_results
from tallybox.vqa.data.features import read_tsv
from tallybox.vqa.simulation.simulate import FEATURES, simulate
from tallybox.vqa.simulation.world import World

RESULTS = Path(__file__).parent.parent.parent / "docs" / "results" / "vqa"


def test_the_table_of_the_page_is_that_of_the_committed_runs():
    assert table(read_results(RESULTS / "padding" / "results.jsonl")) in (RESULTS / "README.md").read_text()


def test_photos_keep_their_proposals_among_more_clutter(tmp_path):
    world = World(train_photos=8, val_photos=2, test_photos=0, features=5)
    simulate(tmp_path, world)
    before = [photo for photo, _ in read_tsv(tmp_path / FEATURES)]
    after = list(with_clutter(tmp_path / FEATURES, world, most=60))
    assert [photo.image_id for photo in after] == [photo.image_id for photo in before]
    assert len({len(photo.boxes_xyxy) for photo in after}) > 5
    for old, new in zip(before, after, strict=True):
        assert len(old.boxes_xyxy) <= len(new.boxes_xyxy) == len(new.features) <= 60
        assert {row.tobytes() for row in old.features} <= {row.tobytes() for row in new.features}
        assert (np.asarray(new.boxes_xyxy)[:, 2:] >= np.asarray(new.boxes_xyxy)[:, :2]).all()
