"""Which device torch computes on."""

import torch

from tallybox.errors import InputError

Device = str | torch.device | None  # None is the GPU where there is one, else the CPU


def device_or_default(device: Device) -> torch.device:
    """Return the named device, by default the GPU where there is one."""
    has_gpu = torch.cuda.is_available()
    try:
        chosen = torch.device(device or ("cuda" if has_gpu else "cpu"))
    except RuntimeError:
        raise InputError(f"torch knows no device {device!r}") from None
    if chosen.type == "cuda" and not has_gpu:
        raise InputError(f"torch finds no GPU for the device {str(device)!r}")
    return chosen
