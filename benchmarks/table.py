"""Write the README's table of speeds from the committed results.

python benchmarks/table.py            # rewrites the table between its markers in README.md
python benchmarks/table.py --check    # fails if the table is not what the results say
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
COMPONENTS = {"": "paper", "presence": "presence", "nothing instead of": "none: an empty function"}
START, END = "<!-- made by: python benchmarks/table.py -->\n", "<!-- end -->"


def results() -> list[dict[str, Any]]:
    """Read every committed result of `tallybox bench counter`."""
    return [json.loads(path.read_text()) for path in sorted((ROOT / "benchmarks/results").glob("counter--*.json"))]


def table() -> str:
    """Return the table in Markdown: one line for each size, forward and backward together."""
    lines = [
        "| machine | component | images × boxes | fused | reference | times faster | peak memory | reference's |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results():
        machine = result["machine"]
        name = machine.get("accelerator") or f"{machine['cores']} cores, {machine['processor']}"
        for row in result["rows"]:
            *component, backend, passes, size = row["case"].split()
            if passes != "forward+backward":
                continue
            images, boxes = (int(number) for number in size.split("x"))
            lines.append(
                f'| {name}, `"{backend}"` | {COMPONENTS[" ".join(component)]} '
                f"| {images:,} × {boxes} | {row['median_ms']:.2f} ms "
                f"| {row['reference_ms']:,.1f} ms | {row['speedup']:.0f} "
                f"| {mebibytes(row['peak_bytes'])} | {mebibytes(row['reference_peak_bytes'])} |"
            )
    return "\n".join(lines) + "\n"


def mebibytes(number: int | None) -> str:
    """Write bytes as MiB."""
    return "unknown" if number is None else f"{number / 2**20:,.1f} MiB"


def main() -> None:
    """Rewrite or check the README."""
    readme = ROOT / "README.md"
    text = readme.read_text()
    before, rest = text.split(START)
    after = rest.split(END, 1)[1]
    made = before + START + table() + END + after
    if "--check" in sys.argv:
        sys.exit(0 if made == text else "README.md: the table of speeds is not what benchmarks/results say")
    readme.write_text(made)


if __name__ == "__main__":
    main()
