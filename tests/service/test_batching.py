import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from benchmarks.synthetic_photos import made_up_photos
from starlette.exceptions import HTTPException

from tallybox.service.batching import Batcher, CountJob, count_jobs
from tests.support.estimators import small_estimator

PHOTOS = made_up_photos(12, seed=9)[0]


def test_jobs_counted_together_are_answered_as_alone():
    jobs = [CountJob((photo,), (18, 1) if number % 3 else None) for number, photo in enumerate(PHOTOS)]
    jobs.append(CountJob(tuple(PHOTOS[:3]), (17,)))
    jobs.append(CountJob((), None))
    for job, answers in zip(jobs, count_jobs(small_estimator(), jobs), strict=True):
        alone = small_estimator().predict_many(job.images, job.categories)
        assert len(answers) == len(alone)
        for said, expected in zip(answers, alone, strict=True):
            assert said.keys() == expected.keys()
            for key, prediction in said.items():
                assert prediction.count == expected[key].count
                assert prediction.expected == pytest.approx(expected[key].expected, abs=1e-4)


class Held:
    """Counts jobs by their number of images once it is let go, and remembers the batches."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.batches: list[int] = []

    def __call__(self, jobs):
        self.let_go.wait(10)
        self.batches.append(len(jobs))
        if any(job.categories == (13,) for job in jobs):
            raise RuntimeError("bad luck")
        return [[{}] * len(job.images) for job in jobs]


def run(work, *, images_at_once: int = 4, max_pending: int = 100):
    counting = Held()
    with ThreadPoolExecutor(1) as thread:
        batcher = Batcher(counting, thread, images_at_once=images_at_once, max_pending=max_pending)
        try:
            return asyncio.run(work(batcher, counting)), counting.batches
        finally:
            counting.let_go.set()


def test_what_waits_is_counted_together_up_to_the_limit():
    async def work(batcher, counting):
        asked = [asyncio.create_task(batcher.submit(CountJob((PHOTOS[0],), None))) for _ in range(9)]
        await asyncio.sleep(0.05)
        counting.let_go.set()
        return await asyncio.gather(*asked)

    answers, batches = run(work)
    assert answers == [[{}]] * 9
    assert batches == [1, 4, 4] or batches == [4, 4, 1]


def test_more_than_may_wait_are_refused_and_the_others_answered():
    async def work(batcher, counting):
        asked = [asyncio.create_task(batcher.submit(CountJob((PHOTOS[0],), None))) for _ in range(8)]
        await asyncio.sleep(0.05)
        counting.let_go.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    answers, _ = run(work, images_at_once=1, max_pending=3)
    refused = [answer for answer in answers if isinstance(answer, HTTPException)]
    assert {answer.status_code for answer in refused} == {429}
    assert 4 <= len(refused) <= 5
    assert all(answer == [{}] for answer in answers if not isinstance(answer, HTTPException))


def test_a_failure_is_told_to_those_it_concerns_and_counting_goes_on():
    async def work(batcher, counting):
        counting.let_go.set()
        with pytest.raises(RuntimeError, match="bad luck"):
            await batcher.submit(CountJob((PHOTOS[0],), (13,)))
        return await batcher.submit(CountJob((PHOTOS[0],), None))

    assert run(work)[0] == [{}]
