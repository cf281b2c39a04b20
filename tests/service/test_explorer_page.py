import json
import runpy

import numpy as np
import pytest
import torch
from tallybox.service.explaining import counter_with_knots, presence_with_weights, weight_sets

from tallybox import Counter, PresenceCounter
from tallybox.photos.shipped import shipped_estimator
from tests.support.pages import scene_of, settled, start_service, stop_service


def shown_count(page) -> float:
    return float(page.locator(".result .count").get_attribute("data-value"))


def library_count(component, scene: dict) -> float:
    with torch.no_grad():
        boxes = torch.tensor(scene["boxes"], dtype=torch.float32).reshape(-1, 4)
        return component.explain(torch.tensor(scene["attention"], dtype=torch.float32), boxes).count.item()


def drag(page, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Drag on the canvas, from and to places given as shares of its size."""
    page.locator(".editable").scroll_into_view_if_needed()
    area = page.locator(".editable").bounding_box()
    places = [(area["x"] + x * area["width"], area["y"] + y * area["height"]) for x, y in (start, end)]
    page.mouse.move(*places[0])
    page.mouse.down()
    page.mouse.move(*[(one + other) / 2 for one, other in zip(*places, strict=True)])
    page.mouse.move(*places[1])
    page.mouse.up()
    settled(page)


def test_the_cats_are_counted_as_the_library_counts_them(explorer):
    page = explorer().page
    assert shown_count(page) == pytest.approx(library_count(Counter(10), scene_of(page)), abs=1e-6)
    assert page.locator(".result .count").text_content() == "2.97"
    assert page.locator("[data-baseline=sum]").text_content() == "3.6"
    assert page.locator("[data-baseline=nms]").text_content() == "3"


def test_every_box_of_the_opening_scene_is_seen_with_the_number_of_its_slider(explorer):
    page = explorer().page
    boxes = np.array(scene_of(page)["boxes"])
    assert len(np.unique(boxes, axis=0)) == 4
    tags = page.locator(".editable .tag").all_text_contents()
    labels = page.locator(".slider output").all_text_contents()
    sliders = page.locator(".slider input").evaluate_all("all => all.map((slider) => slider.value)")
    assert sorted(tags) == [f"{box} · {label}" for box, label in enumerate(labels, start=1)]
    assert labels == sliders


def test_bending_f1_in_the_opening_scene_changes_a_count_that_stays_in_view(explorer):
    page = explorer(width=1360).page
    straight = shown_count(page)
    assert not page.locator(".live").is_visible()
    knot = page.locator(".curve").first.locator(".knot").nth(12)  # f1 where edges of the cats lie
    knot.scroll_into_view_if_needed()
    knot.focus()
    page.keyboard.press("PageUp")
    settled(page)
    assert abs(shown_count(page) - straight) > 0.01
    live = page.locator(".live")
    live.wait_for(state="visible")
    assert live.text_content() == f"count {shown_count(page):.3f}".rstrip("0")
    place = live.bounding_box()
    assert place["y"] >= 0
    assert place["y"] + place["height"] <= 900


@pytest.mark.parametrize(("component", "maps"), [("counter", 6), ("presence", 4)])
def test_heat_maps_stand_in_one_row(explorer, component, maps):
    page = explorer(width=1360).page
    page.locator(f"[data-component={component}]").click()
    settled(page)
    canvases = page.locator(f".maps-{maps} .map canvas")
    tops = canvases.evaluate_all("all => all.map((canvas) => canvas.getBoundingClientRect().top)")
    lefts = canvases.evaluate_all("all => all.map((canvas) => canvas.getBoundingClientRect().left)")
    assert len(set(tops)) == 1
    gaps = np.diff(lefts)
    assert gaps == pytest.approx(gaps[0], abs=1)


def test_dragging_a_box_changes_the_count_to_the_librarys(explorer):
    page = explorer().page
    width, height = scene_of(page)["width"], scene_of(page)["height"]
    before = shown_count(page)
    drag(page, (610 / width, 130 / height), (380 / width, 100 / height))  # the white cat onto the black one
    scene = scene_of(page)
    assert scene["boxes"][3] != [520, 60, 700, 200]
    assert shown_count(page) < before
    assert shown_count(page) == pytest.approx(library_count(Counter(10), scene), abs=1e-6)


def test_numbers_of_matrices_are_the_librarys(explorer):
    page = explorer().page
    page.locator("#weight-2").fill("0.55")
    settled(page)
    scene = scene_of(page)
    with torch.no_grad():
        trace = Counter(10).explain(torch.tensor(scene["attention"]), torch.tensor(scene["boxes"]).float())
    page.locator(".map canvas").nth(4).focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):  # C of boxes 3 and 3
        page.keyboard.press(key)
    said = page.locator(".map .readout").nth(4).text_content()
    assert said == f"boxes 3, 3: {trace.count_matrix[2, 2].item():.3f}".rstrip("0")
    assert f"confidence {trace.confidence.item():.2f}" in page.locator(".result .quiet").text_content()


def test_a_box_is_drawn_resized_by_its_corner_and_removed(explorer):
    page = explorer().page
    page.select_option("#scene", "uncertain")
    settled(page)
    page.select_option("#scene", "empty")
    settled(page)
    assert page.locator(".editable .box").count() == 0
    drag(page, (0.2, 0.2), (0.5, 0.6))
    (box,) = scene_of(page)["boxes"]
    assert box == pytest.approx([128, 80, 320, 240], abs=3)
    drag(page, (0.5, 0.6), (0.7, 0.8))
    (box,) = scene_of(page)["boxes"]
    assert box == pytest.approx([128, 80, 448, 320], abs=3)
    page.locator("[aria-label='Remove box 1']").click()
    settled(page)
    assert scene_of(page)["boxes"] == []
    assert shown_count(page) == pytest.approx(0, abs=1e-6)


def test_everything_can_be_done_with_the_keyboard(explorer):
    page = explorer().page
    page.locator("#add").focus()
    page.keyboard.press("Enter")
    settled(page)
    scene = scene_of(page)
    assert len(scene["boxes"]) == 5
    assert page.evaluate("document.activeElement.dataset.box") == "4"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowDown")
    settled(page)
    x1, y1, x2, y2 = scene["boxes"][4]
    assert scene_of(page)["boxes"][4] == pytest.approx([x1 + 8, y1, x2 + 8, y2 + 8])
    assert page.evaluate("getComputedStyle(document.activeElement).strokeWidth") == "5px"
    page.keyboard.press("Delete")
    settled(page)
    assert len(scene_of(page)["boxes"]) == 4


def test_a_link_restores_the_scene(explorer):
    page = explorer().page
    page.select_option("#scene", "partial")
    page.locator("[data-component=presence]").click()
    page.select_option("#weights", "toy-0.5-0.25-2")
    page.locator("#weight-1").fill("0.31")
    settled(page)
    first, scene = shown_count(page), scene_of(page)
    other = explorer(page.evaluate("location.hash")).page
    assert scene_of(other) == scene
    assert shown_count(other) == first
    assert other.locator("#weights").input_value() == "toy-0.5-0.25-2"
    sets = weight_sets(shipped_estimator())["presence"]
    weights = next(weight_set for weight_set in sets if weight_set.name == "toy-0.5-0.25-2").weights
    assert first == pytest.approx(library_count(presence_with_weights(weights, 10), scene), abs=1e-6)


@pytest.mark.parametrize("hash_", ["#nonsense", "#e30", "#eyJib3hlcyI6ICI8c2NyaXB0PiJ9"])
def test_a_broken_link_shows_the_first_scene(explorer, hash_):
    assert shown_count(explorer(hash_).page) == pytest.approx(2.97, abs=0.01)


def test_presence_counting_shows_its_presences_and_distribution(explorer):
    page = explorer().page
    page.select_option("#scene", "uncertain")
    settled(page)
    assert shown_count(page) == pytest.approx(1.01, abs=0.01)  # what the paper's component makes of ten halves
    page.locator("[data-component=presence]").click()
    settled(page)
    assert shown_count(page) == pytest.approx(5, abs=1e-4)
    distribution = page.locator(".bars").get_attribute("aria-label")
    expected = PresenceCounter(10).distribution(
        torch.full((10,), 0.5), torch.tensor(scene_of(page)["boxes"], dtype=torch.float32)
    )
    assert f"5: {round(100 * expected[0, 5].item())} %" in distribution
    page.locator(".editable .box").first.hover()
    assert "presence 0.5" in page.locator(".editable .tag").text_content()


def test_bending_keeps_activations_rising_from_0_to_1(explorer):
    page = explorer().page
    page.select_option("#scene", "partial")
    settled(page)
    straight = shown_count(page)
    knot = page.locator(".curve").nth(1).locator(".knot").nth(3)  # f2
    knot.scroll_into_view_if_needed()
    place = knot.bounding_box()
    page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    page.mouse.down()
    page.mouse.move(place["x"], place["y"] - 90)
    page.mouse.up()
    settled(page)
    scene = scene_of(page)
    knots = np.array(scene["activations"])
    assert (knots[:, 0] == 0).all()
    assert (knots[:, -1] == 1).all()
    assert (np.diff(knots) >= 0).all()
    assert knots[1, 4] > 0.6
    assert shown_count(page) > straight
    assert shown_count(page) == pytest.approx(
        library_count(counter_with_knots(scene["activations"], 10), scene), abs=1e-6
    )
    page.get_by_role("button", name="Straighten").click()
    settled(page)
    assert shown_count(page) == straight


@pytest.mark.parametrize(
    ("component", "weights"),
    [("counter", "untrained"), ("counter", "toy-0.5-0"), ("presence", "untrained"), ("presence", "photo-2-1")],
)
def test_the_python_code_prints_the_pages_numbers(explorer, tmp_path, capsys, component, weights):
    page = explorer().page
    page.select_option("#scene", "partial")
    page.locator(f"[data-component={component}]").click()
    page.select_option("#weights", weights)
    settled(page)
    with page.expect_download() as started:
        page.locator("#save-python").click()
    started.value.save_as(tmp_path / "scene.py")
    capsys.readouterr()
    runpy.run_path(str(tmp_path / "scene.py"))
    said = dict(line.split(" ", 1) for line in capsys.readouterr().out.splitlines())
    assert float(said["count"]) == pytest.approx(shown_count(page), abs=2e-5)
    if component == "counter":
        confidence = page.locator(".result .quiet").get_attribute("data-confidence")
        assert float(said["confidence"]) == pytest.approx(float(confidence), abs=2e-5)
    if weights.startswith("photo"):
        sets = weight_sets(shipped_estimator())["presence"]
        learned = next(weight_set for weight_set in sets if weight_set.name == weights).weights
        assert shown_count(page) == pytest.approx(
            library_count(presence_with_weights(learned, 10), scene_of(page)), abs=1e-6
        )


def test_a_scene_is_saved_as_json_and_as_a_picture(explorer, tmp_path):
    page = explorer().page
    with page.expect_download() as started:
        page.locator("#save-json").click()
    saved = json.loads(started.value.path().read_text())
    assert saved["scene"] == scene_of(page)
    assert saved["answer"]["count"] == shown_count(page)
    with page.expect_download() as started:
        page.locator("#save-png").click()
    assert started.value.path().read_bytes().startswith(b"\x89PNG")


def test_a_toy_sample_is_drawn_at_the_chosen_setting(explorer):
    page = explorer().page
    page.select_option("#scene", "toy")
    page.locator("#side-length").fill("0.2")
    page.locator("#noise").fill("0")
    with page.expect_response("**/v1/scenes/toy*noise=0&*"):
        page.locator("#noise").press("Tab")
    page.wait_for_function("document.getElementById('truth').textContent")
    settled(page)
    scene = scene_of(page)
    sides = np.array(scene["boxes"])[:, 2:] - np.array(scene["boxes"])[:, :2]
    assert sides == pytest.approx(0.2 * scene["width"], abs=0.2)
    true_count = int(page.locator("#truth").text_content().split()[-1].rstrip("."))
    assert sum(weight == 1 for weight in scene["attention"]) == true_count


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_shows_it_without_scrolling_sideways(explorer, dark):
    page = explorer(width=375, height=800, dark=dark).page
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    page.locator("[data-component=presence]").click()
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_no_request_leaves_the_machine(explorer, service, open_page):
    opened = explorer()
    opened.page.select_option("#scene", "partial")
    settled(opened.page)
    docs = open_page(f"{service.address}/docs")
    docs.page.wait_for_selector(".route")
    for address in opened.requested + docs.requested:
        assert address.startswith((service.address, "blob:", "data:"))


def test_hovering_links_cells_boxes_and_sliders(explorer):
    page = explorer().page
    page.locator(".slider[data-box='2']").hover()
    assert page.locator(".editable .box.pointed").get_attribute("data-box") == "2"
    canvas = page.locator(".map canvas").first
    canvas.scroll_into_view_if_needed()
    place = canvas.bounding_box()
    page.mouse.move(place["x"] + 0.9 * place["width"], place["y"] + 0.1 * place["height"])
    assert sorted(page.locator(".editable .box.pointed").evaluate_all("found => found.map(b => b.dataset.box)")) == [
        "0",
        "3",
    ]


def test_boxes_at_the_same_place_can_all_be_reached(explorer):
    page = explorer().page
    page.select_option("#scene", "duplicates")
    settled(page)
    page.locator(".editable").scroll_into_view_if_needed()
    area = page.locator(".editable").bounding_box()
    reached = set()
    for _ in range(3):
        page.mouse.click(area["x"] + 0.25 * area["width"], area["y"] + 0.5 * area["height"])
        reached.add(page.evaluate("document.activeElement.dataset.box"))
    assert reached == {"0", "1", "2"}
    before = scene_of(page)["boxes"]
    drag(page, (0.25, 0.5), (0.5, 0.8))  # moves the selected one alone
    assert sum(one != other for one, other in zip(before, scene_of(page)["boxes"], strict=True)) == 1


@pytest.mark.slow
def test_a_token_is_asked_for_once(browser):
    guarded = start_service(TALLYBOX_TOKEN="open sesame")
    try:
        page = browser.new_page()
        page.goto(guarded.address)
        page.locator("#token").fill("open sesame")
        page.keyboard.press("Enter")
        page.wait_for_selector(".result .count[data-value]")
        assert shown_count(page) == pytest.approx(2.97, abs=0.01)
        page.close()
    finally:
        stop_service(guarded)
