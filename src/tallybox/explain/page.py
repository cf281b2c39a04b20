"""One static page that explains counts: plain data in, HTML out. Needs neither torch nor a network.

The data: ``{"title", "source", "image": {"width", "height", "href"}, "countings": [...]}`` as
`tallybox.explain.page_data` makes them, or `tallybox.explain.vqa_answer` for a question; ``href`` is a data URL or
None. Names and titles are shown as text, whatever they hold: they reach the page through an escaped JSON block, and
from there only through text nodes.
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
TOP_LEVEL_NAME = re.compile(r"^(?:async )?(?:function\*?|const|let|class) ([A-Za-z_$][\w$]*)", re.MULTILINE)


def report_page(page: Mapping[str, Any]) -> str:
    """Return the page as one HTML document that loads nothing and may run nothing but its own script."""
    assets = read_assets("tallybox.explain")
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


def joined_modules(entry: str, modules: Mapping[str, str]) -> str:
    """Return a JavaScript module and all that it imports as one script, each once and after what it needs.

    Import lines and `export` words are left out. So modules may only have named imports from ``./``, and no two of
    them may declare the same name at the top level.
    """
    parts: dict[str, str] = {}

    def collect(name: str) -> None:
        for needed in IMPORT.findall(modules[name]):
            if needed not in parts:
                collect(needed)
        parts[name] = EXPORT.sub("", IMPORT.sub("", modules[name]))

    collect(entry)
    script = "\n".join(parts.values())
    names = TOP_LEVEL_NAME.findall(script)
    twice = sorted({name for name in names if names.count(name) > 1})
    assert not twice, f"modules of {entry} declare {twice} more than once"
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE), f"{entry} has an import or export that stays"
    assert "</script" not in script.lower()
    return script


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
        summary = counting["summary"]
        sentences = [summary["certainty"], summary["interval"], *summary["reasons"]]
        parts.append(f"<h2>{html.escape(summary['headline'])}</h2>")
        parts += [f"<p>{html.escape(sentence)}</p>" for sentence in sentences if sentence]
        steps = [(html.escape(step["title"]), html.escape(step["text"])) for step in counting["steps"]]
        parts += ["<ol>", *(f"<li><strong>{title}.</strong> {text}</li>" for title, text in steps), "</ol>"]
    return "".join(parts)


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
