"""Requests that come in while others are being counted are counted together.

Nobody waits for company: what has come in is counted as soon as the thread that counts is free. Alone, a request is
answered at once; under load, batches grow by themselves.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tallybox.detections.container import Detections
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.prediction import ImagePredictions
from tallybox.explorer.limits import Refused
from tallybox.kernels.threads import small_operations

Predictions = list[ImagePredictions]  # one for each image of a job


@dataclass(frozen=True)
class CountJob:
    """One request: its images, and the categories that it names, if it does."""

    images: tuple[Detections, ...]
    category_ids: tuple[int, ...] | None


def count_jobs(estimator: CountEstimator, jobs: Sequence[CountJob]) -> list[Predictions]:
    """Count all jobs, those that name the same categories in one go."""
    answers: dict[int, Predictions] = {}
    alike: dict[tuple[int, ...] | None, list[int]] = {}
    for number, job in enumerate(jobs):
        alike.setdefault(job.category_ids, []).append(number)
    with small_operations():
        for category_ids, numbers in alike.items():
            images = [image for number in numbers for image in jobs[number].images]
            counted = estimator.predict_each(images, category_ids)
            for number in numbers:
                answers[number] = [next(counted)[1] for _ in jobs[number].images]
    return [answers[number] for number in range(len(jobs))]


class Batcher:
    """Collects jobs and has them counted on a thread of its own, up to ``images_at_once`` together."""

    def __init__(
        self, count: Callable[[Sequence[CountJob]], list[Predictions]], *, images_at_once: int, waiting: int
    ) -> None:
        self._count = count
        self._images_at_once = images_at_once
        self._waiting_at_most = waiting
        self._waiting: deque[tuple[CountJob, asyncio.Future[Predictions]]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tallybox-count")
        self._running: asyncio.Task[None] | None = None

    async def submit(self, job: CountJob) -> Predictions:
        """Wait for a job's predictions."""
        if len(self._waiting) >= self._waiting_at_most:
            raise Refused(429, f"at most {self._waiting_at_most} requests may wait, but got one more; try again later")
        answer: asyncio.Future[Predictions] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, answer))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await answer

    def close(self) -> None:
        """End the thread, after what it is doing."""
        self._thread.shutdown()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while batch := self._next_batch():
                jobs = [job for job, _ in batch]
                try:
                    answers = await loop.run_in_executor(self._thread, self._count, jobs)
                except Exception as error:
                    for _, answer in batch:
                        if not answer.done():
                            answer.set_exception(error)
                    continue
                for (_, answer), predictions in zip(batch, answers, strict=True):
                    if not answer.done():  # whoever asked may have left
                        answer.set_result(predictions)
        finally:
            self._running = None

    def _next_batch(self) -> list[tuple[CountJob, asyncio.Future[Predictions]]]:
        batch: list[tuple[CountJob, asyncio.Future[Predictions]]] = []
        images = 0
        while self._waiting and (not batch or images + len(self._waiting[0][0].images) <= self._images_at_once):
            job, answer = self._waiting.popleft()
            if not answer.done():
                batch.append((job, answer))
                images += len(job.images)
        return batch
