"""A Ray cluster on this machine, one at a time."""

import fcntl
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

STORE_BYTES = 128 << 20  # Ray's default is a third of the memory for each node


@contextmanager
def ray_to_ourselves() -> Iterator[Any]:
    """Import Ray, or skip the test; let no other test process use Ray meanwhile.

    Ray keeps the address of the latest cluster in one file, so that processes would join each other's clusters.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray = pytest.importorskip("ray", reason="needs Ray; pip install 'tallybox[ray]'")
    with (Path(tempfile.gettempdir()) / "tallybox-tests-with-ray.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield ray


@contextmanager
def two_workers() -> Iterator[tuple[Any, list[Any]]]:
    """Start a head that runs no tasks and two workers of one core each; nothing connects to them."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        yield cluster, [cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES) for _ in range(2)]
    finally:
        cluster.shutdown()
