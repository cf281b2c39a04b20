import pytest
import torch
from research.calibration import calibration_error, fit_temperature, is_right


@pytest.mark.parametrize("true_temperature", [0.5, 1.0, 2.5])
def test_the_temperature_that_made_the_answers_is_found(true_temperature):
    g = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(20_000, 5, generator=g)
    drawn = (logits / true_temperature).softmax(-1).multinomial(1, generator=g).expand(-1, 10)
    assert fit_temperature(logits, drawn) == pytest.approx(true_temperature, rel=0.03)


def test_the_error_by_hand():
    probabilities = torch.tensor([1.0, 0.96, 0.33, 0.38])
    right = torch.tensor([True, False, False, True])
    # The last bin is off by 0.96 of two answers, the one of 0.3 to 0.4 by 0.29 of two.
    assert calibration_error(probabilities, right) == pytest.approx((0.96 + 0.29) / 4, rel=1e-6)


def test_an_answer_is_right_where_three_people_gave_it():
    answers = torch.tensor([[0] * 3 + [1] * 7, [0] * 2 + [1] * 8, [-1] * 10])
    assert is_right(torch.tensor([[2.0, 1.0]]).repeat(3, 1), answers).tolist() == [True, False, False]
