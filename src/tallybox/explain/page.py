"""One static page that explains counts: plain data in, HTML out. Needs neither torch nor a network.

The data are ``{"title", "source", "image": {"width", "height", "href"}, "counts": [...]}`` from
`tallybox.explain.page_data`; ``href`` is a data URL or None.
Names and titles are always shown as text: they reach the page in an escaped JSON block, and become text nodes.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from typing import Any

from tallybox.explain import read_assets

# Characters that an HTML or JavaScript parser could take for the end of the block or of a line.
UNSAFE_IN_HTML = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}

IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z_]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?function |const |class )", re.MULTILINE)


def explain_page(page: Mapping[str, Any]) -> str:
    """Return the page as one HTML document that loads nothing and may run nothing but its own script."""
    assets = read_assets("tallybox.explain")
    style, script = assets["page.css"], bundle("explain_page.js", assets)
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
    # One pass, so that inserted text is not searched again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], assets["explain_page.html"])


def bundle(entry: str, modules: Mapping[str, str]) -> str:
    """Return a JavaScript module and all its imports as one script, each module once and after its own imports.

    Modules may only have named imports from ``./``, and no two of them may declare the same name at the top level.
    """
    parts: dict[str, str] = {}

    def collect(name: str) -> None:
        for needed in IMPORT.findall(modules[name]):
            if needed not in parts:
                collect(needed)
        parts[name] = EXPORT.sub("", IMPORT.sub("", modules[name]))

    collect(entry)
    return "\n".join(parts.values())


def embedded_json(data: Any) -> str:
    """Write JSON that may stand inside a script element whatever it holds."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).translate(UNSAFE_IN_HTML)


def _without_script(page: Mapping[str, Any]) -> str:
    """Write the counts in plain HTML, for browsers that run no script."""
    return "".join(
        f"<h2>{html.escape(count['headline'])}</h2><p>{html.escape(' '.join(count['facts']))}</p>"
        for count in page["counts"]
    )


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
