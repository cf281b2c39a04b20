"""Launchers: allocate, and launch one program for each image."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from tallybox.kernels.cuda.launch import launch
from tallybox.presence.cuda.backward import presence_backward_kernel
from tallybox.presence.cuda.forward import presence_forward_kernel
from tallybox.presence.cuda.image import saved_size, scratch_size
from tallybox.presence.cuda.table_gradients import table_gradients_kernel
from tallybox.presence.weights import CALIBRATION

TILE = 16  # the side of a tile, one warp's: at 100 boxes 1.2 times as fast as 32 with four warps, H200

# A lane of a warp for each proposal, and enough warps to fill a GPU; each lane has a table of sums of its own.
LANES = 32
MAX_WARPS = 4096


def forward(
    attention: Tensor,
    boxes: Tensor,
    tables: Tensor,
    mask: Tensor | None,
    features: Tensor,
    presence: Tensor,
    distribution: Tensor,
    state: Tensor,
    logits: bool,
) -> None:
    """Write features, presence, distribution and the saved state."""
    if len(attention):
        launch(
            presence_forward_kernel,
            len(attention),
            (attention, boxes, mask, tables, features, presence, distribution, state),
            num_warps=1,
            **_sizes(attention, tables, mask, state, logits),
            **_class_sizes(distribution.shape[1]),
        )


def backward(
    attention: Tensor,
    boxes: Tensor,
    tables: Tensor,
    mask: Tensor | None,
    state: Tensor,
    grad_features: Tensor,
    grad_presence: Tensor,
    grad_distribution: Tensor,
    logits: bool,
    boxes_need_grad: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of attention, boxes and tables; boxes get theirs whether or not they need it."""
    (images, number), (counters, size) = attention.shape, tables.shape
    grad_attention, grad_boxes = torch.empty_like(attention), torch.empty_like(boxes)
    if not images:
        return grad_attention, grad_boxes, torch.zeros_like(tables)
    scratch = attention.new_empty(images, scratch_size(number, grad_distribution.shape[1] - 1))
    inputs = (attention, boxes, mask, tables, state)
    sizes = _sizes(attention, tables, mask, state, logits) | {"SCRATCH_SIZE": scratch.shape[1]}
    launch(
        presence_backward_kernel,
        images,
        (*inputs, grad_features, grad_presence, grad_distribution, grad_attention, grad_boxes, scratch),
        num_warps=1,
        **sizes,
        **_class_sizes(grad_distribution.shape[1]),
    )
    blocks = min(max(MAX_WARPS // counters, 1), images // counters)
    sums = tables.new_empty(counters, blocks, size, LANES)
    launch(
        table_gradients_kernel,
        counters * blocks,
        (*inputs, scratch, sums),
        num_warps=1,
        **sizes,
        BLOCKS_PER_COUNTER=blocks,
        LANES=LANES,
    )
    return grad_attention, grad_boxes, sums.sum((1, 3))


def _sizes(attention: Tensor, tables: Tensor, mask: Tensor | None, state: Tensor, logits: bool) -> dict[str, int]:
    """Return the arguments that all kernels take."""
    return {
        "N": attention.shape[1],
        "IMAGES_PER_COUNTER": len(attention) // len(tables),
        "STATE_SIZE": state.shape[1],
        "TABLE_SIZE": tables.shape[1],
        "HAS_MASK": mask is not None,
        "LOGITS": logits,
        "S": (tables.shape[1] - CALIBRATION) // 3 - 1,
    }


def _class_sizes(classes: int) -> dict[str, int]:
    return {"MAX_OBJECTS": classes - 1, "CLASSES": triton.next_power_of_2(classes), "B": TILE}


def state_size(number: int, max_objects: int, save_state: bool) -> int:
    """Return how many numbers are saved of an image; the forward kernel needs them itself."""
    return saved_size(number, max_objects)
