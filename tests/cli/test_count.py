import json
import re
import shutil
from functools import partial

import pandas as pd
import pytest
from PIL import Image

from tallybox import PhotoCounter
from tallybox.photos import read_photo, sample_photos
from tallybox.photos.report import Report
from tallybox.photos.shipped import SHIPPED_ESTIMATOR
from tests.support import commands
from tests.support.detection_sets import coco_results, write_json
from tests.support.photos import embedded_detector, encoded, gradient

run = partial(commands.run, "count")
NAMES = ("buses_in_the_rain.jpg", "lobby_with_suitcases.jpg", "riders_on_a_beach.jpg")
BUSES, LOBBY, RIDERS = NAMES


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for path in sample_photos():
        shutil.copy(path, folder)
    return folder


@pytest.fixture(scope="module")
def detections(tmp_path_factory):
    images = embedded_detector().detect([read_photo(path) for path in sample_photos()])
    return write_json(tmp_path_factory.mktemp("detections") / "results.json", coco_results(images))


def test_a_photo_is_counted_in_a_table_and_several_in_a_line_each(photos):
    several = run(photos)
    assert several.exit_code == 0, several.output
    assert several.stderr == ""
    assert [name in line for name, line in zip(NAMES, several.stdout.splitlines(), strict=True)] == [True] * 3
    result = run(photos / BUSES)
    assert result.exit_code == 0, result.output
    for word in (BUSES, "640 x 480", "category", "90 % interval", "person", "bus"):
        assert word in result.stdout


def test_photos_give_the_json_of_the_contract_and_the_counts_of_their_detections(photos, detections):
    result = run(*(photos / path.name for path in sample_photos()), "--json")
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said.keys() == {"images"}
    assert [image["image"] for image in said["images"]] == [str(photos / path.name) for path in sample_photos()]
    from_file = json.loads(run(detections, "--json").stdout)["images"]
    for image, other in zip(said["images"], from_file, strict=True):
        assert image.keys() == {"image", "counts"}
        assert image["counts"].keys() == other["counts"].keys()
        for name, number in image["counts"].items():
            assert number.keys() - {"saturated"} == {"count", "most_probable", "expected", "low", "high"}
            assert number == pytest.approx(other["counts"][name], abs=0.02)  # counts are whole: equal


def test_only_the_categories_that_were_asked_for(photos):
    said = json.loads(run(photos, "--category", "bus", "--category", "dog", "--json").stdout)
    assert all(list(image["counts"]) == ["bus", "dog"] for image in said["images"])
    table = run(photos / LOBBY, "--category", "dog").stdout
    assert "dog" in table
    assert "person" not in table
    assert "did you mean 'person'" in run(photos, "--category", "persn").stderr


@pytest.mark.parametrize("suffix", [".csv", ".xlsx", ".parquet", ".json"])
def test_a_table_has_the_format_of_its_suffix(photos, tmp_path, suffix):
    path = tmp_path / "new" / f"counts{suffix}"
    result = run(photos, "--out", path, "--json", "--total")
    assert result.exit_code == 0, result.output
    expected = json.loads(result.stdout)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    if suffix == ".json":
        assert json.loads(path.read_text()) == expected
        return
    readers = {".csv": pd.read_csv, ".xlsx": pd.read_excel, ".parquet": pd.read_parquet}
    frame = readers[suffix](path)
    numbers = ["count", "most_probable", "expected", "low", "high", "saturated", "calibrated"]
    assert list(frame) == ["image", "category", *numbers]
    rows = [(i["image"], name, p["count"]) for i in expected["images"] for name, p in i["counts"].items()]
    of_images = frame[frame["image"] != "total"]
    assert list(zip(of_images["image"], of_images["category"], of_images["count"], strict=True)) == rows
    assert len(frame) - len(of_images) == len(expected["totals"])


def test_wrong_suffixes_of_tables_are_refused(photos):
    assert run(photos, "--out", "counts.txt").exit_code == 2


def test_a_report_is_one_page_with_totals_and_every_photo(photos, tmp_path):
    page = tmp_path / "report.html"
    shutil.copy(photos / BUSES, tmp_path / "<b>&.jpg")
    result = run(photos, tmp_path / "<b>&.jpg", "--report", page)
    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert len(text) < 4 * 80_000 + 20_000  # 500 photos stay below 40 MB
    assert text.count("data:image/jpeg") == 4
    assert not re.search(r"(src|href)=.?(https?:|//)", text)
    assert "&lt;b&gt;&amp;.jpg" in text
    assert "<b>&.jpg" not in text


def test_an_interrupted_report_resumes_without_a_table(photos, tmp_path, monkeypatch):
    assert run(photos, "--report", tmp_path / "whole.html").exit_code == 0
    with monkeypatch.context() as patched:
        patched.setattr(Report, "write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run(photos, "--report", tmp_path / "report.html").exit_code != 0
    monkeypatch.setattr(PhotoCounter, "count_each", lambda *_, **__: iter(()))  # nothing is left to do
    assert run(photos, "--report", tmp_path / "report.html").exit_code == 0
    assert (tmp_path / "report.html").read_text() == (tmp_path / "whole.html").read_text()
    assert not list(tmp_path.glob("*.unfinished"))


def test_an_interrupted_table_resumes_without_detecting_again(photos, tmp_path, monkeypatch):
    folder, out, page = tmp_path / "photos", tmp_path / "counts.json", tmp_path / "report.html"
    shutil.copytree(photos, folder)
    (folder / "broken.jpg").write_bytes(b"no")
    with Image.open(photos / RIDERS) as riders:
        riders.resize((1400, 900)).save(folder / "a_large.jpg")  # counted in windows
    whole = run(folder, "--out", tmp_path / "whole.json", "--total", "--report", page, "--tiles", 640)
    assert whole.exit_code == 1
    expected = json.loads((tmp_path / "whole.json").read_text()), page.read_text()
    count_each = PhotoCounter.count_each
    seen = []

    def interrupted(self, paths, *arguments, **options):
        for number, result in enumerate(count_each(self, paths, *arguments, **options)):
            if number == 3:
                raise KeyboardInterrupt
            yield result

    def recorded(self, paths, *arguments, **options):
        seen.extend(paths)
        return count_each(self, [*seen], *arguments, **options)

    def unwritten(*_):
        raise KeyboardInterrupt

    command = (folder, "--out", out, "--total", "--report", page, "--tiles", 640)
    monkeypatch.setattr(PhotoCounter, "count_each", interrupted)
    assert run(*command).exit_code != 0
    assert not out.exists()
    monkeypatch.setattr(PhotoCounter, "count_each", recorded)
    with monkeypatch.context() as patched:
        patched.setattr(Report, "write", unwritten)
        assert run(*command).exit_code != 0
    assert len(seen) == 3  # of five, two were done; the broken one is tried again
    seen.clear()
    assert run(*command).exit_code == 1
    assert len(seen) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["counts.json", "photos", "report.html", "whole.json"]
    found = json.loads(out.read_text())
    for images in (found["images"], expected[0]["images"]):
        images[0]["tiles"].pop("seconds")
    assert (found, page.read_text()) == expected


def test_thumbnails_and_other_files_are_skipped_and_counted_by_kind(photos, tmp_path):
    for name in ("@eaDir/x.jpg", ".thumbnails/y.jpg", "notes.txt", "more.txt", "clip.mov"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"no photo")
    shutil.copy(photos / BUSES, tmp_path)
    result = run(tmp_path, "--json")
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["images"]) == 1
    (line,) = result.stderr.splitlines()
    for kind in ("2 .txt", "2 in thumbnail", "1 .mov"):
        assert kind in line


def test_saved_pictures_show_each_photo(photos, tmp_path):
    (tmp_path / "again").mkdir()
    shutil.copy(photos / BUSES, tmp_path / "again")
    result = run(photos, tmp_path / "again", "--save", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "Wrote 4 pictures" in result.stderr
    found = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert found == sorted(["buses_in_the_rain_counted-2.jpg", *(f"{name[:-4]}_counted.jpg" for name in NAMES)])
    with Image.open(tmp_path / "out" / "riders_on_a_beach_counted.jpg") as picture:
        assert picture.width == 640


@pytest.mark.parametrize("as_json", [True, False])
def test_bad_files_are_one_line_each_and_the_others_are_counted(photos, tmp_path, as_json):
    for name, content in (("a.jpg", b"\xff\xd8\xff"), ("b.png", b"text"), ("c.jpg", encoded(gradient(90, 60), "JPEG"))):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "d.json").write_text('[{"image_id": 1, ')
    result = run(tmp_path, tmp_path / "d.json", photos / BUSES, "--estimator", SHIPPED_ESTIMATOR, *["--json"] * as_json)
    assert result.exit_code == 1
    lines = [line for line in result.stderr.splitlines() if not line.startswith("Skipped")]
    assert len(lines) == 3
    for line, name in zip(lines, ("a.jpg", "b.png", "d.json"), strict=True):
        assert line.startswith("Error: ")
        assert name in line
    if as_json:
        assert [image["image"] for image in json.loads(result.stdout)["images"]] == [
            str(tmp_path / "c.jpg"),
            str(photos / BUSES),
        ]


def test_pictures_never_replace_a_file_that_count_did_not_write(photos, tmp_path):
    shutil.copy(photos / BUSES, tmp_path / "a.jpg")
    own = tmp_path / "a_counted.jpg"
    shutil.copy(photos / RIDERS, own)
    before = own.read_bytes()
    result = run(tmp_path / "a.jpg", photos / LOBBY, "--save", tmp_path, "--json")
    assert result.exit_code == 1
    assert own.read_bytes() == before
    assert "a_counted.jpg exists" in result.stderr
    assert "Wrote 1 picture to" in result.stderr
    assert len(json.loads(result.stdout)["images"]) == 2
    own.unlink()
    for _ in range(2):  # its own picture is replaced
        assert run(tmp_path / "a.jpg", "--save", tmp_path).exit_code == 0
    (tmp_path / "b.jpg").write_bytes((photos / BUSES).read_bytes())
    (tmp_path / "b_counted.jpg").symlink_to(photos / RIDERS)
    assert run(tmp_path / "b.jpg", "--save", tmp_path).exit_code == 1


def test_photos_after_a_file_are_not_counted_with_the_files_estimator(detections, photos, tmp_path, monkeypatch):
    (tmp_path / "resized_picodet.py").write_text(
        "from tallybox.photos import PicoDet\ndef make():\n    return PicoDet(size=320, device='cpu')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    result = run(detections, photos / RIDERS, "--detector", "resized_picodet:make", "--json")
    assert result.exit_code == 0, result.output
    *of_file, of_photo = json.loads(result.stdout)["images"]
    assert all("calibrated" not in count for image in of_file for count in image["counts"].values())
    assert of_photo["counts"]
    assert all(count["calibrated"] is False for count in of_photo["counts"].values())


def test_wrong_usage_is_status_2(photos, detections, tmp_path):
    assert run(tmp_path / "none.jpg").exit_code == 2
    assert run(photos, "--tiles", "some").exit_code == 2
    assert run(detections, "--save", tmp_path).exit_code == 2
    assert "--detector and --text are for photos" in run(detections, "--detector", "picodet").stderr
    unknown = run(photos / BUSES, "--detector", "pikodet")
    assert unknown.exit_code == 1
    assert len(unknown.stderr.splitlines()) == 1
