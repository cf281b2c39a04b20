"""Batching: requests that arrive while others are being counted are counted together.

No request waits for others to arrive: the pending ones are counted as soon as the counting thread is free. A single
request is answered at once; under load, batches grow by themselves.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby

from starlette.exceptions import HTTPException

from tallybox.concurrency import single_threaded_torch
from tallybox.detections.detections import Detections
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.prediction import ImagePredictions

JobPredictions = list[ImagePredictions]  # one for each image of a job


@dataclass(frozen=True)
class CountJob:
    """The images of one request, and the ids of the categories that it names, if any."""

    images: Sequence[Detections]
    categories: Sequence[int] | None


CountJobs = Callable[[Sequence[CountJob]], list[JobPredictions]]
PendingJob = tuple[CountJob, asyncio.Future[JobPredictions]]


def count_jobs(estimator: CountEstimator, jobs: Sequence[CountJob]) -> list[JobPredictions]:
    """Count all jobs; neighbours that name the same categories in one batch."""
    results: list[JobPredictions] = []
    with single_threaded_torch():
        for categories, group in groupby(jobs, key=lambda job: job.categories):
            together = list(group)
            counted = estimator.predict_each((image for job in together for image in job.images), categories)
            results += [[next(counted)[1] for _ in job.images] for job in together]
    return results


class Batcher:
    """Collects jobs and counts them on a thread, up to ``images_at_once`` images together."""

    def __init__(self, count: CountJobs, thread: ThreadPoolExecutor, *, images_at_once: int, max_pending: int) -> None:
        self._count = count
        self._thread = thread
        self._images_at_once = images_at_once
        self._max_pending = max_pending
        self._pending: deque[PendingJob] = deque()
        self._running: asyncio.Task[None] | None = None

    async def submit(self, job: CountJob) -> JobPredictions:
        """Wait for a job's predictions."""
        if len(self._pending) >= self._max_pending:
            raise HTTPException(429, "Too many pending requests; try again later.")
        result: asyncio.Future[JobPredictions] = asyncio.get_running_loop().create_future()
        self._pending.append((job, result))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await result

    async def _run(self) -> None:
        # Answers go out and the next batch fills before it is counted. A thread that took its batches by itself made
        # smaller ones, and needed 14 % more processor time a request with 200 clients.
        while batch := self._next_batch():
            jobs, results = zip(*batch, strict=True)
            answers: list[JobPredictions] | list[Exception]
            try:
                answers = await asyncio.get_running_loop().run_in_executor(self._thread, self._count, jobs)
            except Exception as error:
                answers = [error] * len(jobs)
            for result, answer in zip(results, answers, strict=True):
                if result.done():  # its client may have disconnected
                    continue
                if isinstance(answer, Exception):
                    result.set_exception(answer)
                else:
                    result.set_result(answer)
        self._running = None

    def _next_batch(self) -> list[PendingJob]:
        batch: list[PendingJob] = []
        images = 0
        while self._pending and (not batch or images + len(self._pending[0][0].images) <= self._images_at_once):
            job, result = self._pending.popleft()
            if not result.done():
                batch.append((job, result))
                images += len(job.images)
        return batch
