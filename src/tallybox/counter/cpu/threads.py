"""Share images out among threads; kernels release the interpreter's lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import torch

# Fewer steps of a kernel than this are not worth waking another thread for.
STEPS_PER_THREAD = 20_000


@cache
def _threads(number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, thread_name_prefix="tallybox")


os.register_at_fork(after_in_child=_threads.cache_clear)  # a forked child has none of its parent's threads


def share_out(images: int, steps_per_image: int, run: Callable[[int, int, int], None]) -> None:
    """Call run(chunk, first, stop) for consecutive chunks of the images, on as many threads as torch uses."""
    chunks = chunk_number(images, steps_per_image)
    borders = np.linspace(0, images, chunks + 1).astype(int).tolist()
    if chunks == 1:
        run(0, 0, images)
        return
    pool = _threads(torch.get_num_threads())
    for done in [pool.submit(run, chunk, *borders[chunk : chunk + 2]) for chunk in range(chunks)]:
        done.result()


def chunk_number(images: int, steps_per_image: int) -> int:
    """Return into how many chunks the images are worth dividing."""
    worth = images * steps_per_image // STEPS_PER_THREAD
    return int(max(1, min(images, worth, torch.get_num_threads())))
