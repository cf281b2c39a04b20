import pytest

from tallybox.photos import sample_photos
from tallybox.photos.counter import PhotoCounter
from tallybox.photos.images import read_photo
from tests.support.pages import scene_of, settled
from tests.support.photos import embedded_detector


def photo_counts(page) -> dict[str, tuple[str, str]]:
    """The counts and ranges that the page shows of a photo, by name."""
    page.wait_for_selector("#photos[aria-busy=false]")
    rows = page.locator(".counts tr").evaluate_all(
        "all => all.map((row) => [...row.children].map((cell) => cell.innerText))"
    )
    return {name: (count, interval) for count, name, interval, _ in rows}


def expected_counts(path) -> dict[str, tuple[str, str]]:
    """The same, of the library."""
    counts = PhotoCounter(embedded_detector()).count(path)
    intervals = {name: (prediction.low, prediction.high) for name, prediction in counts.items()}
    return {
        name: (str(prediction), f"{low} to {high}" if low != high else "no other number is likely")
        for (name, prediction), (low, high) in zip(counts.items(), intervals.values(), strict=True)
        if prediction.count
    }


def test_sample_photos_come_first_counted_with_all_names(explorer):
    page = explorer().page
    assert photo_counts(page) == expected_counts(sample_photos()[0])
    page.locator(".sample").nth(1).click()
    assert photo_counts(page) == expected_counts(sample_photos()[1])
    assert page.locator(".photo").evaluate("image => image.naturalWidth") == 640
    assert page.locator(".photo").get_attribute("src").startswith("blob:")


def test_an_uploaded_photo_is_counted_by_the_estimator(explorer):
    page = explorer().page
    photo_counts(page)
    page.locator("#photo").set_input_files(sample_photos()[1])
    page.wait_for_selector("[data-category=horse]")
    assert photo_counts(page) == expected_counts(sample_photos()[1])
    page.locator("[data-category=horse] button").click()
    settled(page)
    scene = scene_of(page)
    seen = embedded_detector().detect([read_photo(sample_photos()[1])])[0].of_category(19)
    assert scene["attention"][0] == pytest.approx(max(seen.scores), abs=0.006)
    assert scene["boxes"][0] == pytest.approx(seen.boxes[seen.scores.argmax()].tolist(), abs=0.1)
    assert page.locator("#origin").text_content().startswith("horse: the estimator counts 2 (1 to 3).")
    page.select_option("#scene", "cats")
    settled(page)
    assert page.locator("#origin").text_content() == ""


def test_a_file_that_is_no_photo_is_one_clear_line(explorer, tmp_path):
    page = explorer().page
    photo_counts(page)
    (tmp_path / "notes.jpg").write_text("no photo")
    page.locator("#photo").set_input_files(tmp_path / "notes.jpg")
    page.wait_for_selector("#photos[aria-busy=false] .problem:not(:empty)")
    assert (
        page.locator("#photos .problem").text_content()
        == "This file was not counted: it is no photo that this browser can show."
    )


def test_the_tour_has_three_steps_and_is_shown_once(explorer, browser):
    page = explorer().page
    assert page.locator("#photos .tour").text_content().count("1 of 3") == 1
    page.locator(".tour .next").click()
    assert page.locator("#boxes .tour").is_visible()
    page.locator("[data-component=presence]").click()
    settled(page)
    page.locator(".tour .next").click()
    settled(page)
    assert page.locator(".tour ~ .curves .knot").count() == 8 * 15
    assert "3 of 3" in page.locator(".tour").text_content()
    assert page.locator(".tour .skip").is_hidden()
    page.locator(".tour .next").click()
    assert page.locator(".tour").count() == 0
    page.reload()
    page.wait_for_selector(".result .count[data-value]")
    assert page.locator(".tour").count() == 0
    page.locator("#tour").click()
    page.keyboard.press("Escape")
    assert page.locator(".tour").count() == 0


def test_the_tour_can_be_skipped(explorer):
    page = explorer().page
    page.locator(".tour .skip").click()
    assert page.locator(".tour").count() == 0
