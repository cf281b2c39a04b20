from dataclasses import replace

import pytest
import torch

from tallybox.toy.training import Setting, ToyConfig, ToyTraining, loss_of, one_cycle, train_settings

CPU = torch.device("cpu")
QUICK = ToyConfig(iterations=3, batch=16, evaluation_batches=2)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_models_learn_side_by_side_what_they_learn_one_after_another(threads):
    results = []
    for number in (1, 2):
        threads(number)
        results.append(train_settings([Setting(0.5, 0.5)], 3, QUICK, device=CPU))
    assert results[0] == results[1]


def test_settings_trained_together_learn_as_with_an_optimiser_each():
    settings = [Setting(0.3, 0.2), Setting(0.9, 0.5)]
    together = ToyTraining(settings, 0, QUICK, device=CPU)
    apart = [ToyTraining([setting], 0, QUICK, device=CPU) for setting in settings]
    for step in range(3):
        images = together.draw()
        for name in together.models:
            together.learn(name, images)
        for number, alone in enumerate(apart):
            own = slice(number, number + 1)
            images_of_one = replace(
                images, attention=images.attention[own], boxes=images.boxes[own], count=images.count[own]
            )
            for name, model in alone.models.items():
                rate = QUICK.presence_learning_rate * one_cycle(step / 3) if name == "presence" else QUICK.learning_rate
                adam(model, loss_of(model, images_of_one), step + 1, rate)
    for name, model in together.models.items():
        for parameter, ours in model.named_parameters():
            expected = torch.cat([alone.models[name].get_parameter(parameter) for alone in apart])
            torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)


def adam(model: torch.nn.Module, loss: torch.Tensor, step: int, rate: float) -> None:
    """Adam as in its paper, with the moments kept beside each parameter."""
    for parameter, gradient in zip(
        model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
    ):
        mean, square = getattr(parameter, "moments", (0.0, 0.0))
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient.square()
        parameter.moments = mean, square
        with torch.no_grad():
            parameter -= rate * (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + 1e-8)
