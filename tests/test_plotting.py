"""Pictures for screens and for papers."""

import re

from tallybox.plotting import WIDE, add_letters, draw_all, panels, picture


def draw(path):
    with picture(path, WIDE, 2) as figure:
        add_letters(panels(figure, 1, 4, narrow=2))


def test_pictures_are_png_and_for_papers_pdf_of_two_widths(tmp_path):
    assert draw_all(tmp_path, {"one": draw}) == [tmp_path / "one.png"]
    paths = draw_all(tmp_path, {"one": draw}, pdf=True)
    assert [path.name for path in paths] == ["one.png", "one.pdf", "one-narrow.pdf"]
    pages = [re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", path.read_bytes()) for path in paths[1:]]
    (wide, height), (narrow, higher) = ([float(size) / 72 for size in page.groups()] for page in pages)
    assert (wide, narrow) == (6.75, 3.25)
    assert higher > height  # two panels in a row, not four
