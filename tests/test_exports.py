import subprocess
import sys
from importlib.metadata import version

import pytest

import tallybox


@pytest.mark.parametrize("name", tallybox.__all__)
def test_a_public_name_resolves_and_is_listed(name):
    assert getattr(tallybox, name) is not None
    assert name in dir(tallybox)


def test_names_of_the_contract_are_public():
    names = """CountEstimator Counter Detections PhotoCounter PiecewiseLinear PresenceCounter TallyboxError box_iou
    check_values compat count_features piecewise_linear read_counts read_detections"""
    assert {*names.split()} <= {*tallybox.__all__}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Countr"):
        tallybox.Countr  # noqa: B018 - the access is what is tested


def test_importing_the_package_does_not_import_torch():
    code = "import sys, tallybox; assert 'torch' not in sys.modules; tallybox.TallyboxError"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_version_is_that_of_the_installed_package():
    assert tallybox.__version__ == version("tallybox")
