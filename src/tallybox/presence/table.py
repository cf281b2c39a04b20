"""From weights to the table that kernels read; on a GPU by an operator of its own."""

from typing import Any

import torch
from torch import Tensor

from tallybox.kernels.operators import define_operator, launchers, refuse_second_derivative
from tallybox.presence.weights import PresenceFunctions, PresenceWeights, table_size


def table_of(weights: PresenceWeights, backend: str) -> Tensor:
    """Return the table that kernels read ``[..., T]``; on a GPU in one launch."""
    if backend != "triton":
        return PresenceFunctions.of(weights).table()
    rows = weights.rows()
    tables: Tensor = table_operator(rows.reshape(-1, rows.shape[-1]))
    return tables.reshape(*weights.leading, -1)


table_operator = define_operator(
    "presence_table",
    "(Tensor rows) -> Tensor",
    lambda rows: launchers("tallybox.presence", "triton").make_tables(rows),
    lambda rows: rows.new_empty(rows.shape[0], table_size(rows.shape[1])),
)
table_backward_operator = define_operator(
    "presence_table_backward",
    "(Tensor rows, Tensor grad_tables) -> Tensor",
    lambda rows, grad_tables: launchers("tallybox.presence", "triton").tables_backward(rows, grad_tables),
    lambda rows, grad_tables: torch.empty_like(rows),
)


def _save_rows(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


torch.library.register_autograd(
    "tallybox::presence_table",
    lambda ctx, grad_tables: table_backward_operator(*ctx.saved_tensors, grad_tables),
    setup_context=_save_rows,
)
torch.library.register_autograd("tallybox::presence_table_backward", refuse_second_derivative)
