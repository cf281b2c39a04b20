"""MkDocs hook: formulas become MathML while the site is built, so a browser needs no script for them."""

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(html: str, **_: Any) -> str:
    """Replace the formulas of one page."""

    def typeset(found: re.Match[str]) -> str:
        if found[1] == "span":
            return convert(unescape(found[2]))
        # A formula wider than a phone scrolls by itself, not the page.
        return f'<div style="overflow-x: auto; margin: 0.9em 0">{convert(unescape(found[2]), display="block")}</div>'

    return FORMULA.sub(typeset, html)
