"""Small photos, each with pixels of its own, in memory and as files."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from tallybox.photos.images import Photo

SIZES_WH = ((64, 48), (48, 64), (64, 48))


def small_image(size_wh: tuple[int, int], seed: int) -> Image.Image:
    """Return an image of noise in blocks of 8 pixels, which shrinking does not average away."""
    width, height = size_wh
    blocks = np.random.default_rng(seed).integers(0, 256, (-(-height // 8), -(-width // 8), 3), np.uint8)
    return Image.fromarray(blocks.repeat(8, 0).repeat(8, 1)[:height, :width])


def small_photos(sizes_wh: Sequence[tuple[int, int]] = SIZES_WH) -> list[Photo]:
    """Return photos of some sizes."""
    return [Photo(small_image(size, seed), size, f"{seed}.png") for seed, size in enumerate(sizes_wh)]


def with_fewer_pixels(photo: Photo) -> Photo:
    """Return a photo as a reader gives it that has thrown half of the pixels away each way."""
    return Photo(photo.image, (2 * photo.size_wh[0], 2 * photo.size_wh[1]), photo.name)


def save_photos(folder: Path, number: int = 3) -> list[Path]:
    """Write some photos and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{index:02}.png" for index in range(number)]
    for index, path in enumerate(paths):
        small_image(SIZES_WH[index % len(SIZES_WH)], index).save(path)
    return paths
