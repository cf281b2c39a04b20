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
        # On a phone, the parts of a line go below each other, and a part that is still too wide scrolls by itself.
        parts = (convert(part.strip(), display="block") for part in unescape(found[2]).split(r"\qquad"))
        return f'<div class="formulas">{"".join(f"<div>{part}</div>" for part in parts)}</div>'

    return FORMULA.sub(typeset, html)
