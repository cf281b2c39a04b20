from __future__ import annotations

from research.inventory_questions import ask_about_inventory

from tallybox.vqa.data.questions import read_records
from tallybox.vqa.simulation.instances import noun


def test_questions_are_written_about_what_the_inventory_says(tmp_path):
    (tmp_path / "inventory.csv").write_text("image_id,category_id,count\n7,18,3\n7,1,1\n8,18,40\n11,18,5\n")
    written = ask_about_inventory([7, 8, 9], tmp_path / "inventory.csv", tmp_path, questions_per_photo=30)
    truth = {"dog": {7: 3, 8: 40, 9: 0}, "person": {7: 1, 8: 0, 9: 0}}
    asked = read_records(*(next(tmp_path.glob(f"v2_*{role}.json.gz")) for role in ("questions", "annotations")))
    assert len(asked) == written
    counted = set()
    for one in asked:
        for name, counts in truth.items():
            words = one.text.rstrip("?").lower().split()
            if one.answer_type == "number" and noun(name).plural in words:
                counted.add((name, int(one.image_id)))
                assert one.answers == (str(counts[int(one.image_id)]),) * 10
    assert {("dog", 7), ("dog", 8), ("person", 7)} <= counted  # zeros are asked rarely
