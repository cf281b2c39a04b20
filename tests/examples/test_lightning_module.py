import runpy

import pytest

from tests.support.shared_data import REPOSITORY

pytest.importorskip("lightning")


def test_the_module_trains_for_a_few_steps(tmp_path):
    example = runpy.run_path(str(REPOSITORY / "examples/lightning_module.py"))
    options = {"accelerator": "cpu", "default_root_dir": tmp_path, "enable_progress_bar": False}
    assert 0 <= example["train"](steps=4, **options) <= 1
