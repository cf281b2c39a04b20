"""Named sets of learned parameters, and the components and estimates that explain boxes with them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Self

import numpy as np
import torch

from tallybox.activation import activation_knots
from tallybox.counter.module import Counter
from tallybox.detections.baselines import Thresholds
from tallybox.detections.detections import Detections
from tallybox.errors import InputError
from tallybox.estimator.estimator import CountEstimator
from tallybox.explain.explained_count import ExplainedCount, explain_component, explain_estimate
from tallybox.presence.module import PresenceCounter
from tallybox.service.models import ExplainRequest, ParameterSet

UNTRAINED = "untrained"
Knots = tuple[tuple[float, ...], ...]  # of f1 ... f8


@dataclass(frozen=True)
class Explainer:
    """Explains boxes with the components, untrained and trained, and with an estimator."""

    estimator: CountEstimator
    sets: dict[str, dict[str, ParameterSet]]  # by component and name

    @classmethod
    def of(cls, estimator: CountEstimator) -> Self:
        """Collect the sets: untrained, trained on the toy task, and those of the estimator's models."""
        sets: dict[str, dict[str, ParameterSet]] = {"counter": {}, "presence": {}}

        def add(component: str, name: str, label: str, scenes: Any, parameters: Any) -> None:
            sets[component][name] = ParameterSet(name=name, label=label, scenes=scenes, parameters=parameters)

        for untrained in (Counter(), PresenceCounter()):
            component = "counter" if isinstance(untrained, Counter) else "presence"
            add(component, UNTRAINED, UNTRAINED, "all", _parameters(untrained))
        for setting in json.loads((files("tallybox.service") / "data" / "toy_weights.json").read_text()):
            side_length, noise = f"{setting['side_length']:g}", f"{setting['noise']:g}"
            name, label = f"toy-{side_length}-{noise}", f"trained at l = {side_length}, q = {noise}"
            add("counter", name, label, "toy", setting["activations"])
            for head, parameters in enumerate(setting["presence"], start=1):
                add("presence", f"{name}-{head}", f"{label}, head {head}", "toy", parameters)
        models = estimator.fitted.ensemble.components()
        for number, model in enumerate(models, start=1):
            label = f"photo model {number} of {len(models)}"
            add(estimator.fitted.config.component, f"photo-{number}", label, "photo", _parameters(model))
        return cls(estimator, sets)

    def explain(self, request: ExplainRequest) -> ExplainedCount:
        """Count boxes with the component and the parameters that a request names."""
        # Detections check boxes and scores.
        checked = Detections(request.boxes, request.attention, np.zeros(len(request.attention), np.int64))  # type: ignore[arg-type]  # takes lists
        if request.component == "estimator":
            return self._explain_estimate(request, checked)
        thresholds = Thresholds(request.nms.iou, request.nms.score)
        return explain_component(checked.boxes, checked.scores, self._component(request), thresholds)

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

    def _component(self, request: ExplainRequest) -> Counter | PresenceCounter:
        if request.activations is not None:
            if request.component != "counter" or request.parameters != UNTRAINED:
                raise InputError("activations are for component 'counter', without a set of parameters.")
            return counter_with_knots(tuple(map(tuple, request.activations)), request.max_objects)
        named = self.sets[request.component]
        if request.parameters not in named:
            raise InputError("Unknown parameters; GET /v1/parameters lists the known sets.")
        if request.component == "counter":
            return counter_with_knots(tuple(map(tuple, named[request.parameters].parameters)), request.max_objects)
        return presence_with_parameters(json.dumps(named[request.parameters].parameters), request.max_objects)


@lru_cache(maxsize=64)
def counter_with_knots(knots: Knots, max_objects: int) -> Counter:
    """Return the paper's counter with activations that pass through ``knots [8, S + 1]``."""
    if len({len(activation) for activation in knots}) > 1:
        raise InputError("All activations must have the same number of knots.")
    heights = torch.tensor(knots, dtype=torch.float32)
    rises = heights.diff()
    if not (heights[:, 0] == 0).all() or not (heights[:, -1] == 1).all() or not (rises >= 0).all():
        raise InputError("activations must rise from 0 to 1 and never fall.")
    counter = Counter(max_objects, segments=rises.shape[1])
    counter.load_state_dict({"weight": rises.unsqueeze(0)})
    return counter


@lru_cache(maxsize=64)
def presence_with_parameters(parameters: str, max_objects: int) -> PresenceCounter:
    """Return a presence counter with one head of these parameters, given as JSON."""
    by_name: Mapping[str, Any] = json.loads(parameters)
    presence = PresenceCounter(max_objects, segments=len(by_name["calibration"]))
    presence.load_state_dict({name: torch.tensor(values).unsqueeze(0) for name, values in by_name.items()})
    return presence


def _parameters(component: Counter | PresenceCounter) -> Any:
    """Return the parameters of the first head."""
    if isinstance(component, Counter):
        return activation_knots(component.weight.detach()[0]).tolist()
    return {name: values.detach()[0].tolist() for name, values in component.weights._asdict().items()}
