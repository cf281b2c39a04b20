"""Which device a command computes on."""

from __future__ import annotations

import torch


def chosen_device(device: str | None) -> torch.device:
    """Return the named device, or the GPU where there is one."""
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
