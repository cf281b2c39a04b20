"""Run the notebooks of docs/notebooks and store what they print and draw.

python docs/notebooks.py            # or: make notebooks

The cells run here one after the other, without a Jupyter kernel: notebooks of the docs need no magic commands.
"""

import ast
import base64
import contextlib
import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

NOTEBOOKS = Path(__file__).parent / "notebooks"


def run(path: Path) -> dict[str, Any]:
    """Run the cells of a notebook in an empty folder and return the notebook with their outputs."""
    notebook: dict[str, Any] = json.loads(path.read_text())
    names: dict[str, Any] = {"__name__": "__main__"}
    number = 0
    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                number += 1
                cell["execution_count"] = number
                cell["outputs"] = run_cell("".join(cell["source"]), f"{path.name}, cell {number}", names, number)
    return notebook


def run_cell(source: str, title: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Run a cell and return its outputs: what it prints, and the value of its last expression."""
    tree = ast.parse(source)
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, title, "exec"), names)
        value = None if last is None else eval(compile(last, title, "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        lines = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines})
    if value is not None:
        outputs.append(
            {"data": data_of(value), "execution_count": number, "metadata": {}, "output_type": "execute_result"}
        )
    return outputs


def data_of(value: Any) -> dict[str, Any]:
    """Return how a value is shown: pictures of Pillow as JPEG, the rest as text."""
    from PIL.Image import Image

    if not isinstance(value, Image):
        return {"text/plain": repr(value).splitlines(keepends=True)}
    encoded = io.BytesIO()
    value.save(encoded, "JPEG", quality=85)
    return {"image/jpeg": base64.b64encode(encoded.getvalue()).decode(), "text/plain": ["<a picture>"]}


def main() -> None:
    """Run all of them and write them back."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        print(path.name)
        path.write_text(json.dumps(run(path), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
