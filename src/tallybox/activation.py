"""The paper's piecewise linear activation: monotone, f(0) = 0, f(1) = 1, shape learned.

Legend: S segments; knots are the S + 1 values of f at 0, 1/S, ... 1.
"""

import torch
from torch import Tensor, nn

from tallybox.errors import InputError


def activation_knots(weight: Tensor) -> Tensor:
    """Return the values of f at the segment borders: ``[..., S]`` to ``[..., S + 1]``.

    Segment i rises by ``|w_i| / sum |w|``. Only the ratios of the weights matter; where all of them are 0 the function
    is the straight line.
    """
    size = weight.abs()
    largest = size.detach().amax(-1, keepdim=True)
    all_zero = largest == 0
    # Dividing by the largest first keeps the sum finite; a common factor changes neither f nor its gradient.
    size = torch.where(all_zero, 1, size / torch.where(all_zero, 1, largest))
    rise = size.cumsum(-1)
    return nn.functional.pad(rise / rise[..., -1:], (1, 0))


def interpolate_knots(x: Tensor, knots: Tensor) -> Tensor:
    """Evaluate f at x: ``[...]`` and ``[..., S + 1]``, leading dimensions broadcast, to ``[...]``.

    On a knot the slope is that of the segment to its right (at 1, to its left).
    """
    segments = knots.shape[-1] - 1
    position = x * segments
    # Clamped as a whole number: NaN gives some valid index, and shows in the fraction.
    index = position.detach().floor().long().clamp(0, segments - 1)
    fraction = (position - index).unsqueeze(-1)
    shape = torch.broadcast_shapes(x.shape, knots.shape[:-1])
    index = index.unsqueeze(-1).expand(*shape, 1)
    ends = knots.expand(*shape, segments + 1).gather(-1, torch.cat((index, index + 1), dim=-1))
    left, right = ends[..., :1], ends[..., 1:]
    return (left + fraction * (right - left)).squeeze(-1)


def piecewise_linear(x: Tensor, weight: Tensor) -> Tensor:
    """Apply the monotone function that ``weight`` describes (paper, appendix A).

    ``x`` is ``[...]`` with values in [0, 1]; ``weight`` is ``[..., S]``, its leading dimensions broadcast with the
    shape of ``x``: a plain ``[S]`` applies one function everywhere.

    >>> weight = torch.tensor([1.0, 0.0, 0.0, 1.0])  # rises at both ends, flat between
    >>> piecewise_linear(torch.tensor([0.0, 0.125, 0.5, 1.0]), weight)
    tensor([0.0000, 0.2500, 0.5000, 1.0000])
    """
    if weight.dim() < 1 or weight.shape[-1] < 1:
        raise InputError(f"weight must have shape [..., segments], but got {list(weight.shape)}")
    return interpolate_knots(x, activation_knots(weight))


class PiecewiseLinear(nn.Module):
    """A learned monotone function from [0, 1] to [0, 1], started as the identity.

    >>> PiecewiseLinear(segments=8)(torch.tensor([0.3])).item()
    0.30000001192092896
    """

    def __init__(self, segments: int = 16) -> None:
        super().__init__()
        if segments < 1:
            raise InputError(f"segments must be at least 1, but got {segments}")
        self.weight = nn.Parameter(torch.ones(segments))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the function elementwise."""
        return piecewise_linear(x, self.weight)

    def extra_repr(self) -> str:
        return f"segments={self.weight.shape[-1]}"
