"""Checks of the inputs of both components.

Shapes and dtypes are always checked; this does not read the data. Values (finite, in range, corners in order) take a
pass over the data, which on a GPU also makes the host wait. By default values are therefore checked for tensors in CPU
memory only, and never inside a compiled or exported graph; `check_values` changes that.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.autograd import forward_ad

from tallybox.errors import InputError, InputTypeError

ValueCheckMode = Literal["auto", "always", "never"]

# A weight computed as an interpolation may miss 1 by a rounding error; that is not a user's mistake.
UNIT_INTERVAL = (-1e-6, 1 + 1e-6)
# Longer sides are refused: the square of a union must fit into float32.
MAX_SIDE = 1e9
MASK_REMEDY = "use mask to leave proposals out"

_mode: ContextVar[ValueCheckMode] = ContextVar("tallybox.check_values", default="auto")


@contextmanager
def check_values(mode: ValueCheckMode) -> Iterator[None]:
    """Choose when values are checked within a block: "auto" (CPU tensors), "always" or "never".

    It holds for the current thread or asyncio task only, like `torch.no_grad`: a new thread starts with "auto".

    >>> with check_values("never"):
    ...     pass  # a hot loop over inputs known to be good
    """
    if mode not in get_args(ValueCheckMode):
        raise InputError(f'mode must be "auto", "always" or "never", but got {mode!r}')
    token = _mode.set(mode)
    try:
        yield
    finally:
        _mode.reset(token)


def is_transformed(*tensors: Tensor | None) -> bool:
    """Tell whether a `torch.func` transform or a forward-mode derivative is under way for one of the tensors."""
    if torch.compiler.is_compiling():
        return False
    given = (tensor for tensor in tensors if tensor is not None)
    return any(not _has_storage(tensor) or forward_ad.unpack_dual(tensor).tangent is not None for tensor in given)


def is_exporting() -> bool:
    """Tell whether a call becomes part of a graph for other runtimes."""
    # `torch.compiler.is_exporting` of PyTorch 2.11 is also true while `torch.compile` traces. That is done by Dynamo,
    # which exports do not use by default.
    if torch.compiler.is_compiling():
        return not torch.compiler.is_dynamo_compiling()
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined,no-untyped-call]  # torch neither lists nor annotates it


def _has_storage(tensor: Tensor) -> bool:
    """Tell whether a tensor holds numbers itself: the wrappers of transforms have no address, or none but 0."""
    try:
        return tensor.data_ptr() != 0 or tensor.numel() == 0 or tensor.is_meta
    except RuntimeError:
        return False


def check_proposal_shapes(
    attention: Tensor, boxes: Tensor | None, mask: Tensor | None, distance: Tensor | None, *, weight_leading: torch.Size
) -> None:
    """Raise unless ``attention [..., N]``, ``boxes [..., N, 4]``, ``mask [..., N]`` and the weights fit together.

    Instead of boxes there may be a ``distance [..., N, N]``. ``weight_leading`` are the leading dimensions of the
    weights, which must broadcast with the others.
    """
    check_floating("attention", attention)
    if attention.dim() < 1:
        raise InputError("attention must have shape [..., N], but got a single number; add a dimension")
    if (boxes is None) == (distance is None):
        raise InputError("pass boxes or distance; they exclude each other")
    leading, number = [attention.shape[:-1]], attention.shape[-1]
    if boxes is not None:
        check_floating("boxes", boxes)
        leading.append(_leading_dimensions("boxes", boxes, (number, 4), attention))
    if distance is not None:
        check_floating("distance", distance)
        leading.append(_leading_dimensions("distance", distance, (number, number), attention))
    if mask is not None:
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
            raise InputTypeError(f"mask must be a bool tensor, True for a real proposal, but got {kind}; call .bool()")
        leading.append(_leading_dimensions("mask", mask, (number,), attention))
    leading.append(weight_leading)
    if all(shape == leading[0] for shape in leading if shape):
        return  # the usual case; broadcasting takes 20 µs to say the same
    try:
        torch.broadcast_shapes(*leading)
    except RuntimeError:
        listed = ", ".join(str(list(shape)) for shape in leading)
        raise InputError(
            f"leading dimensions of attention, boxes, mask and weight must broadcast, but got {listed}"
        ) from None


def _leading_dimensions(name: str, tensor: Tensor, item: tuple[int, ...], attention: Tensor) -> torch.Size:
    """Return the leading dimensions of ``[..., *item]``; raise unless it is that, on the device of the attention."""
    if tensor.shape[-len(item) :] != item:
        is_transposed = name == "boxes" and tensor.shape[-2:] == item[::-1]
        hint = "; transpose it (tallybox.compat takes [B, 4, N])" if is_transposed else ""
        raise InputError(
            f"{name} must have shape [..., {', '.join(map(str, item))}] like attention {list(attention.shape)}, "
            f"but got {list(tensor.shape)}{hint}"
        )
    check_device(name, tensor, attention)
    return tensor.shape[: -len(item)]


def check_device(name: str, tensor: Tensor, attention: Tensor) -> None:
    """Raise unless the tensor is on the device of the attention, which need not be checked yet."""
    if isinstance(attention, Tensor) and tensor.device != attention.device:
        raise InputError(f"{name} must be on {attention.device} like attention, but got {tensor.device}")


def check_proposal_values(
    attention: Tensor, boxes: Tensor | None, mask: Tensor | None, distance: Tensor | None, *, logits: bool
) -> None:
    """Raise if a real proposal has a weight or a distance out of range, or corners not finite or out of order."""
    # While a graph is being made, a look at a value would fix it.
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]  # torch neither lists nor annotates it
        return
    mode = _mode.get()
    if mode == "never" or (mode == "auto" and not attention.is_cpu) or is_transformed(attention, boxes, mask, distance):
        return
    if attention.numel() and logits:
        largest = torch.finfo(attention.dtype).max
        _check_range("attention", attention.detach(), mask, (-largest, largest), "finite", MASK_REMEDY)
    elif attention.numel():
        remedy = "pass logits=True if these are scores before the logistic"
        _check_range("attention", attention.detach(), mask, UNIT_INTERVAL, "in [0, 1]", remedy)
    if boxes is not None and boxes.numel():
        _check_box_values(boxes, mask)
    if distance is not None and distance.numel():
        pairs = None if mask is None else mask.unsqueeze(-1) & mask.unsqueeze(-2)
        _check_range("distance", distance.detach(), pairs, UNIT_INTERVAL, "in [0, 1]", "divide by the largest")


def check_weight(weight: Tensor, attention: Tensor) -> None:
    """Raise unless ``weight`` is ``[..., 8, segments]``, on the device of the attention."""
    check_floating("weight", weight)
    if weight.dim() < 2 or weight.shape[-2] != 8 or weight.shape[-1] < 1:
        raise InputError(
            f"weight must have shape [..., 8, segments], one row for each activation, but got {list(weight.shape)}"
        )
    check_device("weight", weight, attention)


def check_count(name: str, value: int) -> None:
    """Raise unless ``value`` is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputTypeError(f"{name} must be a whole number, but got {value!r}")
    if value < 1:
        raise InputError(f"{name} must be at least 1, but got {value}")


def check_floating(name: str, tensor: Tensor) -> None:
    """Raise unless ``tensor`` is a floating point tensor."""
    if not isinstance(tensor, Tensor):
        raise InputTypeError(
            f"{name} must be a torch tensor, but got {type(tensor).__name__}; wrap it in torch.as_tensor"
        )
    if not tensor.is_floating_point():
        raise InputTypeError(f"{name} must be a floating point tensor, but got {tensor.dtype}; call .float() on it")


def _check_range(
    name: str, values: Tensor, mask: Tensor | None, bounds: tuple[float, float], expected: str, remedy: str
) -> None:
    """Raise if a real proposal, or pair, has a value out of bounds."""
    low, high = bounds
    if mask is None:  # the common case: one pass, nothing allocated; aminmax gives NaN where there is one
        smallest, largest = (extreme.item() for extreme in torch.aminmax(values))
        if low <= smallest and largest <= high:
            return
    _require(name, values, (values >= low) & (values <= high), mask, expected, remedy)


def _check_box_values(boxes: Tensor, mask: Tensor | None) -> None:
    corners = boxes.detach()
    size = corners[..., 2:] - corners[..., :2]
    if mask is None:  # a NaN or infinite corner makes a NaN or infinite size
        smallest, largest = (extreme.item() for extreme in torch.aminmax(size))
        if smallest >= 0 and largest <= MAX_SIDE:
            return
    _require("boxes", corners, corners.isfinite().all(-1), mask, "finite", MASK_REMEDY)
    expected = "corners x1 y1 x2 y2 with x1 <= x2 and y1 <= y2"
    remedy = "if they are left, top, width, height, convert them with tallybox.box_xywh_to_xyxy"
    _require("boxes", corners, (size >= 0).all(-1), mask, expected, remedy)
    expected = f"at most {MAX_SIDE:g} wide and high"
    _require("boxes", corners, (size <= MAX_SIDE).all(-1), mask, expected, "use a larger unit")


def _require(name: str, values: Tensor, good: Tensor, mask: Tensor | None, expected: str, remedy: str) -> None:
    """Raise at the first proposal, or pair, that is not ``good``; those that are masked out may hold anything."""
    if mask is not None:
        good = good | ~mask
    if bool(good.all()):
        return
    index = tuple(int(i) for i in (~good).nonzero()[0])
    corners = (4,) if name == "boxes" else ()
    value = values.expand(*good.shape, *corners)[index]  # a mask may have leading dimensions that the values lack
    raise InputError(f"{name} must be {expected}, but got {value.tolist()} at index {list(index)}; {remedy}")
