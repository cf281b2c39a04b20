"""Launchers: allocate, and launch programs for images and for tiles of their pairs."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tallybox.kernels.cuda import Arguments, Launch, given_or_any, launch_now
from tallybox.kernels.operators import Inputs
from tallybox.presence.cuda.backward import pairs_backward_kernel, presence_backward_kernel
from tallybox.presence.cuda.forward import pairs_forward_kernel, presence_forward_kernel
from tallybox.presence.cuda.image import saved_size, scratch_size
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


class Plan(NamedTuple):
    """Sizes of a call and of its launches."""

    images: int
    of_counter: int  # images
    number: int  # of boxes
    counters: int
    segments: int
    state: int  # numbers saved of an image
    table: int  # numbers in a counter's table
    blocks: int  # of rows, for each counter
    group: int  # images that go through the rounds together
    warps: int  # for a group

    @classmethod
    def of(cls, inputs: Inputs) -> "Plan":
        """Plan the launches for these inputs."""
        images, number = inputs.attention.shape
        weights = PresenceWeights(*inputs.weights)
        counters, segments = weights.calibration.shape
        is_small = number <= MAX_BOXES_FOR_A_WARP
        return cls(
            images=images,
            of_counter=images // counters,
            number=number,
            counters=counters,
            segments=segments,
            state=saved_size(number, inputs.max_objects),
            table=table_size(segments),
            blocks=-(-images // counters * number // LANES),
            group=GROUP if is_small and images >= MIN_IMAGES_FOR_GROUPS else 1,
            warps=1 if is_small else ROUND_WARPS,
        )

    @property
    def groups(self) -> int:
        """How many groups of images there are."""
        return -(-self.images // self.group)

    def of_group(self, max_objects: int) -> tuple[int, int, int]:
        """Return the constants CLASSES, G and R."""
        return 1 << max_objects.bit_length(), self.group, LANES * self.warps

    @property
    def of_functions(self) -> tuple[int, int]:
        """The constants S and SP."""
        return self.segments, 1 << max(self.segments - 1, 1).bit_length()


def state_size(inputs: Inputs, save_state: bool) -> int:
    """Return how many numbers are saved, of images and in tables; the forward kernels need them themselves."""
    images, number = inputs.attention.shape
    counters, segments = PresenceWeights(*inputs.weights).calibration.shape
    return images * saved_size(number, inputs.max_objects) + counters * table_size(segments)


def forward(inputs: Inputs, results: Sequence[Tensor], state: Tensor, launch: Launch = launch_now) -> None:
    """Write features, presence, distribution and the saved state."""
    attention, boxes, mask, weights, max_objects, logits = inputs
    plan = Plan.of(inputs)
    write_tables(weights, state, plan, launch)
    numbers = (plan.images, plan.of_counter, plan.blocks, plan.number, plan.state, plan.table)
    arguments: Arguments = (attention, boxes, given_or_any(mask, attention), state, *numbers)
    constants: Arguments = (mask is not None, logits, plan.segments, LANES)
    launch(pairs_forward_kernel, plan.counters * plan.blocks, arguments, constants, num_warps=1)
    arguments = (state, *results, plan.images, plan.number, max_objects, plan.state)
    constants = plan.of_group(max_objects)
    launch(presence_forward_kernel, plan.groups, arguments, constants, num_warps=plan.warps)


def backward(
    inputs: Inputs, state: Tensor, grads: Sequence[Tensor | None], boxes_need_grad: bool, launch: Launch = launch_now
) -> list[Tensor]:
    """Return the gradients of attention, boxes and weights; boxes get theirs whether or not they need it."""
    attention, boxes, mask, weights, max_objects, logits = inputs
    plan = Plan.of(inputs)
    images, counters, number = plan.images, plan.counters, plan.number
    grad_attention, grad_boxes = torch.empty_like(attention), torch.empty_like(boxes)
    scratch = attention.new_empty(images, scratch_size(number))
    a_mask, has_mask, of_features = given_or_any(mask, attention), mask is not None, grads[0]
    assert of_features is not None
    sizes = (plan.state, scratch.shape[1], plan.table)

    numbers = (images, plan.of_counter, number, max_objects, *sizes)
    constants: Arguments = (has_mask, grads[1] is not None, plan.segments, *plan.of_group(max_objects))
    of_results = (of_features, *(given_or_any(grad, of_features) for grad in grads[1:]))
    arguments = (a_mask, state, *of_results, scratch, *numbers)
    launch(presence_backward_kernel, plan.groups, arguments, constants, num_warps=plan.warps)

    constants = (has_mask, logits, plan.segments, LANES)
    read = (attention, boxes, a_mask, state, scratch)
    arguments = (*read, grad_attention, grad_boxes, images, plan.of_counter, plan.blocks, number, *sizes)
    launch(pairs_backward_kernel, counters * plan.blocks, arguments, constants, num_warps=1)

    items = plan.blocks * -(-number // LANES)
    blocks = max(1, min(MAX_WARPS // counters, items, max(items // 4, MIN_WARPS // counters)))
    sums = state.new_empty(counters, blocks, plan.table, LANES)
    arguments = (*read, sums, images, plan.of_counter, blocks, number, *sizes)
    launch(table_gradients_kernel, counters * blocks, arguments, constants, num_warps=1)

    return [grad_attention, grad_boxes, *weight_gradients(weights, sums.sum((1, 3)), plan, launch)]


def write_tables(weights: Sequence[Tensor], state: Tensor, plan: Plan, launch: Launch = launch_now) -> None:
    """Write the tables of all counters behind what is saved of all images."""
    arguments = (*weights, state, plan.images, plan.state, plan.table)
    launch(table_kernel, plan.counters, arguments, plan.of_functions, num_warps=1)


def weight_gradients(
    weights: Sequence[Tensor], grad_tables: Tensor, plan: Plan, launch: Launch = launch_now
) -> list[Tensor]:
    """Return the gradients of the weights from those of the tables ``[M, T]``."""
    w = PresenceWeights(*weights)
    grads = [torch.empty_like(weight) for weight in weights]
    arguments = (w.calibration, w.overlap, w.headroom, w.order, w.step, grad_tables, *grads, plan.table)
    launch(table_backward_kernel, plan.counters, arguments, plan.of_functions, num_warps=1)
    return grads
