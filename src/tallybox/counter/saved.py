"""What a forward kernel saves for the backward kernel."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class SavedState(NamedTuple):
    """In the order of the operator's results; I images, M counters."""

    certainty: Tensor  # p_a + p_D [I]
    scale: Tensor  # s [I, N]
    products: Tensor  # [I, N, N] row products of Sim above the diagonal; below it D on CPU, Ã in CUDA's lanes
    rows: Tensor  # X [I, N, N], of Triton only
    tables: Tensor  # [M, 2, 8, S] where segments start and how much they rise, of Triton only
