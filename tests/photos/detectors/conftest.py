import pytest

from tests.support.threads import one_thread


@pytest.fixture(scope="module", autouse=True)
def on_one_thread():
    with one_thread():
        yield
