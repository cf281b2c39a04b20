"""What a dense detector would say, made from what another said: dozens of near-identical boxes for every one."""

import numpy as np

from tallybox import Detections

JITTER = 0.03  # of a box's sides


def dense(image: Detections, seed: int = 0, copies: tuple[int, int] = (6, 14)) -> Detections:
    """Repeat each box, moved a little, with scores that go along, flattened and shifted as another detector's are."""
    random = np.random.default_rng((seed, int(image.image_id or 0)))
    number = random.integers(*copies, size=len(image), endpoint=True)
    source = np.repeat(np.arange(len(image)), number)
    size = np.tile(image.boxes[source, 2:] - image.boxes[source, :2], 2)
    boxes = image.boxes[source] + random.normal(0, JITTER, (len(source), 4)) * size
    boxes = np.concatenate((np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])), axis=1)
    scores = image.scores[source].clip(1e-4, 1 - 1e-4)
    logit = np.log(scores / (1 - scores)) * 0.7 - 0.4 - np.abs(random.normal(0, 0.4, len(source)))
    return Detections(boxes, 1 / (1 + np.exp(-logit)), image.category_ids[source], image.image_size, image.image_id)
