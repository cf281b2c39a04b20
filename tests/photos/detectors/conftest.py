import pytest

from tallybox.concurrency import single_threaded_torch


@pytest.fixture(scope="module", autouse=True)
def on_single_threaded_torch():
    with single_threaded_torch():
        yield
