import pytest
import torch

from tallybox import Counter, PresenceCounter
from tallybox.explain.page import explain_page
from tallybox.explain.vqa_answer import answer_page, region_labels
from tests.explain.test_page import HOSTILE
from tests.support.ask import buses, riders, shipped_answerer


@pytest.fixture(scope="module")
def asked():
    return shipped_answerer().ask(riders(), "How many people are there?")


def test_regions_are_named_by_what_they_look_like(asked):
    labels = region_labels(asked.regions)
    assert len(labels) == len(asked.regions.features)
    assert {"person", "horse"} <= set(labels[:4])


def test_the_count_is_that_of_the_first_attention_map(asked):
    sharpness = shipped_answerer().model.config.sharpness
    torch.testing.assert_close(asked.relevance, sharpness * asked.glimpses[:, 0])
    (count,) = answer_page(asked, riders(), shipped_answerer().counter)["counts"]
    assert count["scores"] == pytest.approx(asked.relevance.sigmoid().tolist(), abs=1e-4)
    assert sum(count["presence"]) == pytest.approx(count["count"], abs=1e-3)


def test_the_page_shows_answers_attention_and_count(asked, show):
    opened = show(explain_page(answer_page(asked, riders(), shipped_answerer().counter)))
    page = opened.page
    assert page.locator("h1").text_content() == "How many people are there?"
    assert page.locator(".answer .count").text_content() == asked.answer
    assert page.locator(".answers tr th").all_text_contents() == [answer for answer, _ in asked.answers]
    assert page.locator(".attended").count() == len(asked.regions.features)
    page.locator(".mathematics > summary").click()
    page.locator("tr[data-box='2']").hover()
    assert page.locator(".attended.pointed").get_attribute("data-box") == "2"
    assert opened.requested == [page.url]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("component", [Counter, PresenceCounter], ids=["counter", "presence"])
def test_a_phone_shows_it_without_scrolling_sideways(asked, show, component, dark):
    text = explain_page(answer_page(asked, riders(), component(10, logits=True)))
    page = show(text, width=375, height=800, dark=dark).page
    assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_a_hostile_question_runs_nothing(show):
    asked = shipped_answerer().ask(buses(), f"how many {HOSTILE}")
    opened = show(explain_page(answer_page(asked, buses(), shipped_answerer().counter)))
    assert opened.page.locator("h1").text_content() == asked.question
    assert opened.requested == [opened.page.url]
