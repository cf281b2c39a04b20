"""Three photos to try things on, which ship with the package; `data/sample_photos/NOTICE.md` names their licence."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "data" / "sample_photos"
NAMES = ("buses_in_the_rain.jpg", "riders_on_a_beach.jpg", "lobby_with_suitcases.jpg")


def sample_photos() -> list[Path]:
    """Return three photos: buses and cars in the rain, two riders on a beach, a lobby full of suitcases.

    >>> [path.name for path in sample_photos()]
    ['buses_in_the_rain.jpg', 'riders_on_a_beach.jpg', 'lobby_with_suitcases.jpg']
    """
    return [FOLDER / name for name in NAMES]
