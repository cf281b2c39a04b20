import numpy as np
import pytest
import torch
from PIL import Image

from tallybox import Counter, PresenceCounter
from tallybox.photos import sample_photos
from tallybox.photos.counter import PhotoCounter
from tallybox.photos.shipped import shipped_estimator
from tallybox.service.models import ExplainRequest
from tallybox.service.parameters import Explainer
from tests.support.pages import scene_of, settled, start_service, stop_service
from tests.support.photos import embedded_detector


def component_of(**named):
    return Explainer(shipped_estimator()).component(ExplainRequest(boxes=[], attention=[], **named))


def shown_count(page) -> float:
    return float(page.locator(".count[data-value]:visible").get_attribute("data-value"))


def library_count(component, scene: dict) -> float:
    with torch.no_grad():
        boxes = torch.tensor(scene["boxes"], dtype=torch.float32).reshape(-1, 4)
        return component.explain(torch.tensor(scene["attention"], dtype=torch.float32), boxes).count.item()


def drag(page, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Drag on the canvas, from and to places given as shares of its size."""
    page.locator(".editable:visible").scroll_into_view_if_needed()
    area = page.locator(".editable:visible").bounding_box()
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
    assert page.locator(".count:visible").text_content() == "2.97"
    assert page.locator("[data-method=sum]:visible b").text_content() == "3.6"
    assert page.locator("[data-method=nms]:visible b").text_content() == "3"


def test_dragging_a_box_fulfils_the_task_and_changes_the_count_to_the_librarys(explorer):
    page = explorer().page
    width, height = scene_of(page)["width"], scene_of(page)["height"]
    before = shown_count(page)
    assert page.locator(".task").text_content().startswith("1/3")
    drag(page, (610 / width, 130 / height), (370 / width, 95 / height))  # the white cat onto the black one
    assert page.locator(".task").text_content().startswith("2/3")
    scene = scene_of(page)
    assert scene["boxes"][3] != [520, 60, 700, 200]
    assert shown_count(page) < before
    assert shown_count(page) == pytest.approx(library_count(Counter(10), scene), abs=1e-6)


def test_numbers_of_matrices_are_the_librarys(explorer):
    page = explorer().page
    page.locator("#score-2").fill("0.55")
    settled(page)
    scene = scene_of(page)
    with torch.no_grad():
        trace = Counter(10).explain(torch.tensor(scene["attention"]), torch.tensor(scene["boxes"]).float())
    page.locator("#tab-hood").click()
    page.locator(".map canvas:visible").nth(4).focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):  # C of boxes 3 and 3
        page.keyboard.press(key)
    said = page.locator(".map .readout:visible").nth(4).text_content()
    assert said == f"boxes 3, 3: {trace.count_matrix[2, 2].item():.3f}".rstrip("0")


def test_a_box_is_drawn_resized_by_its_corner_and_removed(explorer):
    page = explorer().page
    page.select_option("#scene", "uncertain")
    settled(page)
    page.select_option("#scene", "empty")
    settled(page)
    assert page.locator(".editable:visible .frame").count() == 0
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
    assert page.locator(".editable:visible .frame.selected").get_attribute("data-box") == "4"
    assert page.locator("#scene").input_value() == ""
    page.keyboard.press("Delete")
    settled(page)
    assert len(scene_of(page)["boxes"]) == 4


def test_a_link_restores_the_scene(explorer):
    page = explorer().page
    page.select_option("#scene", "toy")
    page.wait_for_selector("#truth:not(:empty)")
    page.locator("[data-component=presence]").click()
    page.select_option("#parameters", "toy-0.5-0.25-2")
    page.locator("#score-1").fill("0.31")
    settled(page)
    first, scene = shown_count(page), scene_of(page)
    other = explorer(page.evaluate("location.hash")).page
    assert scene_of(other) == scene
    assert shown_count(other) == first
    assert other.locator("#parameters").input_value() == "toy-0.5-0.25-2"
    component = component_of(component="presence", parameters="toy-0.5-0.25-2")
    assert first == pytest.approx(library_count(component, scene), abs=1e-6)


def test_only_parameters_that_suit_a_scene_are_offered_or_they_are_marked(explorer):
    page = explorer().page
    assert page.locator("#parameters").is_hidden()
    page.select_option("#scene", "toy")
    page.wait_for_selector("#parameters:visible")
    names = page.locator("#parameters option").evaluate_all("all => all.map((option) => option.value)")
    assert "untrained" in names
    assert not any(name.startswith("photo") for name in names)
    for name, is_marked in (("toy-0.5-0.25", False), ("toy-0.5-0", True)):
        page.select_option("#parameters", name)
        settled(page)
        assert page.locator(".problem:visible", has_text="do not suit").count() == is_marked


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
    distribution = page.locator(".bars:visible").get_attribute("aria-label")
    boxes = torch.tensor(scene_of(page)["boxes"], dtype=torch.float32)
    expected = PresenceCounter(10).distribution(torch.full((10,), 0.5), boxes)
    assert f"5: {round(100 * expected[0, 5].item())} %" in distribution
    page.locator(".editable:visible .frame .line").first.hover()
    assert "presence 0.5" in page.locator(".editable:visible .tag").last.text_content()


def test_bending_keeps_activations_rising_from_0_to_1(explorer):
    page = explorer().page
    page.select_option("#scene", "partial")
    settled(page)
    straight = shown_count(page)
    page.locator("#tab-hood").click()
    knot = page.locator(".curve:visible").nth(1).locator(".knot").nth(3)  # f2
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
    expected = library_count(component_of(activations=scene["activations"]), scene)
    assert shown_count(page) == pytest.approx(expected, abs=1e-6)
    page.locator("#reset").click()
    settled(page)
    assert shown_count(page) == straight


@pytest.mark.parametrize("preset", [0, 1, 2, 3])
def test_presets_of_curves_have_a_visible_effect(explorer, preset):
    page = explorer(tab="hood").page
    straight = shown_count(page)
    page.locator(".preset").nth(preset).click()
    settled(page)
    assert abs(shown_count(page) - straight) > 0.2


def test_a_toy_sample_is_drawn_at_the_chosen_setting(explorer):
    page = explorer().page
    page.select_option("#scene", "toy")
    page.locator("#side-length").fill("0.2")
    page.locator("#noise").fill("0")
    with page.expect_response("**/v1/scenes/toy*noise=0&*"):
        page.locator("#noise").press("Tab")
    page.wait_for_selector("#truth:not(:empty)")
    settled(page)
    scene = scene_of(page)
    sides = np.array(scene["boxes"])[:, 2:] - np.array(scene["boxes"])[:, :2]
    assert sides == pytest.approx(0.2 * scene["width"], abs=0.2)
    true_count = int(page.locator("#truth").text_content().split()[-1])
    assert sum(weight == 1 for weight in scene["attention"]) == true_count


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_shows_every_tab_without_scrolling_sideways(explorer, dark):
    page = explorer(tab="photo", width=375, height=800, dark=dark).page
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    page.locator("#move").click()
    for tab in ("play", "hood"):
        page.locator(f"#tab-{tab}").click()
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_the_photo_is_uploaded_once_and_no_request_leaves_the_machine(explorer, service):
    opened = explorer(tab="photo")
    assert len([address for address in opened.requested if "/v1/count/photo" in address]) == 1
    opened.page.locator("#move").click()
    settled(opened.page)
    for address in opened.requested:
        assert address.startswith((service.address, "blob:", "data:"))


def test_a_new_box_is_selected(explorer):
    page = explorer().page
    page.locator(".editable:visible .frame").first.focus()
    drag(page, (0.34, 0.75), (0.42, 0.95))
    assert len(scene_of(page)["boxes"]) == 5
    assert page.locator(".editable:visible .frame.selected").get_attribute("data-box") == "4"
    assert page.locator("#scene").input_value() == ""


def shown_photo(page) -> dict[str, tuple[str, str]]:
    """The counts and intervals that the page shows, by category."""
    page.wait_for_selector("#photos[aria-busy=false]")
    rows = page.locator(".row").evaluate_all(
        "all => all.map((row) => [row.dataset.category, row.children[0].innerText, row.children[2].innerText])"
    )
    return {name: (count, interval) for name, count, interval in rows}


def expected_photo(path) -> dict[str, tuple[str, str]]:
    counts = PhotoCounter(embedded_detector()).count(path)
    ranges = {name: f"{p.low}–{p.high}" if p.low != p.high else str(p.low) for name, p in counts.items()}
    return {name: (str(p.count), f"90 %: {ranges[name]}") for name, p in counts.items() if p.count}


def test_the_suitcases_come_first_with_their_truth_and_the_other_methods(explorer):
    page = explorer(tab="photo").page
    assert shown_photo(page) == expected_photo(sample_photos()[2])
    for category, true_count in (("suitcase", 12), ("backpack", 0)):
        name = page.locator(f"[data-category={category}] svg").get_attribute("aria-label")
        assert name.endswith(f"true count {true_count}")
    methods = page.locator(".method:visible b").all_text_contents()
    assert methods == ["20.3", "8", "14"]
    kinds = [page.locator(f"#photos .frame.{kind}:visible").count() for kind in ("clear", "doubtful")]
    assert kinds == [8, 6]
    assert page.locator("#photos [data-view]").all_text_contents() == ["Photo", "Detector: 60 boxes", "Counted: 14"]
    page.locator("[data-view=boxes]").click()
    assert page.locator("#photos .frame:visible").count() == 60


def test_a_row_lights_its_boxes_until_the_pointer_leaves(explorer):
    page = explorer(tab="photo").page
    page.locator("[data-category=backpack]").hover()
    assert page.locator("#photos .frame.pointed").count() == 1
    page.locator(".masthead").hover()
    assert page.locator("#photos [data-view=counted]").text_content() == "Counted: 14"
    assert page.locator("#photos .frame.pointed").count() == 0


def test_the_saved_picture_shows_the_photo_in_view(explorer):
    page = explorer(tab="photo").page
    with page.expect_download() as download:
        page.locator("#save").click()
    assert download.value.suggested_filename == "lobby_with_suitcases_counted.jpg"
    with Image.open(download.value.path()) as picture:
        assert picture.width == 640
        assert picture.height > 480  # the count in words


def test_the_copied_python_prints_the_shown_count(explorer, capsys):
    page = explorer(tab="photo").page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#python").click()
    exec(page.evaluate("navigator.clipboard.readText()"), {})
    assert capsys.readouterr().out == "14 11 15\n"


def test_moved_to_the_canvas_the_boxes_count_the_same(explorer):
    page = explorer(tab="photo").page
    page.locator("[data-photo^=buses]").click()
    page.wait_for_selector("[data-category=car]")
    page.locator("#move").click()
    settled(page)
    assert shown_count(page) == 6  # 5 and 6 are about equally probable: every box and digit counts


def test_an_uploaded_photo_is_counted_and_its_boxes_can_be_moved(explorer):
    page = explorer(tab="photo").page
    page.locator("#photo").set_input_files(sample_photos()[1])
    page.wait_for_selector("[data-category=horse]")
    assert shown_photo(page) == expected_photo(sample_photos()[1])
    page.locator("[data-category=horse]").click()
    page.locator("#move").click()
    settled(page)
    assert shown_count(page) == 2  # the estimator's, as on the first tab
    assert page.locator(".result:visible .quiet").text_content().endswith("90 %: 1–3")


def test_a_bad_file_is_one_line_and_the_last_photo_stays(explorer, tmp_path):
    opened = explorer(tab="photo")
    page = opened.page
    before = shown_photo(page)
    (tmp_path / "notes.jpg").write_text("no photo")
    page.locator("#photo").set_input_files(tmp_path / "notes.jpg")
    page.wait_for_selector("#photos[aria-busy=false] .problem:not(:empty)")
    assert shown_photo(page) == before
    opened.errors.clear()  # the browser logs the 422


def test_hovering_links_cells_boxes_and_sliders(explorer):
    page = explorer().page
    page.locator(".slider[data-box='2']").hover()
    assert page.locator(".editable:visible .frame.pointed").get_attribute("data-box") == "2"
    page.locator("#tab-hood").click()
    canvas = page.locator(".map canvas:visible").first
    canvas.scroll_into_view_if_needed()
    place = canvas.bounding_box()
    page.mouse.move(place["x"] + 0.9 * place["width"], place["y"] + 0.1 * place["height"])
    pointed = page.locator(".scene:visible .frame.pointed").evaluate_all("found => found.map(b => b.dataset.box)")
    assert sorted(pointed) == ["0", "3"]


def test_boxes_at_the_same_place_can_all_be_reached(explorer):
    page = explorer().page
    page.select_option("#scene", "duplicates")
    settled(page)
    page.locator(".editable:visible").scroll_into_view_if_needed()
    area = page.locator(".editable:visible").bounding_box()
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
        page.locator("#tab-play").click()
        page.wait_for_selector(".count[data-value]:visible")
        assert shown_count(page) == pytest.approx(2.97, abs=0.01)
        page.close()
    finally:
        stop_service(guarded)
