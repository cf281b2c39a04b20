"""Threads: an ordered map, batches, and chunks of images for kernels, which release the interpreter's lock."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import islice, pairwise
from threading import Barrier
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

# Kernels with fewer steps than this run on one thread. Measured on two AMD EPYC cores: waking a thread took 0.1 ms, and
# 256 images of 10 boxes (700,000 steps) took as long on one thread as on two.
STEPS_PER_THREAD = 400_000


@cache
def _threads(number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, thread_name_prefix="tallybox")


@cache
def _single_threads(number: int) -> ThreadPoolExecutor:
    """Return a pool of threads in which torch and kernels use one thread each."""
    pool = ThreadPoolExecutor(number, thread_name_prefix="tallybox-single")
    started = Barrier(number + 1)
    threads = kernel_threads()
    for _ in range(number):
        pool.submit(_use_one_thread, started)
    _set_threads_of_new_threads(threads)  # all threads run before one changes the number, which is then reset at once
    started.wait()
    started.wait()
    _set_threads_of_new_threads(threads)
    return pool


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    for pool in (_threads, _single_threads):  # a forked child has none of its parent's threads
        os.register_at_fork(after_in_child=pool.cache_clear)


def _use_one_thread(started: Barrier) -> None:
    torch.get_num_threads()  # a new thread takes over the number for new threads now, and not later
    started.wait()
    torch.set_num_threads(1)
    started.wait()


def _set_threads_of_new_threads(number: int) -> None:
    """Reset torch's number for new threads, which `torch.set_num_threads` sets along with the caller's own."""
    _threads(1).submit(torch.set_num_threads, number).result()  # kernels of one thread never use this pool


_threads_of_kernels: ContextVar[int | None] = ContextVar("threads of kernels", default=None)


def kernel_threads() -> int:
    """Return the number of threads of kernels: as many as torch uses, or used before `single_threaded_torch`."""
    return _threads_of_kernels.get() or torch.get_num_threads()


@contextmanager
def single_threaded_torch() -> Iterator[None]:
    """Run torch's own operations on one thread within the block; kernels and other Python threads keep theirs.

    Small operations gain nothing from a second thread. If another program occupies a core, they wait for it at every
    step (measured on two busy cores: a point of the toy task took 287 s instead of 70).
    """
    threads = torch.get_num_threads()
    token = _threads_of_kernels.set(kernel_threads())
    if threads > 1:
        torch.set_num_threads(1)
        _set_threads_of_new_threads(threads)
    try:
        yield
    finally:
        if threads > 1:
            torch.set_num_threads(threads)
        _threads_of_kernels.reset(token)


def call_single_threaded(function: Callable[[], Result]) -> Result:
    """Call a function on a thread in which torch and kernels use one thread.

    Unlike `single_threaded_torch`, it never changes torch's number for new threads, except when its threads start.
    """
    threads = torch.get_num_threads()
    return function() if threads == 1 else _single_threads(threads).submit(function).result()


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], *, threads: int | None = None, ahead: int = 0
) -> Iterator[Result]:
    """Yield ``function(item)`` for each item, in order, computed by several threads.

    ``threads`` is by default the number that kernels use. Each runs torch's operations by itself. No more than
    ``threads + ahead`` items are taken before their results are asked for.
    """
    number = threads or kernel_threads()
    if number == 1 and threads is None:
        yield from map(function, items)
        return
    pool, waiting = _single_threads(number), deque[Future[Result]]()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > number + ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def in_batches(items: Iterable[Item], number: int) -> Iterator[list[Item]]:
    """Yield items in lists of ``number``; the last may be shorter."""
    remaining = iter(items)
    while batch := list(islice(remaining, number)):
        yield batch


def chunks_of(items: int, steps_per_item: int) -> list[tuple[int, int]]:
    """Return the bounds of one chunk of the items for each thread worth waking."""
    chunks = max(1, min(items, items * steps_per_item // STEPS_PER_THREAD, kernel_threads()))
    return list(pairwise(items * chunk // chunks for chunk in range(chunks + 1)))


def run_chunks(chunks: list[tuple[int, int]], run: Callable[[int, int, int], None]) -> None:
    """Call run(number, first, stop) for each chunk, the first on the caller's own thread."""
    others = list(enumerate(chunks))[1:]
    waiting = [_threads(kernel_threads()).submit(run, number, *chunk) for number, chunk in others]
    run(0, *chunks[0])
    for done in waiting:
        done.result()
