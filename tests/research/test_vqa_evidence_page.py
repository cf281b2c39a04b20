import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from research.vqa_scores import difference, reached

from tests.support.shared_data import data_folder

ROOT = Path(__file__).parent.parent.parent


def run(script: str, *arguments: Path) -> None:
    subprocess.run([sys.executable, ROOT / "research" / script, *arguments], check=True, cwd=ROOT)


@pytest.mark.slow
def test_the_page_is_made_again_byte_for_byte_from_the_committed_answers(tmp_path):
    questions = data_folder("vqa2-subset")
    committed = ROOT / "docs" / "results" / "vqa"
    page = shutil.copytree(committed, tmp_path / "vqa")
    text = (page / "README.md").read_text()
    stale = text.replace("| + presence counter | ", "| + presence counter | 9").replace(" yes |", " perhaps |")
    assert stale != text
    (page / "README.md").write_text(stale)
    run("vqa_photos.py", questions.parent, tmp_path / "photos")
    toy = ROOT / "docs" / "results" / "toy" / "hard"
    run("vqa_evidence_page.py", page, toy, tmp_path / "photos", questions)
    assert (page / "README.md").read_bytes() == (committed / "README.md").read_bytes()


@pytest.mark.parametrize(
    ("gain", "by", "said"),
    [
        (6.4, 5.3, "not decided"),  # ahead by the margin, within two standard errors of it
        (7.5, 5.3, "yes"),
        (0.2, -1, "not decided"),
        (1.2, -1, "yes"),
        (-1.8, -1, "not decided"),
        (-3.2, -1, "**no**"),
        (0.4, 5.3, "**no**"),
    ],
)
def test_one_rule_of_two_standard_errors_decides_whether_a_goal_is_reached(gain, by, said):
    assert reached(gain - by, error=1) == said


def test_the_error_of_a_difference_is_that_of_questions_and_seeds():
    random = np.random.default_rng(1)
    one, other = 100.0 * (random.random((2, 1, 900)) < np.array([0.6, 0.5])[:, None, None])
    ahead, error = difference(one, other)
    assert ahead == pytest.approx(one.mean() - other.mean())
    assert error == pytest.approx((one - other).std() / np.sqrt(900), rel=0.1)
    # Questions that both models have alike do not add to the error.
    assert difference(one, one)[1] == 0
    # With one question, what is left is the spread of the seeds.
    seeds = random.normal(50, 3, (8, 1))
    assert difference(seeds, seeds[::-1] - 5)[1] == pytest.approx(np.sqrt(2 * seeds.var() / 8), rel=0.1)
