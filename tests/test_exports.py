from __future__ import annotations

import subprocess
import sys

import pytest

import tallybox

PUBLIC_NAMES = [
    "CountEstimator",
    "CountTrace",
    "Counter",
    "Detections",
    "PhotoCounter",
    "PiecewiseLinear",
    "PresenceCounter",
    "PresenceTrace",
    "PresenceWeights",
    "TallyboxError",
    "box_iou",
    "check_values",
    "compat",
    "count_features",
    "piecewise_linear",
    "presence_features",
]


def test_public_names_are_these():
    assert tallybox.__all__ == PUBLIC_NAMES


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_public_name_resolves_and_is_listed(name):
    assert getattr(tallybox, name) is not None
    assert name in dir(tallybox)


def test_a_star_import_gives_every_public_name():
    namespace: dict[str, object] = {}
    exec("from tallybox import *", namespace)
    assert set(PUBLIC_NAMES) <= set(namespace)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'tallybox' has no attribute 'Countr'"):
        tallybox.Countr  # noqa: B018 - the access is what is tested


def test_importing_the_package_does_not_import_torch():
    code = "import sys, tallybox; assert 'torch' not in sys.modules; tallybox.TallyboxError"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_version_is_that_of_the_installed_package():
    from importlib.metadata import version

    assert tallybox.__version__ == version("tallybox")


def test_a_public_name_is_looked_up_once():
    from tallybox.counter.functional import count_features

    assert tallybox.count_features is count_features
    assert vars(tallybox)["count_features"] is count_features
