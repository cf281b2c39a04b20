"""One member of an estimator: scores corrected by category and surroundings, a counting component, a readout.

Legend: P pairs of an image and a category, N proposals, K ``max_objects``, H heads.
"""

import copy
import sys
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tallybox.counter.module import Counter
from tallybox.estimator.config import EstimatorConfig
from tallybox.estimator.inputs import CONTEXT, SUMMARY, ModelInputs
from tallybox.presence.module import PresenceCounter

MIN_SCORE = 1e-4
FEW_PAIRS = 64  # as many as a photo or two have
SURROUNDINGS_UNITS = 24
PAPER_SHARPNESS = 4.0  # turns the paper's features, in [0, 1], into logits that make a count almost certain


class ModelOutput(NamedTuple):
    """The output of one member."""

    logits: Tensor  # [P, K + 1]: of the counts 0 ... K - 1, and of K or more
    expected: Tensor  # [P]: the component's expected count, which may exceed K


class CountModel(nn.Module):
    """From inputs to distributions of counts.

    A score's logit is shifted and scaled by its category and shifted by its surroundings; the component counts; the
    readout corrects the component's features by the summary. All corrections start at 0: an untrained model gives
    the counts of the untrained component.
    """

    def __init__(self, config: EstimatorConfig, categories: int) -> None:
        super().__init__()
        self.config = config
        counts, heads = config.max_objects + 1, config.heads
        kind: type[PresenceCounter | Counter] = PresenceCounter if config.component == "presence" else Counter
        self.component = kind(config.max_objects, heads=heads, logits=True)
        per_head = counts + 1 if config.component == "presence" else counts
        self.register_buffer("context_mean", torch.zeros(CONTEXT))
        self.register_buffer("context_scale", torch.ones(CONTEXT))
        self.register_buffer("summary_mean", torch.zeros(SUMMARY))
        self.register_buffer("summary_scale", torch.ones(SUMMARY))
        # Row 0 is for categories without labels and stays 0: they have only what all categories share.
        self.category_score = nn.Parameter(torch.zeros(categories + 1, 2))  # log scale and shift of the logit
        self.category_count = nn.Parameter(torch.zeros(categories + 1, 3))  # how counts are shifted
        self.surroundings = nn.Sequential(
            nn.Linear(CONTEXT + 1, SURROUNDINGS_UNITS), nn.ReLU(), _zero(nn.Linear(SURROUNDINGS_UNITS, 1))
        )
        self.from_component = nn.Linear(heads * per_head, counts)
        self.from_summary = nn.Sequential(
            nn.Linear(heads * per_head + SUMMARY, config.hidden),
            nn.ReLU(),
            nn.Dropout(config.dropout),
            _zero(nn.Linear(config.hidden, counts)),
        )
        with torch.no_grad():
            identity = torch.zeros(counts, heads, per_head)
            identity[:, :, :counts] = torch.eye(counts)[:, None] / heads
            if config.component == "counter":
                identity *= PAPER_SHARPNESS
            self.from_component.weight.copy_(identity.flatten(1))
            self.from_component.bias.zero_()
        steps = torch.arange(counts, dtype=torch.float32)
        self.register_buffer("count_shifts", torch.stack((steps / 5, (steps == 0).float(), (steps == 1).float())))

    def standardise(self, inputs: ModelInputs) -> None:
        """Store mean and deviation of the inputs that are learned from."""
        for name, values in (("context", inputs.context[inputs.mask]), ("summary", inputs.summary)):
            if len(values) > 1:
                self.get_buffer(f"{name}_mean").copy_(values.mean(0))
                self.get_buffer(f"{name}_scale").copy_(values.std(0).clamp(min=0.1))

    def forward(self, inputs: ModelInputs) -> ModelOutput:
        """Return distributions of counts."""
        logit = self.score_logit(inputs)
        features = self._component_for(len(logit))(logit, inputs.boxes, inputs.mask)
        summary = (inputs.summary - self.get_buffer("summary_mean")) / self.get_buffer("summary_scale")
        logits = (
            self.from_component(features)
            + self.from_summary(torch.cat((features / 4, summary), -1))  # log-probabilities reach -14
            + self.category_count[inputs.category_rows] @ self.get_buffer("count_shifts")
        )
        return ModelOutput(logits, self.expected_count(features))

    def _component_for(self, pairs: int) -> PresenceCounter | Counter:
        """Return the component, unfused for a few pairs where numba, which takes half a second, is not loaded yet."""
        if torch.is_grad_enabled() or pairs >= FEW_PAIRS or "numba" in sys.modules:
            return self.component
        unfused = copy.copy(self.component)  # shares the weights
        unfused.backend = "reference"
        return unfused

    def score_logit(self, inputs: ModelInputs) -> Tensor:
        """Return the logits that the component counts from, ``[P, N]``."""
        log_scale, shift = self.category_score[inputs.category_rows].unbind(-1)
        plain = inputs.scores.clamp(MIN_SCORE, 1 - MIN_SCORE).logit()
        logit = plain * log_scale.exp()[:, None] + shift[:, None]
        context = (inputs.context - self.get_buffer("context_mean")) / self.get_buffer("context_scale")
        correction: Tensor = self.surroundings(torch.cat((context, logit[..., None] / 3), -1)).squeeze(-1)
        return torch.where(inputs.mask, logit + correction, 0)

    def expected_count(self, features: Tensor) -> Tensor:
        """Return the component's expected count, the mean of its heads: ``[P, H * F]`` to ``[P]``."""
        by_head = features.detach().unflatten(-1, (self.config.heads, -1))
        if self.config.component == "presence":
            count: Tensor = by_head[..., -1]
        else:
            share = by_head / by_head.sum(-1, keepdim=True).clamp(min=1e-6)
            count = share @ torch.arange(share.shape[-1], dtype=share.dtype)
        return count.mean(-1)


def _zero(layer: nn.Linear) -> nn.Linear:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
