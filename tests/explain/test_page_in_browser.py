import numpy as np
import pytest
from benchmarks.synthetic_photos import made_up_photos

from tallybox import Counter, PresenceCounter
from tallybox.explain.explained_count import explain_component
from tallybox.explain.page import explain_page
from tallybox.explain.page_data import canvas_size, estimator_counts, page_data
from tallybox.explain.scenes import cats
from tests.explain.test_page import HOSTILE, cats_page, page_count
from tests.support.estimators import small_estimator

PHOTO = made_up_photos(16, seed=11)[0][3]


def unfold(page) -> None:
    """Open the part with the mathematics."""
    page.locator(".mathematics > summary").click()


def test_an_estimators_page_shows_its_numbers_and_requests_nothing(show):
    counts = estimator_counts(small_estimator(), PHOTO, None)
    opened = show(explain_page(page_data("How many?", "synthetic", canvas_size(PHOTO), counts)))
    page = opened.page
    assert page.locator(".answer .count").text_content() == counts[0]["headline"]
    counted = sum(into == box for box, into in enumerate(counts[0]["duplicate_of"]))
    assert page.locator(".columns .frame:visible").count() == counted
    page.locator("[data-view=boxes]").click()
    assert page.locator(".columns .frame:visible").count() == len(counts[0]["boxes"])
    page.locator("[data-view=photo]").click()
    assert page.locator(".columns .frame:visible").count() == 0
    assert page.locator(".bar.top .tick").text_content() == str(counts[0]["count"])
    assert page.locator("[data-method=nms] b").text_content() == str(counts[0]["baselines"]["nms"])
    page.locator(".chip").nth(1).click()
    assert page.locator(".answer .count").text_content() == counts[1]["headline"]
    unfold(page)
    page.select_option("#head", index=1)
    assert opened.requested == [page.url]


def test_solid_boxes_are_clear_and_dashed_ones_doubtful(show):
    scores = np.array([0.9, 0.9, 0.8, 0.3], np.float32)
    explained = explain_component(cats().numpy(), scores, PresenceCounter(4))
    assert [round(presence, 1) for presence in explained.presence[2:]] == [0.8, 0.3]
    page = show(explain_page({**cats_page(), "counts": [page_count("cat", explained)]})).page
    dashes = page.locator(".columns .frame:visible").evaluate_all(
        "all => Object.fromEntries(all.map((f) => [f.dataset.box, getComputedStyle(f.lastChild).strokeDasharray]))"
    )
    for box, dash in dashes.items():
        assert (dash == "none") == (explained.presence[int(box)] >= 0.5)


def test_a_cell_points_at_its_two_boxes_and_a_box_at_its_row(show):
    page = show(explain_page(cats_page())).page
    unfold(page)
    page.locator(".map canvas").first.scroll_into_view_if_needed()
    place = page.locator(".map canvas").first.bounding_box()
    page.mouse.move(place["x"] + 0.9 * place["width"], place["y"] + 0.4 * place["height"])
    pointed = page.locator(".maps .frame.pointed").evaluate_all("boxes => boxes.map(b => b.dataset.box).sort()")
    assert pointed == ["1", "3"]
    assert page.locator(".map .readout").first.text_content() == "boxes 2, 4: 1"
    page.locator(".columns .frame[data-box='2'] .line").hover()
    assert page.locator("tr.pointed").get_attribute("data-box") == "2"


def test_heat_maps_are_reached_by_keyboard(show):
    page = show(explain_page(cats_page())).page
    unfold(page)
    page.locator(".map canvas").nth(1).focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert page.locator(".map .readout").nth(1).text_content() == "boxes 2, 2: 0"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("component", [Counter(4), PresenceCounter(4)], ids=["counter", "presence"])
def test_a_phone_shows_it_without_scrolling_sideways(show, component, dark):
    count = page_count("cat", explain_component(cats().numpy(), np.ones(4, np.float32), component))
    page = show(explain_page({**cats_page(), "counts": [count]}), width=375, height=800, dark=dark).page
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    unfold(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_hostile_names_run_nothing(show):
    opened = show(explain_page(cats_page(HOSTILE)))
    assert opened.page.locator("h1").text_content() == f"How many {HOSTILE}?"
    assert opened.requested == [opened.page.url]
