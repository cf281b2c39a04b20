"""Launchers: allocate, and launch programs for images and for tiles of their pairs."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tallybox.kernels.cuda import launch
from tallybox.kernels.operators import Inputs
from tallybox.presence.cuda.backward import pairs_backward_kernel, presence_backward_kernel
from tallybox.presence.cuda.forward import pairs_forward_kernel, presence_forward_kernel
from tallybox.presence.cuda.image import saved_size, scratch_size
from tallybox.presence.cuda.table import table_backward_kernel, table_kernel
from tallybox.presence.cuda.table_gradients import table_gradients_kernel
from tallybox.presence.weights import segments_of_row, segments_of_table, table_size

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


def state_size(inputs: Inputs, max_objects: int, save_state: bool) -> int:
    """Return how many numbers are saved; the forward kernel needs them itself."""
    images, number = inputs.attention.shape
    return images * saved_size(number, max_objects)


def forward(inputs: Inputs, results: Sequence[Tensor], state: Tensor) -> None:
    """Write features, presence, distribution and the saved state."""
    images = len(inputs.attention)
    if images:
        arguments = _arguments(inputs, state, results[-1].shape[1])
        arguments |= dict(zip(("features", "presence", "distribution"), results, strict=True))
        launch(pairs_forward_kernel, len(inputs.weight) * arguments["BLOCKS_PER_COUNTER"], arguments, num_warps=1)
        launch(presence_forward_kernel, -(-images // arguments["G"]), arguments, num_warps=_round_warps(inputs))


def backward(
    inputs: Inputs, state: Tensor, grads: Sequence[Tensor], boxes_need_grad: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of logits, boxes and tables; boxes get theirs whether or not they need it."""
    logit, boxes, tables, _ = inputs
    (images, number), (counters, size) = logit.shape, tables.shape
    grad_logit, grad_boxes = torch.empty_like(logit), torch.empty_like(boxes)
    if not images:
        return grad_logit, grad_boxes, torch.zeros_like(tables)
    items = -(-images // counters * number // LANES) * -(-number // LANES)
    blocks = max(1, min(MAX_WARPS // counters, items, max(items // 4, MIN_WARPS // counters)))
    classes = grads[-1].shape[1]
    scratch = logit.new_empty(images, scratch_size(number))
    sums = tables.new_empty(counters, blocks, size, LANES)
    arguments = _arguments(inputs, state, classes) | {
        **dict(zip(("grad_features", "grad_presence", "grad_distribution"), grads, strict=True)),
        "grad_logit": grad_logit,
        "grad_boxes": grad_boxes,
        "scratch": scratch,
        "SCRATCH_SIZE": scratch.shape[1],
        "sums": sums,
        "SUMS_PER_COUNTER": blocks,
    }
    launch(presence_backward_kernel, -(-images // arguments["G"]), arguments, num_warps=_round_warps(inputs))
    launch(pairs_backward_kernel, counters * arguments["BLOCKS_PER_COUNTER"], arguments, num_warps=1)
    launch(table_gradients_kernel, counters * blocks, arguments, num_warps=1)
    return grad_logit, grad_boxes, sums.sum((1, 3))


def _arguments(inputs: Inputs, state: Tensor, classes: int) -> dict[str, Any]:
    """Return the arguments that forward and backward kernels share, by name."""
    logit, boxes, tables, mask = inputs
    (images, number), counters = logit.shape, len(tables)
    is_small = number <= MAX_BOXES_FOR_A_WARP
    return {
        "logit": logit,
        "boxes": boxes,
        "tables": tables,
        "mask": mask,
        "state": state,
        "IMAGES": images,
        "N": number,
        "IMAGES_PER_COUNTER": images // counters,
        "BLOCKS_PER_COUNTER": -(-images // counters * number // LANES),
        "STATE_SIZE": len(state) // images,
        "TABLE_SIZE": tables.shape[1],
        "HAS_MASK": mask is not None,
        "S": segments_of_table(tables.shape[1]),
        "MAX_OBJECTS": classes - 1,
        "CLASSES": 1 << (classes - 1).bit_length(),
        "G": GROUP if is_small and images >= MIN_IMAGES_FOR_GROUPS else 1,
        "R": LANES * _round_warps(inputs),
        "LANES": LANES,
    }


def _round_warps(inputs: Inputs) -> int:
    """Return how many warps go through the rounds of an image together."""
    return 1 if inputs.attention.shape[1] <= MAX_BOXES_FOR_A_WARP else ROUND_WARPS


def make_tables(rows: Tensor) -> Tensor:
    """Return ``[M, T]``, as `PresenceFunctions.table`, from `PresenceWeights.rows` ``[M, R]``."""
    tables = rows.new_empty(len(rows), table_size(rows.shape[1]))
    launch(table_kernel, len(rows), _table_arguments(rows, tables) | {"tables": tables}, num_warps=1)
    return tables


def tables_backward(rows: Tensor, grad_tables: Tensor) -> Tensor:
    """Return the gradient of ``rows`` from that of the tables."""
    grad_rows, grad_tables = torch.empty_like(rows), grad_tables.contiguous()
    arguments = _table_arguments(rows, grad_tables) | {"grad_tables": grad_tables, "grad_rows": grad_rows}
    launch(table_backward_kernel, len(rows), arguments, num_warps=1)
    return grad_rows


def _table_arguments(rows: Tensor, tables: Tensor) -> dict[str, Tensor | int]:
    segments = segments_of_row(rows.shape[1])
    power = 1 << max(segments - 1, 1).bit_length()
    return {"rows": rows, "ROW_SIZE": rows.shape[1], "TABLE_SIZE": tables.shape[1], "S": segments, "SP": power}
