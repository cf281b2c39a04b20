"""Convert a checkpoint of tallybox 0.1 to the format with a checksum.

python research/convert_checkpoint.py OLD/checkpoint.safetensors NEW/checkpoint.safetensors     # may be the same file
"""

import argparse
import json
from pathlib import Path

from safetensors import safe_open

from tallybox.files import write_tensors


def main() -> None:
    """Read the old layout, whose metadata is the header itself, and write the new one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    given = parser.parse_args()
    with safe_open(given.old, framework="pt") as file:
        header = json.loads(file.metadata()["tallybox"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is a file, not a dict
    if header["config"]["model"]["name"] == "counting":
        header["config"]["model"]["name"] = "counter"
    write_tensors(given.new, tensors, header)


if __name__ == "__main__":
    main()
