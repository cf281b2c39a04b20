"""Until presence launches through `kernels.cuda.launch`."""

from __future__ import annotations

from typing import Any

import triton

SIZES = (
    "IMAGES", "MAX_OBJECTS", "IMAGES_PER_COUNTER", "BLOCKS_PER_COUNTER", "IMAGES_PER_BLOCK", "TILES", "BLOCKS",
    "PARTIAL",
)  # fmt: skip
TENSORS = (
    "attention", "boxes", "mask", "weight", "features", "state", "grad_result", "grad_features", "grad_attention",
     "grad_boxes", "grad_weight", "scratch", "tables", "presence", "distribution",
    "grad_presence", "grad_distribution", "owed", "slope", "shift", "calibration", "evidence", "overlap", "headroom",
    "order", "step", "sharpness", "grad_slope", "grad_shift", "grad_calibration", "grad_evidence", "grad_overlap",
    "grad_headroom", "grad_order", "grad_step", "grad_sharpness",
)  # fmt: skip


def kernel(*more_sizes: str) -> Any:
    """Compile a kernel that, once compiled, serves every call with the same constants (`launch` keeps it).

    So nothing is assumed of a size that happens to be 1 or a multiple of 16, nor of where a tensor lies in memory.
    """
    return triton.jit(do_not_specialize=[*SIZES, *more_sizes], do_not_specialize_on_alignment=[*TENSORS])
