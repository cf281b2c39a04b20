"""One static page that explains counts: plain data in, HTML out. Needs neither torch nor a network.

The data: ``{"title", "source", "image": {"width", "height", "href"}, "countings": [...]}`` with countings as
`tallybox.explorer.counting` makes them; ``href`` is a data URL or None. Whatever stands in names and titles is shown as
text: it reaches the page through an escaped JSON block, and from there only through text nodes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from typing import Any

from tallybox.explorer.bundle import asset, joined_modules

# Characters that could end the block, or a line of it, in the eyes of an HTML or JavaScript reader.
UNSAFE_IN_HTML = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def report_page(page: Mapping[str, Any]) -> str:
    """Return the page as one HTML document that loads nothing and may run nothing but its own script."""
    style, script = asset("page.css"), joined_modules("report.js")
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
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], asset("report.html"))


def embedded_json(data: Any) -> str:
    r"""Write JSON that may stand inside a script element whatever it holds.

    >>> embedded_json({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    return json.dumps(data, allow_nan=False, separators=(",", ":")).translate(UNSAFE_IN_HTML)


def _without_script(page: Mapping[str, Any]) -> str:
    """Tell the counts and steps in plain HTML, for readers whose browser runs no script."""
    parts = []
    for counting in page["countings"]:
        steps = "".join(
            f"<li><strong>{html.escape(step['title'])}.</strong> {html.escape(step['text'])}</li>"
            for step in counting["steps"]
        )
        parts.append(f"<h2>{html.escape(str(counting['name']))}: {counting['count']:g}</h2><ol>{steps}</ol>")
    return "".join(parts)


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
