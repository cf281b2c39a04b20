"""Tasks on a Ray cluster: a function is applied to many items on many machines, and the results come back in order.

Tasks rather than actors: a task whose machine is lost runs again on any other, whereas an actor comes back only where
there is capacity for another. The results are taken in the order of the items, each once, so that nothing is lost and
nothing comes twice. tallybox must be installed on every machine; what all tasks share travels from here.
"""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Generic, TypeVar

import torch

from tallybox.errors import TallyboxError

Item = TypeVar("Item")
Result = TypeVar("Result")

TASKS_AHEAD = 4  # submitted for each that can run: the others keep running while the first is done again
RETRIES = 3  # after a lost machine or a crash
TASKS_PER_GPU = 4  # one prepares photos while another detects
SECONDS_BETWEEN_LOOKS = 5.0  # at the size of the cluster: machines may join and leave


class RayTasks(Generic[Item, Result]):
    """Calls of ``function(item, shared)`` on the cluster that Ray is connected to.

    That is the one that RAY_ADDRESS names; without it, all cores of this machine. ``shared`` is sent once and unpickled
    once by each worker process. With ``use_gpus``, a cluster that has GPUs runs all tasks on the machines with GPUs.
    """

    def __init__(self, function: Callable[[Item, Any], Result], shared: object, *, use_gpus: bool = False) -> None:
        self._ray = _connected()
        self._function = function
        self._shared = [self._ray.put(shared)]  # in a list: Ray would unpickle a plain argument for each task
        self._cpus, self._gpus = self._resources_of_task(use_gpus=use_gpus)
        # By default a process that used a GPU ends with its task (max_calls=1), and with it the detector it loaded.
        remote = self._ray.remote(num_cpus=self._cpus, num_gpus=self._gpus, max_retries=RETRIES, max_calls=0)
        self._submit = remote(_run).remote
        self._at_once, self._looked = 1, -float("inf")

    @property
    def at_once(self) -> int:
        """How many tasks the cluster can run at a time."""
        if time.monotonic() - self._looked > SECONDS_BETWEEN_LOOKS:
            there = self._ray.cluster_resources()
            at_once = there.get("GPU", 0) / self._gpus if self._gpus else there.get("CPU", 0) / self._cpus
            self._at_once, self._looked = max(1, int(at_once)), time.monotonic()
        return self._at_once

    def map_in_order(
        self, items: Iterable[Item], on_crash: Callable[[Item, TallyboxError], Result] | None = None
    ) -> Iterator[Result]:
        """Yield the result for each item, in order, taking no more items ahead than keeps the cluster busy.

        An error of ours that a task raises is raised here. What crashes its worker four times is given to
        ``on_crash``, whose result takes its place, or raised.
        """
        waiting: deque[tuple[Item, Any]] = deque()
        try:
            for item in items:
                waiting.append((item, self._start(item)))
                while len(waiting) >= TASKS_AHEAD * self.at_once:
                    yield self._finish(*waiting.popleft(), on_crash)
            while waiting:
                yield self._finish(*waiting.popleft(), on_crash)
        finally:  # the caller may have had enough
            for _, reference in waiting:
                self._ray.cancel(reference)

    def _start(self, item: Item) -> Any:
        return self._submit(self._function, self._shared, item, self._cpus)

    def _finish(self, item: Item, reference: Any, on_crash: Callable[[Item, TallyboxError], Result] | None) -> Result:
        lost = self._ray.exceptions
        try:
            result = pickle.loads(self._ray.get(reference))
        except (lost.WorkerCrashedError, lost.NodeDiedError, lost.OutOfMemoryError, lost.ObjectLostError) as error:
            # Raised inside the task, the error that came here has the task's traceback for a message.
            reason = str(getattr(error, "cause", error)).strip().partition("\n")[0]
            crash = TallyboxError(
                f"a task lost its worker in {RETRIES + 1} of {RETRIES + 1} attempts; Ray says: {reason}"
            )
            if on_crash is None:
                raise crash from None
            return on_crash(item, crash)
        if isinstance(result, TallyboxError):
            raise result
        answer: Result = result
        return answer

    def _resources_of_task(self, *, use_gpus: bool) -> tuple[int, float]:
        """Return the cores and GPUs of a task: one core; with a part of a GPU, the same part of its machine's cores."""
        machines = [machine["Resources"] for machine in self._ray.nodes() if machine["Alive"]]
        cores_of_gpu = [there.get("CPU", 0) / there["GPU"] for there in machines if there.get("GPU", 0) >= 1]
        if not use_gpus or not cores_of_gpu:
            return 1, 0
        return max(1, int(min(cores_of_gpu) / TASKS_PER_GPU)), 1 / TASKS_PER_GPU


def _run(function: Callable[[Any, Any], object], shared: list[Any], item: object, threads: int) -> bytes:
    """Call the function in a worker process.

    The result is pickled here: arrays that Ray unpickles are views into its object store, which could free nothing
    while the caller keeps them. An error of ours is a result, too: Ray would wrap it in a traceback.
    """
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    try:
        result = function(item, _received(shared[0]))
    except TallyboxError as error:
        result = error
    return pickle.dumps(result, protocol=5)


@lru_cache(maxsize=1)
def _received(reference: Any) -> Any:
    """Fetch what tasks share once for all tasks of a process."""
    import ray

    return ray.get(reference)


def runs_on_gpu() -> bool:
    """Return whether the task that calls this was given a part of a GPU."""
    import ray

    return bool(ray.get_gpu_ids())


def _connected() -> Any:
    """Return Ray, connected to a cluster; nothing is reported anywhere."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ModuleNotFoundError:
        raise TallyboxError(
            "counting on many machines needs the package ray, which is not installed; pip install 'tallybox[ray]'"
        ) from None
    if not ray.is_initialized():
        try:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError as error:
            reason = str(error).partition("\n")[0]
            raise TallyboxError(
                f"Ray must reach the cluster that RAY_ADDRESS names, but it does not: {reason}; check that it runs, "
                "and that RAY_AUTH_MODE and RAY_AUTH_TOKEN are the same on all machines"
            ) from None
    return ray
