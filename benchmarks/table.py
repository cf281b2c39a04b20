"""Write the tables of speeds from the committed results: five rows in README.md, all of them in docs/results/speed.md.

python benchmarks/table.py            # rewrites the tables between their markers
python benchmarks/table.py --check    # fails if a table is not what the results say
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks/results"
COMPONENTS = {"": "paper", "presence": "presence", "nothing instead of": "none: an empty function"}
START, END = "<!-- made by: python benchmarks/table.py -->\n", "<!-- end -->"

# README: what, file of results, case.
FEW = (
    ("`Counter`, 256 images × 36 boxes", "counter--cpu--2-cores", "cpu forward+backward 256x36"),
    ("`PresenceCounter`, 256 × 36", "counter--cpu--2-cores", "presence cpu forward+backward 256x36"),
    ("`Counter`, 256 × 100", "counter--cuda--nvidia-h200", "triton forward+backward 256x100"),
    ("`PresenceCounter`, 4,096 × 36", "counter--cuda--nvidia-h200", "presence triton forward+backward 4096x36"),
    ("A photo of 640 × 480 to counts", "photos--cpu--2-cores", "end to end, a photo of 640 x 480 at 640 px"),
)


def read(name: str) -> dict[str, Any]:
    """Read one committed result."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return result


def machine(result: dict[str, Any]) -> str:
    """Return where a result was measured."""
    where = result["machine"]
    return where.get("accelerator") or f"{where['cores']} cores, {where['processor']}"


def few() -> Iterator[str]:
    """Yield the README's table."""
    yield "| what | where | tallybox | plain PyTorch | times faster |"
    yield "|---|---|---:|---:|---:|"
    for what, name, case in FEW:
        result = read(name)
        (row,) = [row for row in result["rows"] if row["case"] == case]
        other, faster = f"{row['reference_ms']:,.1f} ms", f"{row['speedup']:.0f}"
        if name.startswith("photos"):  # its reference takes the photos one by one, with the same code
            other, faster = "", ""
        yield f"| {what} | {machine(result)} | {row['median_ms']:.2f} ms | {other} | {faster} |"


def full() -> Iterator[str]:
    """Yield the table of all sizes, forward and backward together."""
    yield "| machine | component | images × boxes | fused | reference | times faster | peak memory | reference's |"
    yield "|---|---|---|---|---|---|---|---|"
    for path in sorted(RESULTS.glob("counter--*.json")):
        result = read(path.stem)
        for row in result["rows"]:
            *component, backend, passes, size = row["case"].split()
            if passes != "forward+backward":
                continue
            images, boxes = (int(number) for number in size.split("x"))
            yield (
                f'| {machine(result)}, `"{backend}"` | {COMPONENTS[" ".join(component)]} '
                f"| {images:,} × {boxes} | {row['median_ms']:.2f} ms "
                f"| {row['reference_ms']:,.1f} ms | {row['speedup']:.0f} "
                f"| {mebibytes(row['peak_bytes'])} | {mebibytes(row['reference_peak_bytes'])} |"
            )


def mebibytes(number: int | None) -> str:
    """Write bytes as MiB."""
    return "unknown" if number is None else f"{number / 2**20:,.1f} MiB"


def main() -> None:
    """Rewrite or check both pages."""
    for page, lines in (("README.md", few()), ("docs/results/speed.md", full())):
        text = (ROOT / page).read_text()
        before, rest = text.split(START)
        after = rest.split(END, 1)[1]
        made = before + START + "\n".join(lines) + "\n" + END + after
        if "--check" not in sys.argv:
            (ROOT / page).write_text(made)
        elif made != text:
            sys.exit(f"{page}: the table of speeds is not what benchmarks/results say; run python benchmarks/table.py")


if __name__ == "__main__":
    main()
