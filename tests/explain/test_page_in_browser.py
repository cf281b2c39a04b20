import numpy as np
import pytest
from benchmarks.synthetic_photos import made_up_photos

from tallybox import Counter, PresenceCounter
from tallybox.explain.counting import count_with_component
from tallybox.explain.page import report_page
from tallybox.explain.page_data import canvas_size, estimator_countings, page_counting, page_data
from tallybox.explain.scenes import cats
from tests.report.test_page import HOSTILE, cats_page
from tests.support.estimators import small_estimator

PHOTO = made_up_photos(16, seed=11)[0][3]


def unfold(page) -> None:
    """Open the part with the mathematics."""
    page.locator(".mathematics > summary").click()


def test_an_estimators_page_shows_its_numbers_and_asks_nobody(show):
    countings = estimator_countings(small_estimator(), PHOTO, None)
    opened = show(report_page(page_data("How many?", "made up", canvas_size(PHOTO), countings)))
    page = opened.page
    said = countings[0]["summary"]
    assert page.locator(".count").text_content() == said["headline"]
    assert page.locator(".summary").text_content() == f"{said['certainty']}. {said['interval']}"
    assert page.locator(".reasons li").all_text_contents() == said["reasons"]
    assert not page.locator(".steps").is_visible()
    unfold(page)
    assert page.locator(".columns .box").count() == len(countings[0]["boxes"])
    assert page.locator(".bar.top .tick").text_content() == str(countings[0]["count"])
    assert page.locator(".steps li").count() == len(countings[0]["steps"])
    page.select_option("#category", index=1)
    assert page.locator(".count").text_content() == countings[1]["summary"]["headline"]
    unfold(page)
    page.select_option("#head", index=1)
    assert opened.requested == [page.url]


def test_a_cell_points_at_its_two_boxes_and_a_box_at_its_row(show):
    page = show(report_page(cats_page())).page
    unfold(page)
    page.locator(".map canvas").first.scroll_into_view_if_needed()
    place = page.locator(".map canvas").first.bounding_box()
    page.mouse.move(place["x"] + 0.9 * place["width"], place["y"] + 0.4 * place["height"])
    assert page.locator(".maps .box.pointed").evaluate_all("boxes => boxes.map(b => b.dataset.box).sort()") == [
        "1",
        "3",
    ]
    assert page.locator(".map .readout").first.text_content() == "boxes 2, 4: 1"
    page.locator(".columns .box[data-box='2']").hover()
    assert page.locator("tr.pointed").get_attribute("data-box") == "2"


def test_heat_maps_are_reached_by_keyboard(show):
    page = show(report_page(cats_page())).page
    unfold(page)
    page.locator(".map canvas").nth(1).focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert page.locator(".map .readout").nth(1).text_content() == "boxes 2, 2: 0"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("component", [Counter(4), PresenceCounter(4)], ids=["counter", "presence"])
def test_a_phone_shows_it_without_scrolling_sideways(show, component, dark):
    counting = page_counting("cat", count_with_component(cats().boxes.numpy(), np.ones(4, np.float32), component))
    page = show(report_page({**cats_page(), "countings": [counting]}), width=375, height=800, dark=dark).page
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    unfold(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_hostile_names_run_nothing(show):
    opened = show(report_page(cats_page(HOSTILE)))
    assert opened.page.locator("h1").text_content() == f"How many {HOSTILE}?"
    assert opened.requested == [opened.page.url]
