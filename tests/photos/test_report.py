import re
import shutil

from click.testing import CliRunner

from tallybox.cli import cli
from tallybox.photos import sample_photos


def test_a_report_is_one_page_with_totals_and_every_photo(tmp_path):
    for path in sample_photos():
        shutil.copy(path, tmp_path)
    shutil.copy(sample_photos()[0], tmp_path / "<b>&.jpg")
    page = tmp_path / "report.html"
    result = CliRunner().invoke(cli, ["count", str(tmp_path), "--report", str(page)])
    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert len(text) < 4 * 80_000 + 20_000  # 500 photos stay below 40 MB
    assert text.count("data:image/jpeg") == 4
    assert not re.search(r"(src|href)=.?(https?:|//)", text)
    assert "&lt;b&gt;&amp;.jpg" in text
    assert "<b>&.jpg" not in text
    assert "suitcase" in text
    assert "calibrated" in text
