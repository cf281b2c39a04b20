"""Explained counts: traces as plain data, one static page, and the assets that the explorer shares with it."""

from importlib.resources import files


def read_assets(*packages: str) -> dict[str, str]:
    """Return the text of every file in the ``assets`` folders of packages, by name."""
    folders = [files(package) / "assets" for package in packages]
    return {file.name: file.read_text(encoding="utf-8") for folder in folders for file in folder.iterdir()}
