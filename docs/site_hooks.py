"""MkDocs hooks: notebooks become pages, and the table of configuration keys is made from the code that reads them."""

import inspect
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from tallybox.vqa.configuration import ModelConfig, TrainingConfig

NOTEBOOKS = Path(__file__).parent / "notebooks"
KEY = re.compile(r"^    (?P<name>\w+): (?P<type>[^=]+) = (?P<default>.+?)(?:  # (?P<comment>.+))?$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page_of(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the tables of keys where a page asks for them."""
    for config in (ModelConfig, TrainingConfig):
        markdown = markdown.replace(f"<!-- keys of {config.__name__} -->", keys_of(config))
    return markdown


def page_of(path: Path) -> str:
    """Return a notebook in Markdown: its text, its code, and what the code printed."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/jpeg" in data:
                parts.append(f"![what the code above drew](data:image/jpeg;base64,{data['image/jpeg']})")
            else:
                parts.append(f"```\n{''.join(output.get('text') or data['text/plain']).rstrip()}\n```")
    note = f"This page is the notebook `docs/notebooks/{path.name}`, which the tests run."
    return "\n\n".join([*parts, f"---\n\n*{note}*"]) + "\n"


def keys_of(config: type[Any]) -> str:
    """Return a table of the fields of a dataclass: name, default and the comment beside it."""
    lines = ["| key | default | |", "|---|---|---|"]
    for key in KEY.finditer(inspect.getsource(config)):
        default = key["default"].strip('"').replace("True", "true")  # as TOML writes it
        default = "the same as `dropout`" if default == "None" else f"`{default}`"
        lines.append(f"| `{key['name']}` | {default} | {key['comment'] or ''} |")
    return "\n".join(lines)
