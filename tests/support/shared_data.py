"""Where the real data lies, and a skip that says so where it does not."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def data_folder(name: str) -> Path:
    """Return a folder of real data; skip the test where it is absent. TALLYBOX_DATA names another place."""
    folder = Path(os.environ.get("TALLYBOX_DATA", REPOSITORY.parent / "shared" / "data")) / name
    if not folder.is_dir():
        pytest.skip(f"needs the real data in {folder}; name its parent with TALLYBOX_DATA")
    return folder


def models_folder() -> Path:
    """Return the folder of published models; skip the test where it is absent. TALLYBOX_MODELS names another place."""
    folder = Path(os.environ.get("TALLYBOX_MODELS", REPOSITORY.parent / "shared" / "models"))
    if not folder.is_dir():
        pytest.skip(f"needs the published models in {folder}; name another folder with TALLYBOX_MODELS")
    return folder
