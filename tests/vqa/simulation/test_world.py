"""What a detector says about the made-up world must not tell the count, unless boxes are looked at."""

import numpy as np
import pytest
import torch

from tallybox import Counter
from tallybox.boxes import nms, numpy_box_iou
from tallybox.errors import InputError
from tallybox.vqa.simulation.detector import ON_A_KIND, PROPOSALS, SimulatedDetector
from tallybox.vqa.simulation.world import CLASS_OF, SIZE_WH, THINGS, World, draw_scene, prototypes

WORLD = World()
DIRECTIONS = prototypes(WORLD)


def looked_at(number: int, world: World = WORLD, seed: int = 5):
    random = np.random.default_rng(seed)
    detector = SimulatedDetector(world, prototypes(world))
    scenes = [draw_scene(image_id, world, random) for image_id in range(number)]
    return [(scene, detector.detect(scene, random)) for scene in scenes]


@pytest.fixture(scope="module")
def photos():
    return looked_at(500)


def weights(photo, kind):
    """How much each proposal looks like a kind: what a well trained attention gives."""
    return 1 / (1 + np.exp(-8 * (photo.features @ DIRECTIONS[kind] - 0.5)))


def test_every_thing_has_a_proposal_and_duplicates_stay_close(photos):
    overlaps = []
    for scene, photo in photos[:100]:
        assert PROPOSALS[0] <= len(photo.boxes_xyxy) < PROPOSALS[1]
        assert (photo.boxes_xyxy >= 0).all()
        assert (photo.boxes_xyxy <= (*SIZE_WH, *SIZE_WH)).all()
        for things in scene.groups.values():
            for thing in things:
                overlap = numpy_box_iou(photo.boxes_xyxy.astype(float), thing.box_xyxy[None])
                assert overlap.max() >= WORLD.min_iou - 0.02
                overlaps.extend(overlap[overlap > 0.5].tolist())
    assert 0.5 < np.quantile(overlaps, 0.05) < np.quantile(overlaps, 0.95) < 0.95


def test_different_things_overlap_in_part(photos):
    overlaps = []
    for scene, _ in photos[:100]:
        boxes = np.stack([thing.box_xyxy for things in scene.groups.values() for thing in things])
        overlaps.extend(numpy_box_iou(boxes, boxes)[np.triu_indices(len(boxes), 1)].tolist())
    assert np.mean(np.array(overlaps) > 0.01) > 0.03
    assert np.quantile(overlaps, 0.99) <= WORLD.max_overlap + 0.01


def test_parts_and_groups_appear():
    sizes = []
    for scene, photo in looked_at(80, World(difficulty=1)):
        areas = (photo.boxes_xyxy[:, 2:] - photo.boxes_xyxy[:, :2]).prod(1)
        for things in scene.groups.values():
            own = np.mean([(thing.box_xyxy[2:] - thing.box_xyxy[:2]).prod() for thing in things])
            found = weights(photo, things[0].kind) > 0.5
            sizes.extend((areas[found] / own).tolist())
    assert np.mean(np.array(sizes) < 0.4) > 0.03, "parts"
    assert np.mean(np.array(sizes) > 2.5) > 0.02, "groups"


def test_neither_number_nor_order_nor_sum_tells_the_count(photos):
    rows = []
    for scene, photo in photos:
        boxes = photo.boxes_xyxy
        left = nms(boxes, np.linspace(1, 0.1, len(boxes), dtype=np.float32), [0.5])[0].sum()
        for kind, things in scene.groups.items():
            relevant = weights(photo, kind)
            first = int(np.argmax(relevant > 0.5))
            mean_place = np.flatnonzero(relevant > 0.5).mean() / len(boxes)
            rows.append((len(things), len(boxes), left, first, mean_place, relevant.sum(), photo.features.mean()))
    assert np.mean([first == 0 for _, _, _, first, *_ in rows]) < 0.35, "a kind's proposals come in any place"
    found = np.corrcoef(np.array(rows).T)[0, 1:]
    # 1,000 groups: chance alone gives 0.03 on average, and 0.1 once in a thousand times.
    assert np.abs(found).max() < 0.1, dict(
        zip(("number", "nms", "first", "place", "sum", "features"), found, strict=True)
    )


def test_the_things_in_all_do_not_depend_on_a_kind(photos):
    for scene, _ in photos:
        things = sum(len(some) for some in scene.groups.values()) + len(scene.clutter)
        assert THINGS[0] <= things < THINGS[1]
    assert ON_A_KIND[1] - 1 <= 10, "the paper's component takes ten proposals"


def test_boxes_and_weights_together_tell_it(photos):
    """The component learns to count from ideal weights where their sum says nothing."""
    longest = PROPOSALS[1]
    photos = photos[:300]
    attention = torch.zeros(2 * len(photos), longest)
    boxes = torch.zeros(2 * len(photos), longest, 4)
    counts = []
    for row, (photo, kind, things) in enumerate(
        (photo, kind, things) for scene, photo in photos for kind, things in scene.groups.items()
    ):
        attention[row, : len(photo.boxes_xyxy)] = torch.from_numpy(weights(photo, kind))
        boxes[row, : len(photo.boxes_xyxy)] = torch.from_numpy(photo.boxes_xyxy)
        counts.append(len(things))
    answers = torch.tensor(counts)
    torch.manual_seed(0)
    counter, readout = Counter(10, backend="reference"), torch.nn.Linear(11, 6)
    optimiser = torch.optim.Adam([*counter.parameters(), *readout.parameters()], 0.05)
    learned_from = len(answers) * 2 // 3
    for _ in range(40):
        optimiser.zero_grad()
        logits = 3 * readout(counter(attention[:learned_from], boxes[:learned_from]))
        torch.nn.functional.cross_entropy(logits, answers[:learned_from]).backward()
        optimiser.step()
    said = readout(counter(attention[learned_from:], boxes[learned_from:])).argmax(1)
    assert (said == answers[learned_from:]).float().mean() > 0.7
    assert answers.bincount().max() / len(answers) < 0.4


def test_difficulty_hides_what_a_proposal_shows():
    clear = {}
    for difficulty in (0.0, 0.5, 1.0):
        world = World(difficulty=difficulty)
        own, other = [], []
        for scene, photo in looked_at(40, world):
            for kind in CLASS_OF:
                looks = photo.features @ prototypes(world)[kind]
                (own if kind in scene.groups else other).append(looks.max())
        clear[difficulty] = (np.mean(own) - np.mean(other)) / np.std(other)
    assert clear[0.0] > clear[0.5] > clear[1.0] > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"difficulty": 1.5}, "difficulty must be between 0 and 1, but got 1.5"),
        ({"train_photos": 1}, "train_photos must be at least 2, but got 1"),
        ({"features": 0}, "features must be at least 1, but got 0"),
    ],
)
def test_impossible_worlds(options, message):
    with pytest.raises(InputError, match=message):
        World(**options)
