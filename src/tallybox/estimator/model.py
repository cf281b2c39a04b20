"""The ensemble: scores corrected by category and surroundings, a presence counter, a readout.

All members are computed together: each parameter has a leading dimension of members.

Legend: M members, P pairs of an image and a category, N proposals, K ``max_objects``, F features of the component.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, relu

from tallybox.estimator.inputs import CONTEXT, SUMMARY, EstimatorConfig, ModelInputs
from tallybox.presence.functional import presence_features
from tallybox.presence.module import PresenceCounter
from tallybox.presence.weights import PresenceWeights

LOGIT_MIN_SCORE = 1e-4  # scores are clipped to this distance from 0 and 1 before their logit is taken
SURROUNDINGS_UNITS = 24


class ModelOutput(NamedTuple):
    """The output of all members."""

    logits: Tensor  # [M, P, K + 1]: of the counts 0 ... K - 1, and of K or more
    expected: Tensor  # [M, P]: the component's expected count, which may exceed K


class MemberLinear(nn.Module):
    """A linear layer for each member: ``[M, P, inputs]`` to ``[M, P, outputs]``."""

    def __init__(self, members: int, inputs: int, outputs: int, *, zero: bool = False) -> None:
        super().__init__()
        bound = 0.0 if zero else inputs**-0.5
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs."""
        return torch.baddbmm(self.bias, x, self.weight)


class CountEnsemble(nn.Module):
    """From inputs to distributions of counts, one for each member.

    A score's logit is shifted and scaled by its category and shifted by its surroundings; the component counts; the
    readout corrects the component's features by the summary. All corrections start at 0: an untrained ensemble gives
    the counts of the untrained component.
    """

    context_mean: Tensor
    context_scale: Tensor
    summary_mean: Tensor
    summary_scale: Tensor
    count_shifts: Tensor

    def __init__(self, config: EstimatorConfig, categories: int, members: int) -> None:
        super().__init__()
        self.config, self.members = config, members
        counts = config.max_objects + 1
        initial = PresenceCounter(config.max_objects, logits=True).state_dict()
        self.component = nn.ParameterDict(
            {name: tensor.repeat_interleave(members, 0) for name, tensor in initial.items()}
        )
        features = counts + 1  # log-probabilities and the expected count
        for name, size in (("context", CONTEXT), ("summary", SUMMARY)):
            self.register_buffer(f"{name}_mean", torch.zeros(members, 1, size))
            self.register_buffer(f"{name}_scale", torch.ones(members, 1, size))
        # Row 0 is for categories without labels and stays 0: they have only what all categories share.
        self.category_score = nn.Parameter(torch.zeros(members, categories + 1, 2))  # log scale and shift of the logit
        self.category_count = nn.Parameter(torch.zeros(members, categories + 1, 3))  # how counts are shifted
        self.surroundings_in = MemberLinear(members, CONTEXT + 1, SURROUNDINGS_UNITS)
        self.surroundings_out = MemberLinear(members, SURROUNDINGS_UNITS, 1, zero=True)
        self.from_component = MemberLinear(members, features, counts, zero=True)
        self.from_component.weight.data[:, :counts] = torch.eye(counts)
        self.from_summary_in = MemberLinear(members, features + SUMMARY, config.hidden)
        self.from_summary_out = MemberLinear(members, config.hidden, counts, zero=True)
        steps = torch.arange(counts, dtype=torch.float32)
        shifts = torch.stack((steps / 5, (steps == 0).float(), (steps == 1).float()))
        self.register_buffer("count_shifts", shifts, persistent=False)

    def components(self) -> list[PresenceCounter]:
        """Return each member's component as a module of its own."""
        modules = []
        for member in range(self.members):
            module = PresenceCounter(self.config.max_objects, logits=True)
            module.load_state_dict({name: tensor[member : member + 1] for name, tensor in self.component.items()})
            modules.append(module)
        return modules

    def standardise(self, member: int, inputs: ModelInputs) -> None:
        """Store mean and deviation of the inputs that a member is trained on."""
        for name, values in (("context", inputs.context[inputs.mask]), ("summary", inputs.summary)):
            if len(values) > 1:
                self.get_buffer(f"{name}_mean")[member] = values.mean(0)
                self.get_buffer(f"{name}_scale")[member] = values.std(0).clamp(min=0.1)

    def forward(self, inputs: ModelInputs) -> ModelOutput:
        """Return distributions of counts for inputs ``[P, ...]``, or ``[M, P, ...]`` of each member's own pairs."""
        weights = PresenceWeights(**{name: tensor.unsqueeze(1) for name, tensor in self.component.items()})
        score_logit, max_objects = self.score_logit(inputs), self.config.max_objects
        features = presence_features(  # [M, P, F]
            score_logit, inputs.boxes, weights, max_objects=max_objects, mask=inputs.mask, logits=True
        )
        summary = (inputs.summary - self.summary_mean) / self.summary_scale
        readout = relu(self.from_summary_in(torch.cat((features / 4, summary), -1)))  # log-probabilities reach -14
        logits = (
            self.from_component(features)
            + self.from_summary_out(dropout(readout, self.config.dropout, self.training))
            + self._of_categories(self.category_count, inputs) @ self.count_shifts
        )
        return ModelOutput(logits, features.detach()[..., -1])

    def score_logit(self, inputs: ModelInputs) -> Tensor:
        """Return the logits that the component counts from, ``[M, P, N]``."""
        log_scale, shift = self._of_categories(self.category_score, inputs).unsqueeze(-2).unbind(-1)
        plain = inputs.scores.clamp(LOGIT_MIN_SCORE, 1 - LOGIT_MIN_SCORE).logit()
        logit = plain * log_scale.exp() + shift  # [M, P, N]
        context = (inputs.context - self.context_mean.unsqueeze(1)) / self.context_scale.unsqueeze(1)
        columns = torch.cat((context, logit.unsqueeze(-1) / 3), -1).flatten(1, 2)  # [M, P * N, C + 1]
        correction = self.surroundings_out(relu(self.surroundings_in(columns))).view_as(logit)
        return torch.where(inputs.mask, logit + correction, 0)

    def _of_categories(self, table: Tensor, inputs: ModelInputs) -> Tensor:
        """Look each pair's category up in a table ``[M, categories + 1, ...]``: ``[M, P, ...]``."""
        return table[torch.arange(self.members).unsqueeze(1), inputs.category_rows]
