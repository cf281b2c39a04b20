"""Write the table of speeds in docs/results/speed.md from the committed results.

python -m benchmarks.table            # rewrite the table between its markers
python -m benchmarks.table --check    # fail if the table differs from the results
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks/results"
COMPONENTS = {"": "counter", "presence": "presence", "nothing instead of": "none: an empty function"}
PAGE = "docs/results/speed.md"
START, END = "<!-- made by: python benchmarks/table.py -->\n", "<!-- end -->"


def read(name: str) -> dict[str, Any]:
    """Read one committed result."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return result


def machine(result: dict[str, Any]) -> str:
    """Return where a result was measured."""
    where = result["machine"]
    return where.get("accelerator") or f"{where['cores']} cores, {where['processor']}"


def full() -> Iterator[str]:
    """Yield the table of all sizes, forward and backward together."""
    yield "| machine | component | images × boxes | kept | fused | reference | speed-up | peak memory | reference's |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for path in sorted(RESULTS.glob("counter--*.json")):
        result = read(path.stem)
        for row in result["rows"]:
            case, _, keep = row["case"].partition(" n=")
            *component, backend, passes, size = case.split()
            if passes != "forward+backward":
                continue
            images, boxes = (int(number) for number in size.split("x"))
            yield (
                f'| {machine(result)}, `"{backend}"` | {COMPONENTS[" ".join(component)]} '
                f"| {images:,} × {boxes} | {keep or (boxes if not component else 'all')} | {row['median_ms']:.2f} ms "
                f"| {row['reference_ms']:,.1f} ms | {row['speedup']:.0f} "
                f"| {mebibytes(row['peak_bytes'])} | {mebibytes(row['reference_peak_bytes'])} |"
            )


def mebibytes(number: int | None) -> str:
    """Write bytes as MiB."""
    return "unknown" if number is None else f"{number / 2**20:,.1f} MiB"


def main() -> None:
    """Rewrite or check the table."""
    path = ROOT / PAGE
    text = path.read_text()
    before, rest = text.split(START)
    made = before + START + "\n".join(full()) + "\n" + END + rest.split(END, 1)[1]
    if "--check" not in sys.argv:
        path.write_text(made)
    elif made != text:
        sys.exit(f"{PAGE}: the table differs from benchmarks/results; run python -m benchmarks.table")


if __name__ == "__main__":
    main()
