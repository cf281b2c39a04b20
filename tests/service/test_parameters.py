import json
from pathlib import Path

import pytest
import torch
from research.toy_weights import SETTINGS, TOY_WEIGHTS, collect

from tallybox.errors import InputError
from tallybox.presence.weights import PresenceFunctions
from tallybox.runs import read_results
from tallybox.service.models import ExplainRequest
from tallybox.service.parameters import Explainer, activation_weight
from tests.support.estimators import small_estimator

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "toy"


def test_the_bundled_parameters_are_those_of_the_results():
    assert json.loads(TOY_WEIGHTS.read_text()) == collect(RESULTS)


@pytest.mark.parametrize(("sweep", "side_length", "noise"), SETTINGS)
def test_parameters_make_the_functions_that_were_learned(sweep, side_length, noise):
    setting = {"side_length": side_length, "noise": noise, "seed": 0}
    row = next(row for row in read_results(RESULTS / sweep / "results.jsonl") if setting.items() <= row.items())
    name = f"toy-{side_length:g}-{noise:g}"
    explainer = Explainer(small_estimator())
    boxes = {"boxes": [], "attention": []}
    counter = explainer.component(ExplainRequest(**boxes, component="counter", parameters=name))
    knots = torch.nn.functional.pad(counter.weight.detach().cumsum(-1), (1, 0))[0]
    assert knots.numpy() == pytest.approx(torch.tensor(row["activations"]).numpy(), abs=2e-5)
    for head in range(3):
        component = explainer.component(ExplainRequest(**boxes, component="presence", parameters=f"{name}-{head + 1}"))
        functions = PresenceFunctions.of(component.weights)
        for function in ("slope", "shift", "step", "calibration", "order", "evidence", "overlap"):
            values = getattr(functions, function).detach()[0].numpy()
            # Rounding to three digits makes some rises of the two-dimensional functions fall, which are left out.
            assert values == pytest.approx(torch.tensor(row["presence"][function][head]).numpy(), abs=0.03), function


@pytest.mark.parametrize(
    "knots", [[[0.1, 1.0]] * 8, [[0.0, 0.9]] * 8, [[0.0, 0.6, 0.5, 1.0]] * 8, [[0, 1]] * 7 + [[0, 0.5, 1]]]
)
def test_activations_that_do_not_rise_from_0_to_1_are_refused(knots):
    with pytest.raises(InputError, match="activation"):
        activation_weight(knots)
