"""Named sets of learned parameters, and the components and estimates that explain boxes with them."""

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tallybox.counter.module import Counter
from tallybox.detections.baselines import Thresholds
from tallybox.detections.detections import Detections
from tallybox.errors import InputError
from tallybox.estimator.estimator import CountEstimator
from tallybox.explain.explained_count import ExplainedCount, explain_component, explain_estimate
from tallybox.presence.module import PresenceCounter
from tallybox.service.models import ExplainRequest, ParameterSet

UNTRAINED = "untrained"
COMPONENTS: dict[str, type[Counter | PresenceCounter]] = {"counter": Counter, "presence": PresenceCounter}


class Explainer:
    """Explains boxes with an estimator, and with the components: untrained, trained, and as in the estimator."""

    def __init__(self, estimator: CountEstimator) -> None:
        self.estimator = estimator
        self.sets: dict[str, dict[str, ParameterSet]] = {component: {} for component in COMPONENTS}
        self._values: dict[tuple[str, str], dict[str, Tensor]] = {}
        for component, layer in COMPONENTS.items():
            self._add(component, UNTRAINED, UNTRAINED, "all", layer().state_dict())
        for setting in json.loads((files("tallybox.service") / "data" / "toy_weights.json").read_text()):
            side_length, noise = f"{setting['side_length']:g}", f"{setting['noise']:g}"
            name, label = f"toy-{side_length}-{noise}", f"trained at l = {side_length}, q = {noise}"
            self._add("counter", name, label, "toy", {"weight": activation_weight(setting["activations"])})
            for head, parameters in enumerate(setting["presence"], start=1):
                values = {key: torch.tensor(value).unsqueeze(0) for key, value in parameters.items()}
                self._add("presence", f"{name}-{head}", f"{label}, head {head}", "toy", values)
        models = estimator.fitted.ensemble.components()
        for number, model in enumerate(models, start=1):
            label = f"photo model {number} of {len(models)}"
            self._add(estimator.fitted.config.component, f"photo-{number}", label, "photo", model.state_dict())

    def _add(self, component: str, name: str, label: str, scenes: Any, values: dict[str, Tensor]) -> None:
        self.sets[component][name] = ParameterSet(name=name, label=label, scenes=scenes)
        self._values[component, name] = values

    def component(self, request: ExplainRequest) -> Counter | PresenceCounter:
        """Return the component, with one head and the parameters, that a request names."""
        if request.parameters not in self.sets[request.component]:
            raise InputError("Unknown parameters; GET /v1/parameters lists the known sets.")
        values = self._values[request.component, request.parameters]
        if request.activations is not None:
            if request.component != "counter" or request.parameters != UNTRAINED:
                raise InputError("activations are for component 'counter', without a set of parameters.")
            values = {"weight": activation_weight(request.activations)}
        segmented = values["weight" if request.component == "counter" else "calibration"]
        made = COMPONENTS[request.component](request.max_objects, segments=segmented.shape[-1])
        made.load_state_dict(values)
        return made

    def explain(self, request: ExplainRequest) -> ExplainedCount:
        """Count boxes with the component and the parameters that a request names, or with the estimator."""
        # Detections check boxes and scores.
        checked = Detections(request.boxes, request.attention, np.zeros(len(request.attention), np.int64))  # type: ignore[arg-type]  # takes lists
        if request.component == "estimator":
            return self._explain_estimate(request, checked)
        thresholds = Thresholds(request.nms.iou, request.nms.score)
        return explain_component(checked.boxes, checked.scores, self.component(request), thresholds)

    def warm_up(self) -> None:
        """Explain once with each component: the first call loads and compiles for 2 s."""
        for component in self.sets:
            request = {"component": component, "boxes": [[0.0, 0.0, 1.0, 1.0]], "attention": [1.0]}
            self.explain(ExplainRequest.model_validate(request))

    def _explain_estimate(self, request: ExplainRequest, checked: Detections) -> ExplainedCount:
        """Count with the estimator; other boxes of the photo take part as its context."""
        category_id, number = self.estimator.category_id(request.category), len(checked.boxes)
        other = Detections(request.context.boxes, request.context.scores, request.context.category_ids)  # type: ignore[arg-type]  # takes lists
        kept = other.category_ids != category_id
        image = Detections(
            np.concatenate((checked.boxes, other.boxes[kept])),
            np.concatenate((checked.scores, other.scores[kept])),
            np.concatenate((np.full(number, category_id), other.category_ids[kept])),
            request.context.size,  # type: ignore[arg-type]  # takes a list
        )
        explanation = self.estimator.explain(image, [category_id])[category_id]
        return explain_estimate(self.estimator, image, category_id, explanation, first_boxes=number)[0]


def activation_weight(knots: Sequence[Sequence[float]]) -> Tensor:
    """Return the counter's weight ``[1, 8, S]`` with which its activations pass through ``knots [8, S + 1]``."""
    if len({len(activation) for activation in knots}) > 1:
        raise InputError("All activations must have the same number of knots.")
    heights = torch.tensor(knots, dtype=torch.float32)
    rises = heights.diff()
    if not (heights[:, 0] == 0).all() or not (heights[:, -1] == 1).all() or not (rises >= 0).all():
        raise InputError("activations must rise from 0 to 1 and never fall.")
    return rises.unsqueeze(0)
