"""Checkpoints of the published module: where its eight used activations are, and reading them.

The published module allocates 16 activations and uses 8, by number; entry 0 of each 17-long weight
is a fixed zero, which some copies of the module leave out.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from tallybox.errors import InputError

USED_ACTIVATIONS = 8
ALLOCATED_ACTIVATIONS = 16


def published_key(activation: int) -> str:
    """Return the published name of an activation's weight; number k is the paper's f(k + 1)."""
    return f"f.{activation}.weight"


def read_published_weight(state_dict: Mapping[str, Tensor]) -> Tensor:
    """Return the eight activations of the one counter in a checkpoint, ``[8, segments]``."""
    first = published_key(0)
    prefixes = [key.removesuffix(first) for key in state_dict if key == first or key.endswith("." + first)]
    if len(prefixes) != 1:
        found = "none" if not prefixes else ", ".join(repr(prefix) for prefix in prefixes)
        raise InputError(
            f"state_dict must hold one published counter ({first} ... {published_key(USED_ACTIVATIONS - 1)}, "
            f"after any prefix), but got {found} among {len(state_dict)} keys; pass the counter's part alone"
        )
    rows = []
    for activation in range(USED_ACTIVATIONS):
        key = prefixes[0] + published_key(activation)
        if key not in state_dict:
            raise InputError(f"state_dict must hold {key}, but it is missing; the checkpoint is incomplete")
        rows.append(drop_fixed_zero(key, state_dict[key]))
    lengths = {len(row) for row in rows}
    if len(lengths) != 1:
        raise InputError(f"published activations must have equally many segments, but got {sorted(lengths)}")
    return torch.stack(rows)


def drop_fixed_zero(key: str, weight: Tensor) -> Tensor:
    """Return the segments' weights alone, ``[segments]``, of a 17 or 16 long published weight."""
    if weight.dim() != 1 or len(weight) not in (16, 17):
        raise InputError(f"{key} must have 16 or 17 entries, but got shape {list(weight.shape)}")
    if len(weight) == 16:
        return weight
    if weight[0] != 0:
        raise InputError(
            f"{key} must start with the fixed zero of the published module, but got {weight[0].item()}; "
            "this checkpoint was not made by it"
        )
    return weight[1:]
