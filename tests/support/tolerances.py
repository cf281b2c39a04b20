"""How closely numbers must agree: one table, by backend and dtype."""

from typing import NamedTuple

import torch

from tallybox import Counter, PresenceCounter


class Tolerance(NamedTuple):
    """Allowed differences, as `torch.testing.assert_close` takes them."""

    rtol: float
    atol: float


TOLERANCES = {
    ("reference", torch.float64): Tolerance(rtol=1e-9, atol=1e-9),
    ("reference", torch.float32): Tolerance(rtol=1e-5, atol=1e-5),
    ("cpu", torch.float64): Tolerance(rtol=1e-9, atol=1e-9),
    ("cpu", torch.float32): Tolerance(rtol=1e-5, atol=1e-5),
    ("triton", torch.float32): Tolerance(rtol=1e-5, atol=1e-5),
}

# The stored cases were made by the published code; the requirement names this number.
PUBLISHED = Tolerance(rtol=0, atol=1e-9)

# A whole model in float64 on features that were scaled to length 1 in float32.
FLOAT32_FEATURES = Tolerance(rtol=1e-6, atol=1e-6)

# `Counter` leaves out the published 1e-12 in the union, which shows in boxes of unit scale.
PUBLISHED_WITHOUT_UNION_FLOOR = Tolerance(rtol=0, atol=1e-8)

# A few operations on numbers in [0, 1]; no backend takes part.
ROUNDING = {torch.float64: Tolerance(rtol=1e-14, atol=1e-14), torch.float32: Tolerance(rtol=1e-6, atol=1e-6)}

# Figures of counts that are sums of float32 scores, squared and averaged.
SUMMED_SCORES = Tolerance(rtol=1e-5, atol=1e-5)

# Figures on real photos that were found independently, with a grid of thresholds that is not known. Another grid moves
# them by up to 0.005; errors are known to two digits only, which is as much again.
KNOWN_FIGURES = {"exact": Tolerance(rtol=0, atol=0.005), "mae": Tolerance(rtol=0, atol=0.01)}


# A log-probability, and a gradient through one, moves by 1 / (1 - p) times as much as a presence p close to 1, of
# which float32 tells apart steps of 6e-8: a presence of 0.999 lets the logarithm of "none" move by 6e-5.
PRESENCE_TOLERANCES = {
    torch.float64: Tolerance(rtol=1e-9, atol=1e-9),
    torch.float32: Tolerance(rtol=1e-4, atol=1e-4),
}

# Where layers agree on the true count. Presence counting takes a score of 0 or 1 for a logit of 14, a miss of 8e-7
# that each of a few dozen proposals may add.
LIMITS = Tolerance(rtol=0, atol=1e-4)

# What issue 5 asks of untrained presence counting.
ONE_PERCENT = Tolerance(rtol=0.01, atol=0)
SUM_OF_PROBABILITIES = Tolerance(rtol=0, atol=1e-5)

# The embedded detector beside the ONNX file that its weights are from: float32, summed in another order.
DETECTOR_MAPS = Tolerance(rtol=0, atol=2e-3)

# Detections that were stored with one digit (pixels) and four digits (scores).
STORED_BOXES = Tolerance(rtol=0, atol=0.2)
STORED_SCORES = Tolerance(rtol=0, atol=0.002)


def tolerance(backend: str, dtype: torch.dtype, layer: type[Counter] | type[PresenceCounter] = Counter) -> Tolerance:
    """What a layer's features and gradients are allowed."""
    return PRESENCE_TOLERANCES[dtype] if layer is PresenceCounter else TOLERANCES[backend, dtype]


# States of a GRU in bfloat16, 8 bits of mantissa, over four steps; and its gradients, in parts of the largest.
BFLOAT16_STATES = Tolerance(rtol=0, atol=0.02)
BFLOAT16_GRADIENTS = Tolerance(rtol=0, atol=0.05)
