import pytest
import torch

from tallybox import Counter, PresenceCounter
from tallybox.explain.page import report_page
from tallybox.explain.vqa_answer import answer_counting, answer_page, region_labels
from tests.explain.test_page import HOSTILE
from tests.support.ask import buses, riders, shipped_answerer


@pytest.fixture(scope="module")
def asked():
    return shipped_answerer().ask(riders(), "How many people are there?")


def test_regions_are_named_by_what_they_look_like(asked):
    labels = region_labels(asked.regions)
    assert len(labels) == len(asked.regions.scores)
    assert {"person", "horse"} <= set(labels[:4])


def test_the_count_is_that_of_the_first_attention_map(asked):
    sharpness = shipped_answerer().model.config.presence_sharpness
    torch.testing.assert_close(asked.relevance, sharpness * asked.glimpses[:, 0])
    counter = shipped_answerer().counter
    counting = answer_counting(asked, counter)
    assert counting["scores"] == pytest.approx(asked.relevance.sigmoid().tolist())
    assert sum(counting["presence"]) == pytest.approx(counting["count"], abs=1e-4)
    assert sum(counting["distribution"]) == pytest.approx(1, abs=1e-4)
    assert counting["steps"][-1]["title"] == f"The answer: {asked.answer}"


def test_the_page_shows_the_answers_what_was_looked_at_and_the_count(asked, show):
    opened = show(report_page(answer_page(asked, riders(), shipped_answerer().counter)))
    page = opened.page
    assert page.locator("h1").text_content() == "How many people are there?"
    assert page.locator(".count").text_content() == asked.answer
    assert page.locator(".answers tr th").all_text_contents() == [answer for answer, _ in asked.answers]
    for kind in (".attended", ".columns .box"):
        assert page.locator(kind).count() == len(asked.regions.scores)
    assert page.locator(".map canvas").count() >= 3
    assert page.locator(".bars .bar").count() >= 5
    page.locator(".mathematics > summary").click()
    page.locator("tr[data-box='2']").hover()
    assert page.locator(".attended.pointed").get_attribute("data-box") == "2"
    assert "attention" in page.locator("thead").text_content()
    assert opened.requested == [page.url]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("component", [Counter, PresenceCounter], ids=["counter", "presence"])
def test_a_phone_shows_it_without_scrolling_sideways(asked, show, component, dark):
    text = report_page(answer_page(asked, riders(), component(10, logits=True)))
    page = show(text, width=375, height=800, dark=dark).page
    assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_a_hostile_question_runs_nothing(show):
    asked = shipped_answerer().ask(buses(), f"how many {HOSTILE}")
    opened = show(report_page(answer_page(asked, buses(), shipped_answerer().counter)))
    assert opened.page.locator("h1").text_content() == asked.question
    assert opened.page.locator(".summary").text_content().startswith(f"{asked.probability:.0%}".replace("%", " %"))
    assert opened.requested == [opened.page.url]
