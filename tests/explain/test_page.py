import base64
import hashlib
import json
import re
import subprocess
import sys
from dataclasses import asdict
from html.parser import HTMLParser

import numpy as np
import pytest

from tallybox import Counter
from tallybox.detections.categories import quantity
from tallybox.explain import read_assets
from tallybox.explain.explained_count import explain_component
from tallybox.explain.page import bundle, embedded_json, explain_page
from tallybox.explain.scenes import cats

HOSTILE = "</script><script>alert(1)</script><img src=https://example.org/x onerror=alert(2)> {{data}} & \u2028"


def page_count(name, explained) -> dict:
    """Return a count by a component alone, as a page takes it."""
    label = quantity(explained.count, name)
    return {"name": name, **asdict(explained), "label": label, "headline": label, "facts": [], "other_heads": []}


def cats_page(name: str = "cat") -> dict:
    count = page_count(name, explain_component(cats().numpy(), np.ones(4, np.float32), Counter(4)))
    image = {"width": 72, "height": 22, "href": None}
    return {"title": f"How many {name}?", "source": name, "image": image, "counts": [count]}


class Elements(HTMLParser):
    """Every element of a document, and the text in those that hold scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict]] = []
        self.inside: dict[str, list[str]] = {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.inside.setdefault(tag, []).append("")

    def handle_data(self, data):
        if self.found and self.found[-1][0] in ("script", "style"):
            self.inside[self.found[-1][0]][-1] += data

    def handle_endtag(self, tag):
        self.found.append((f"/{tag}", {}))


def test_the_policy_allows_the_pages_own_script_and_style_and_nothing_else():
    elements = Elements(explain_page(cats_page()))
    policy = next(found["content"] for tag, found in elements.found if tag == "meta" and "http-equiv" in found)
    script, style = elements.inside["script"][1], elements.inside["style"][0]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, style)]
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{digests[0]}'; style-src 'sha256-{digests[1]}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def test_hostile_names_stay_text():
    text = explain_page(cats_page(HOSTILE))
    elements = Elements(text)
    expected = [tag for tag, _ in Elements(explain_page(cats_page())).found]
    assert [tag for tag, _ in elements.found] == expected
    assert json.loads(elements.inside["script"][0])["counts"][0]["name"] == HOSTILE


def test_the_modules_of_the_script_fit_in_one():
    script = bundle("explain_page.js", read_assets("tallybox.explain"))
    names = re.findall(r"^(?:async )?(?:function\*?|const|let|class) ([A-Za-z_$][\w$]*)", script, re.MULTILINE)
    assert len(names) == len(set(names)) > 20
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    assert "</script" not in script.lower()


def test_nothing_refers_to_another_place():
    text = explain_page(cats_page())
    assert not re.search(r"(src|href|action)=[\"']?(https?:)?//", text)
    assert [url for url in re.findall(r"https?://[^\s\"'`]+", text) if "w3.org" not in url] == []


def test_data_that_is_not_a_number_is_refused():
    with pytest.raises(ValueError, match="JSON"):
        embedded_json({"count": float("nan")})


def test_the_page_needs_no_torch():
    program = "import sys, tallybox.explain.page; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_browser_without_scripts_shows_the_count():
    assert "<h2>3 cats</h2>" in explain_page(cats_page())
