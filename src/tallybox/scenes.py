"""A ready-made example: proposals whose right count everybody can see."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class CatProposals:
    """Proposals over a picture, with what each of them shows."""

    size_wh: tuple[int, int]
    boxes: Tensor  # [N, 4] corners
    labels: tuple[str, ...]  # what each proposal shows


def cats() -> CatProposals:
    """The paper's example (figure 1): four proposals, three cats, one of them detected twice."""
    tabby, black, white = [2.0, 5.0, 22.0, 19.0], [28.0, 2.0, 46.0, 17.0], [52.0, 6.0, 70.0, 20.0]
    return CatProposals(
        size_wh=(72, 22),
        boxes=torch.tensor([tabby, tabby, black, white]),
        labels=("tabby", "tabby again", "black", "white"),
    )
