"""One static page that explains counts: plain data in, HTML out. Needs neither torch nor a network.

The data: ``{"title", "source", "image": {"width", "height", "href"}, "countings": [...]}`` as
`tallybox.drawing.page_data` makes them, or `tallybox.drawing.vqa_answer` for a question; ``href`` is a data URL or
None. Names and titles are shown as text, whatever they hold: they reach the page through an escaped JSON block, and
from there only through text nodes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from typing import Any

from tallybox.drawing.assets import read_assets
from tallybox.report.bundle import joined_modules

# Characters that an HTML or JavaScript parser could take for the end of the block or of a line.
UNSAFE_IN_HTML = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def report_page(page: Mapping[str, Any]) -> str:
    """Return the page as one HTML document that loads nothing and may run nothing but its own script."""
    assets = read_assets("tallybox.drawing", "tallybox.report")
    style, script = assets["page.css"], joined_modules("report.js", assets)
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": html.escape(policy, quote=True),
        "style": style,
        "script": script,
        "title": html.escape(str(page["title"])),
        "without_script": _without_script(page),
        "data": embedded_json(page),
    }
    # In one pass: what is put in is not searched again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], assets["report.html"])


def embedded_json(data: Any) -> str:
    r"""Write JSON that may stand inside a script element whatever it holds.

    >>> embedded_json({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    return json.dumps(data, allow_nan=False, separators=(",", ":")).translate(UNSAFE_IN_HTML)


def _without_script(page: Mapping[str, Any]) -> str:
    """Write the counts and steps in plain HTML, for browsers that run no script."""
    parts = []
    for counting in page["countings"]:
        steps = "".join(
            f"<li><strong>{html.escape(step['title'])}.</strong> {html.escape(step['text'])}</li>"
            for step in counting["steps"]
        )
        said = counting["summary"]
        plain = [said["certainty"], said["interval"], *said["reasons"]]
        sentences = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in plain if sentence)
        parts.append(f"<h2>{html.escape(said['headline'])}</h2>{sentences}<ol>{steps}</ol>")
    return "".join(parts)


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
