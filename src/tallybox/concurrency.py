"""Share images out among threads; kernels release the interpreter's lock."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import islice, pairwise
from typing import Any, TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

# Fewer steps of a kernel than this are not worth waking another thread for (measured on two AMD EPYC cores: waking
# one took 0.1 ms, and 256 images of 10 boxes, 700,000 steps, as long on one thread as on two).
STEPS_PER_THREAD = 400_000


@cache
def _threads(number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, thread_name_prefix="tallybox")


os.register_at_fork(after_in_child=_threads.cache_clear)  # a forked child has none of its parent's threads


_threads_of_kernels: ContextVar[int | None] = ContextVar("threads of kernels", default=None)


def kernel_threads() -> int:
    """Return on how many threads kernels run: as many as torch's operations, or had before `single_threaded_torch`."""
    return _threads_of_kernels.get() or torch.get_num_threads()


@contextmanager
def single_threaded_torch() -> Iterator[None]:
    """Run torch's own operations on one thread within the block, and kernels on all as before.

    Many small operations in a row gain nothing from a second thread, and where another program has its core they
    wait for it at every step (measured on two busy cores: a point of the toy task took 287 s instead of 70).
    """
    threads = torch.get_num_threads()
    token = _threads_of_kernels.set(kernel_threads())
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        _threads_of_kernels.reset(token)


@contextmanager
def _single_threads(number: int) -> Iterator[ThreadPoolExecutor]:
    """Give threads of which each runs torch's operations, and kernels, by itself."""
    before = torch.get_num_threads()
    with ThreadPoolExecutor(number, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(before)  # for threads that start later: they take what was set last, anywhere


@contextmanager
def run_concurrently(at_once: int) -> Iterator[Callable[[list[Callable[[], Any]]], list[Any]]]:
    """Give a function that calls functions of many small operations and returns their results, so many at once.

    Each has a thread to itself. That leaves no core idle while small operations run; kernels that share one batch out
    among cores do.
    """
    with single_threaded_torch():
        if at_once == 1:
            yield lambda functions: [function() for function in functions]
            return
        with _single_threads(at_once) as pool:
            yield lambda functions: [done.result() for done in [pool.submit(function) for function in functions]]


def map_in_order(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield ``function(item)`` for each item, in order, as many at once as kernels have threads.

    For functions of many small operations, each on one thread. No more items are taken ahead than that.

    >>> list(map_in_order(abs, [-3, 1, -2]))
    [3, 1, 2]
    """
    threads = kernel_threads()
    if threads == 1:
        yield from map(function, items)
        return
    with _single_threads(threads) as pool:
        yield from _submit_ahead(pool, function, items, threads)


def map_ahead(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Yield ``function(item)`` for each item, in order; threads are a few items ahead. For reading and copying.

    >>> list(map_ahead(abs, [-3, 1, -2], threads=2))
    [3, 1, 2]
    """
    with ThreadPoolExecutor(threads) as pool:
        yield from _submit_ahead(pool, function, items, threads + 2)


def _submit_ahead(
    pool: ThreadPoolExecutor, function: Callable[[Item], Result], items: Iterable[Item], ahead: int
) -> Iterator[Result]:
    waiting: deque[Future[Result]] = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def in_batches(items: Iterable[Item], number: int) -> Iterator[list[Item]]:
    """Yield items in lists of so many, the last with what is left."""
    remaining = iter(items)
    while batch := list(islice(remaining, number)):
        yield batch


def chunks_of(items: int, steps_per_item: int) -> list[tuple[int, int]]:
    """Return where chunks of the items begin and end, one for each thread that is worth waking."""
    chunks = max(1, min(items, items * steps_per_item // STEPS_PER_THREAD, kernel_threads()))
    return list(pairwise(items * chunk // chunks for chunk in range(chunks + 1)))


def run_chunks(chunks: list[tuple[int, int]], run: Callable[[int, int, int], None]) -> None:
    """Call run(number, first, stop) for each chunk, the first on the caller's own thread."""
    others = list(enumerate(chunks))[1:]
    waiting = [_threads(kernel_threads()).submit(run, number, *chunk) for number, chunk in others]
    run(0, *chunks[0])
    for done in waiting:
        done.result()
