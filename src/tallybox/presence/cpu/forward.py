"""The forward kernel."""

import numpy as np

from tallybox.kernels.cpu.boxes import real_proposals
from tallybox.kernels.cpu.compiling import Array, Arrays, compiled
from tallybox.presence.cpu import image
from tallybox.presence.cpu.image import BoxPairs, SavedImage, logistic
from tallybox.presence.weights import EVIDENCE, LOG_FLOOR, OVERLAP, SHARPNESS, SHIFT, SLOPE


@compiled
def one_round(
    found: int, n: int, pairs: BoxPairs, saved: SavedImage, before: Array, survival: Array, out: Array
) -> None:
    """Fill ``survival`` with ∏_j (1 - s_ij p_j) of the presences ``before``, and ``out`` with p⁰ times it."""
    for i in range(n):
        survival[i] = 1
    for pair in range(found):
        survival[pairs.target[pair]] *= image.factor(saved.suppression[pair], before[pairs.source[pair]])
    for i in range(n):
        out[i] = saved.calibrated[i] * survival[i]


@compiled
def fill_presence(n: int, b: Array, table: Array, found: int, pairs: BoxPairs, saved: SavedImage) -> None:
    """Compute an image's presences from its logits and pairs."""
    zero, one = table.dtype.type(0), table.dtype.type(1)
    for i in range(n):
        saved.coordinate[i] = image.coordinate_of(saved.logit[i])
        saved.z[i] = table[SLOPE] * saved.logit[i] + table[SHIFT]
    for pair in range(found):
        i, j, iou = pairs.target[pair], pairs.source[pair], pairs.iou[pair]
        saved.z[i] += image.cell_value(table, EVIDENCE, iou, saved.coordinate[j])
        shared = image.cell_value(table, OVERLAP, iou, one - saved.coordinate[i])
        lead = logistic(table[SHARPNESS] * (saved.logit[j] - saved.logit[i]))
        order = image.order_value(table, lead, image.precedes(j, i, saved.logit, b))[0]
        saved.suppression[pair], saved.lead[pair], saved.shared[pair] = shared * order, lead, shared
    for i in range(n):
        saved.sigmoid[i] = logistic(saved.z[i])
        value = image.calibration_value(table, saved.z[i], saved.sigmoid[i])[0]
        saved.calibrated[i] = one if value > one else (zero if value < zero else value)
    one_round(found, n, pairs, saved, saved.calibrated, saved.survival_1, saved.presence_1)
    one_round(found, n, pairs, saved, saved.presence_1, saved.survival_2, saved.presence_2)


@compiled
def fill_prefixes(n: int, presence: Array, prefixes: Array) -> None:
    """Fill ``prefixes [N + 1, K + 1]``: row i is the distribution of the count of the first i presences."""
    one, largest = presence.dtype.type(1), prefixes.shape[1] - 1
    prefixes[0] = 0
    prefixes[0, 0] = one
    for i in range(n):
        # Written out, LLVM turns x (1 - p) + y p into x + p (y - x), which loses small probabilities.
        here, absent = presence[i], one - presence[i]
        prefixes[i + 1, 0] = prefixes[i, 0] * absent
        for k in range(1, largest + 1):
            prefixes[i + 1, k] = prefixes[i, k] * absent + prefixes[i, k - 1] * here
        prefixes[i + 1, largest] += prefixes[i, largest] * here


@compiled
def presence_forward_kernel(
    inputs: Arrays, results: Arrays, state: Array, every_pair: bool, first_image: int, stop: int
) -> None:
    """Write the results of images first_image ... stop - 1, and their state unless it is empty."""
    (logit, boxes, mask, tables), (features, presence, distribution) = inputs, results
    dtype, images_per_counter = logit.dtype.type, logit.shape[0] // tables.shape[0]
    number, classes = logit.shape[1], distribution.shape[1]
    b, order = np.empty((4, number), logit.dtype), np.empty(number, np.int32)
    prefixes = np.empty((number + 1, classes), logit.dtype)
    pairs, scratch = image.empty_pairs(number, logit), np.empty(image.saved_size(number), logit.dtype)
    for index in range(first_image, stop):
        saved = image.saved_image(state[index] if state.shape[1] else scratch, number)
        n = real_proposals(index, logit, boxes, mask, order, saved.logit, b)
        found = image.find_pairs(n, b, every_pair, pairs)
        fill_presence(n, b, tables[index // images_per_counter], found, pairs, saved)
        fill_prefixes(n, saved.presence_2, prefixes)
        presence[index] = 0
        expected = dtype(0)
        for i in range(n):
            presence[index, order[i]] = saved.presence_2[i]
            expected += saved.presence_2[i]
        for k in range(classes):
            distribution[index, k] = prefixes[n, k]
            features[index, k] = np.log(prefixes[n, k] + dtype(LOG_FLOOR))
        features[index, classes] = expected
