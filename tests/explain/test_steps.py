import numpy as np

from tallybox import Counter, PresenceCounter
from tallybox.explain.counting import count_with_component
from tallybox.explain.scenes import cats

CATS = cats().boxes.numpy()


def steps_of(component) -> dict[str, str]:
    steps = count_with_component(CATS, np.ones(4, np.float32), component).steps
    return {step.title: step.text for step in steps}


def test_the_counter_is_described_step_by_step():
    steps = steps_of(Counter(4))
    assert next(iter(steps)) == "4 boxes"
    assert "16 edges" in steps["A joins relevant boxes"]
    assert "10 edges" not in steps["A joins relevant boxes"]
    assert "one of 2, so each of its edges counts 0.5" in steps["Sim finds the copies"]
    assert "box 1 for box 2" in steps["Sim finds the copies"]
    assert "c = √9 = 3" in steps["C puts each object's edge to itself back"]


def test_presence_counting_is_described_step_by_step():
    steps = steps_of(PresenceCounter(4))
    assert "all of them together 4" in steps["What each box is worth alone"]
    assert "box 1 for box 2" in steps["Who stands for whom"]
    assert "add up to 3" in steps["What is left is counted"]


def test_boxes_that_the_paper_leaves_out_are_mentioned():
    boxes = np.arange(20, dtype=np.float32)[:, None] * 10 + np.array([0, 0, 5, 5], np.float32)
    steps = count_with_component(boxes, np.ones(20, np.float32), Counter(4)).steps
    assert "The 16 weakest boxes take no part." in steps[1].text
