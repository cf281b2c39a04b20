import pytest

from tests.support.estimators import small_estimator


@pytest.fixture
def estimator(tmp_path):
    path = tmp_path / "small.estimator"
    small_estimator().save(path)
    return path
