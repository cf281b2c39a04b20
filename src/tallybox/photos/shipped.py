"""What ships with the package: the estimator fitted to the embedded PicoDet-S, and three photos to try things on.

docs/results/estimator/shipped.md describes the estimator, `data/sample_photos/NOTICE.md` names the photos' licence.
"""

from pathlib import Path

from tallybox.estimator.estimator import CountEstimator

DATA = Path(__file__).parent / "data"
SHIPPED_ESTIMATOR = DATA / "picodet_estimator.safetensors"
SAMPLE_COUNTS = {  # COCO's labels of the sample photos
    "buses_in_the_rain.jpg": {"bus": 2, "car": 4, "person": 5, "motorcycle": 1},
    "riders_on_a_beach.jpg": {"horse": 2, "person": 2},
    "lobby_with_suitcases.jpg": {"suitcase": 12},
}


def shipped_estimator() -> CountEstimator:
    """Load the estimator."""
    return CountEstimator.load(SHIPPED_ESTIMATOR)


def sample_photos() -> list[Path]:
    """Return three photos: buses and cars in the rain, two riders on a beach, a lobby full of suitcases.

    >>> [path.name for path in sample_photos()]
    ['buses_in_the_rain.jpg', 'riders_on_a_beach.jpg', 'lobby_with_suitcases.jpg']
    """
    return [DATA / "sample_photos" / name for name in SAMPLE_COUNTS]
