"""The model that comes with the package: learned from photos that the embedded PicoDet saw. See docs/ask.md."""

from __future__ import annotations

from pathlib import Path

SHIPPED_MODEL = Path(__file__).parent / "data" / "photos_presence.safetensors"
