"""MkDocs hooks: notebooks become pages."""

import json
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

NOTEBOOKS = Path(__file__).parent / "notebooks"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page_of(path)))
    return files


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
