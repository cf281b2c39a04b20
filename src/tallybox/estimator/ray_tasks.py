"""Tasks on a Ray cluster: a function is applied to many items on many machines, and the results come back in order.

Tasks rather than actors: a task whose machine is lost runs again on any other, whereas an actor comes back only where
there is capacity for another. Each result is taken once, in the order of the items, so that nothing is lost and nothing
comes twice. tallybox must be installed on every machine; what all tasks share is sent from here.
"""

import logging
import os
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, TypeVar

import torch

from tallybox.errors import TallyboxError
from tallybox.files import error_summary, import_optional

Item = TypeVar("Item")
Result = TypeVar("Result")

TASKS_AHEAD = 4  # submitted for each that can run, so that all keep busy while a lost task is repeated
RETRIES = 3  # after a lost machine or a crash
TASKS_PER_GPU = 4  # one prepares photos while another detects


class RayTasks:
    """Calls functions on the cluster that RAY_ADDRESS names; without it, on all cores of this machine.

    ``shared`` is sent once and unpickled once by each worker process. With ``use_gpus``, a cluster that has GPUs runs
    all tasks on the machines with GPUs.
    """

    def __init__(self, shared: object, *, use_gpus: bool = False) -> None:
        self._ray = _connected()
        self._shared = [self._ray.put(shared)]  # in a list: Ray would unpickle a plain argument for each task
        self._cpus, self._gpus = self._resources_of_task(use_gpus=use_gpus)
        # By default a process that used a GPU ends with its task (max_calls=1), and with it the detector it loaded.
        remote = self._ray.remote(num_cpus=self._cpus, num_gpus=self._gpus, max_retries=RETRIES, max_calls=0)
        self._submit = remote(_run).remote

    def max_running(self) -> int:
        """Return how many tasks the cluster can run at a time; machines may join and leave."""
        resources = self._ray.cluster_resources()
        running = resources.get("GPU", 0) / self._gpus if self._gpus else resources.get("CPU", 0) / self._cpus
        return max(1, int(running))

    def map_in_order(
        self,
        function: Callable[[Item, Any], Result],
        items: Iterable[Item],
        on_crash: Callable[[Item, TallyboxError], Result] | None = None,
    ) -> Iterator[Result]:
        """Yield ``function(item, shared)`` for each item, taking no more items ahead than keeps the cluster busy.

        A TallyboxError in a task is raised here. An item that crashes its worker in every attempt is given to
        ``on_crash``, whose result takes its place; without it, that is an error.
        """
        waiting: deque[tuple[Item, Any]] = deque()
        try:
            for item in items:
                waiting.append((item, self._submit(function, self._shared, item, self._cpus)))
                while len(waiting) >= TASKS_AHEAD * self.max_running():
                    yield self._finish(*waiting.popleft(), on_crash)
            while waiting:
                yield self._finish(*waiting.popleft(), on_crash)
        finally:  # the caller may stop early
            for _, reference in waiting:
                self._ray.cancel(reference)

    def _finish(self, item: Item, reference: Any, on_crash: Callable[[Item, TallyboxError], Result] | None) -> Result:
        lost = self._ray.exceptions
        try:
            result = pickle.loads(self._ray.get(reference))
        except (lost.WorkerCrashedError, lost.NodeDiedError, lost.OutOfMemoryError, lost.ObjectLostError) as error:
            reason = error_summary(getattr(error, "cause", error))  # the message of the error itself is a traceback
            attempts = RETRIES + 1
            crash = TallyboxError(f"a task lost its worker in {attempts} of {attempts} attempts; Ray says: {reason}")
            if on_crash is None:
                raise crash from None
            return on_crash(item, crash)
        if isinstance(result, TallyboxError):
            raise result
        return result  # type: ignore[no-any-return]  # what the function returned, pickled

    def _resources_of_task(self, *, use_gpus: bool) -> tuple[int, float]:
        """Return the cores and GPUs of a task: one core; with a part of a GPU, the same part of its machine's cores."""
        machines = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        cores_of_gpu = [machine.get("CPU", 0) / machine["GPU"] for machine in machines if machine.get("GPU", 0) >= 1]
        if not use_gpus or not cores_of_gpu:
            return 1, 0
        return max(1, int(min(cores_of_gpu) / TASKS_PER_GPU)), 1 / TASKS_PER_GPU


def _run(function: Callable[[Any, Any], object], shared: list[Any], item: object, threads: int) -> bytes:
    """Call the function in a worker process.

    The result is pickled here: arrays that Ray unpickles are views into its object store, which could free nothing
    while the caller keeps them. A TallyboxError is returned, too: Ray would wrap it in a traceback.
    """
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    try:
        result = function(item, _fetched(shared[0]))
    except TallyboxError as error:
        result = error
    return pickle.dumps(result, protocol=5)


@lru_cache(maxsize=1)
def _fetched(reference: Any) -> Any:
    """Return what tasks share, fetched once for all tasks of a process."""
    import ray

    return ray.get(reference)


def runs_on_gpu() -> bool:
    """Return whether the task that calls this was given a part of a GPU."""
    import ray

    return bool(ray.get_gpu_ids())


def _connected() -> Any:
    """Return Ray, connected to a cluster, with its usage statistics switched off."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = import_optional("ray", needed_for="counting on many machines", install="'tallybox[ray]'")
    if not ray.is_initialized():
        try:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError as error:
            raise TallyboxError(
                f"Ray must reach the cluster that RAY_ADDRESS names, but it does not: {error_summary(error)}; check "
                "that it runs, and that RAY_AUTH_MODE and RAY_AUTH_TOKEN are the same on all machines"
            ) from None
    return ray
