"""Write the table of loads in docs/results/speed.md from the committed results.

python benchmarks/serve.py benchmarks/results/serve--cpu--2-cores.json
python benchmarks/serve_table.py            # rewrites the table between its markers
python benchmarks/serve_table.py --check    # fails if the table is not what the results say
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "results" / "speed.md"
START, END = "<!-- made by: python benchmarks/serve_table.py -->\n", "<!-- end -->"


def table() -> str:
    """Return the table in Markdown: one line for each number of clients."""
    lines = [
        "| machine | at once | requests/s | median | 99th percentile "
        "| without batching: requests/s | median | 99th percentile |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for path in sorted((ROOT / "benchmarks/results").glob("serve--*.json")):
        result = json.loads(path.read_text())
        machine = f"{result['machine']['cores']} cores, {result['machine']['processor']}"
        for row in result["rows"]:
            lines.append(
                f"| {machine} | {row['case']} | {row['requests_per_second']:,.0f} | {row['median_ms']:,.0f} ms "
                f"| {row['p99_ms']:,.0f} ms | {row['reference_requests_per_second']:,.0f} "
                f"| {row['reference_ms']:,.0f} ms | {row['reference_p99_ms']:,.0f} ms |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Rewrite or check the page."""
    text = PAGE.read_text()
    before, rest = text.split(START)
    made = before + START + table() + END + rest.split(END, 1)[1]
    if "--check" in sys.argv:
        sys.exit(0 if made == text else "docs/results/speed.md: the table of loads is not what benchmarks/results say")
    PAGE.write_text(made)


if __name__ == "__main__":
    main()
