"""Launchers: allocate, and launch programs for images and for tiles of their pairs."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, sym_max, sym_min

from tallybox.kernels.cuda import Launch, Step, given_or_any, launch_now, once_a_shape
from tallybox.kernels.operators import Grads, Inputs
from tallybox.presence.cuda.backward import pairs_backward_kernel, presence_backward_kernel
from tallybox.presence.cuda.forward import pairs_forward_kernel, presence_forward_kernel
from tallybox.presence.cuda.image import saved_size
from tallybox.presence.cuda.table import table_backward_kernel, table_kernel
from tallybox.presence.cuda.table_gradients import table_gradients_kernel
from tallybox.presence.weights import PresenceWeights, table_size

# Pairs: a row, that is a proposal with all others of its image, in each lane of a warp. For the gradients of tables, a
# warp takes four times 32 x 32 pairs at least, where that leaves enough warps to fill a GPU: each lane has a table of
# sums of its own.
LANES = 32
MIN_WARPS, MAX_WARPS = 512, 2048

# Rounds and distributions: an image has a block of its own. With few boxes that is a warp, or a warp for a group of
# images where there are many.
MAX_BOXES_FOR_A_WARP = 16
GROUP, MIN_IMAGES_FOR_GROUPS = 4, 16384
ROUND_WARPS = 4


def state_size(inputs: Inputs, save_state: bool) -> int:
    """Return how many numbers are saved, of images and in tables; the forward kernels need them themselves."""
    images, number, counters, segments, max_objects, *_ = _sizes(inputs)
    return images * saved_size(number, max_objects) + counters * table_size(segments)


def forward(inputs: Inputs, results: Sequence[Tensor], state: Tensor, launch: Launch = launch_now) -> None:
    """Write features, presence, distribution and the saved state."""
    attention, boxes, mask, weights, _, _ = inputs
    tables, pairs, of_results = _forward_steps(launch, *_sizes(inputs))
    launch(tables, *weights, state)
    launch(pairs, attention, boxes, given_or_any(mask, attention), state)
    launch(of_results, state, *results)


def backward(
    inputs: Inputs, state: Tensor, grads: Grads, boxes_need_grad: bool, launch: Launch = launch_now
) -> list[Tensor]:
    """Return the gradients of attention, boxes and weights; boxes get theirs whether or not they need it."""
    attention, boxes, mask, weights, _, _ = inputs
    of_features, *others = grads
    assert of_features is not None
    plan = _backward_plan(launch, *_sizes(inputs), others[0] is not None)
    grad_attention, grad_boxes = torch.empty_like(attention), torch.empty_like(boxes)
    scratch, sums = attention.new_empty(plan.scratch), attention.new_empty(plan.sums)
    a_mask = given_or_any(mask, attention)
    launch(plan.rounds, a_mask, state, of_features, *(given_or_any(grad, of_features) for grad in others), scratch)
    read = (attention, boxes, a_mask, state, scratch)
    launch(plan.pairs, *read, grad_attention, grad_boxes)
    launch(plan.sums_of_tables, *read, sums)
    return [grad_attention, grad_boxes, *weight_gradients(plan.weights, weights, sums.sum((1, 3)), launch)]


def weight_gradients(
    step: Step, weights: Sequence[Tensor], grad_tables: Tensor, launch: Launch = launch_now
) -> list[Tensor]:
    """Return the gradients of the weights from those of the tables ``[M, T]``."""
    w = PresenceWeights(*weights)
    grads = [torch.empty_like(weight) for weight in weights]
    launch(step, w.calibration, w.overlap, w.headroom, w.order, w.step, grad_tables, *grads)
    return grads


class BackwardPlan(NamedTuple):
    """The steps of a backward pass, and the shapes of what they note."""

    scratch: tuple[int, int]
    sums: tuple[int, int, int, int]  # of tables [M, blocks, T, LANES]
    rounds: Step
    pairs: Step
    sums_of_tables: Step
    weights: Step


@once_a_shape
def _forward_steps(
    images: int, number: int, counters: int, segments: int, max_objects: int, masked: bool, logits: bool
) -> tuple[Step, Step, Step]:
    """Return the steps for tables, for pairs and for results."""
    of_counter, state = images // counters, saved_size(number, max_objects)
    rows = -(-of_counter * number // LANES)
    of_pairs = (images, of_counter, rows, number, state, table_size(segments))
    branches = (masked, logits, segments, LANES)
    pairs = Step(pairs_forward_kernel, counters * rows, of_pairs, branches, num_warps=1)
    groups, warps, of_group = _groups(images, number, max_objects)
    results = Step(presence_forward_kernel, groups, (images, number, max_objects, state), of_group, num_warps=warps)
    return table_steps(counters, segments, images, state)[0], pairs, results


@once_a_shape
def _backward_plan(
    images: int,
    number: int,
    counters: int,
    segments: int,
    max_objects: int,
    masked: bool,
    logits: bool,
    has_other_grads: bool,
) -> BackwardPlan:
    of_counter, state, table = images // counters, saved_size(number, max_objects), table_size(segments)
    scratch = 4 * number  # of an image, see `image_gradients`
    sizes, branches = (state, scratch, table), (masked, logits, segments, LANES)
    groups, warps, of_group = _groups(images, number, max_objects)
    of_rounds = (images, of_counter, number, max_objects, *sizes)
    constants = (masked, has_other_grads, segments, *of_group)
    rows = -(-of_counter * number // LANES)
    items = rows * -(-number // LANES)
    # No size is compared, and there are at least 2 blocks: otherwise a compiled call would serve some sizes only.
    wanted = sym_min(items, sym_max(items // 4, MIN_WARPS // counters))
    blocks = sym_max(2, sym_min(MAX_WARPS // counters, wanted))
    of_pairs, of_sums = (images, of_counter, rows, number, *sizes), (images, of_counter, blocks, number, *sizes)
    return BackwardPlan(
        scratch=(images, scratch),
        sums=(counters, blocks, table, LANES),
        rounds=Step(presence_backward_kernel, groups, of_rounds, constants, num_warps=warps),
        pairs=Step(pairs_backward_kernel, counters * rows, of_pairs, branches, num_warps=1),
        sums_of_tables=Step(table_gradients_kernel, counters * blocks, of_sums, branches, num_warps=1),
        weights=table_steps(counters, segments, images, state)[1],
    )


def table_steps(counters: int, segments: int, images: int, state: int) -> tuple[Step, Step]:
    """Return the steps that write tables behind what is saved of all images, and that carry gradients back."""
    constants, table = (segments, 1 << max(segments - 1, 1).bit_length()), table_size(segments)
    return (
        Step(table_kernel, counters, (images, state, table), constants, num_warps=1),
        Step(table_backward_kernel, counters, (table,), constants, num_warps=1),
    )


def _groups(images: int, number: int, max_objects: int) -> tuple[int, int, tuple[int, int, int]]:
    """Return how many groups of images go through the rounds, the warps of each, and CLASSES, G and R."""
    is_small = number <= MAX_BOXES_FOR_A_WARP
    group = GROUP if is_small and images >= MIN_IMAGES_FOR_GROUPS else 1
    warps = 1 if is_small else ROUND_WARPS
    return -(-images // group), warps, (1 << max_objects.bit_length(), group, LANES * warps)


def _sizes(inputs: Inputs) -> tuple[int, int, int, int, int, bool, bool]:
    """Return the numbers of images, boxes, counters, segments and objects, and whether there are a mask and logits."""
    counters, segments = PresenceWeights(*inputs.weights).calibration.shape
    return *inputs.attention.shape, counters, segments, inputs.max_objects, inputs.mask is not None, inputs.logits
