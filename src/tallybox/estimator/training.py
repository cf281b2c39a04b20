"""Training of one member on counts alone; it leaves a part of the photos out and is validated on that part."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tallybox.concurrency import single_threaded_torch
from tallybox.estimator.config import EstimatorConfig
from tallybox.estimator.fitted import infer
from tallybox.estimator.inputs import IndexedPairs, ModelInputs
from tallybox.estimator.model import CountModel

OnProgress = Callable[[int, int], None]  # done, total

# Chosen on a held-out fifth of 3,000 labelled photos of COCO, by learning from the rest and from 30 and 100 of it.
EPOCHS = 12
MIN_STEPS = 300  # needs more epochs where there are few photos
# With fewer pairs, the part that a member leaves out is too small for early stopping: half the steps are taken, and the
# last model is kept. On four draws of 30 photos that gave 0.527 exact on unseen photos; early stopping gave 0.481.
MIN_PAIRS_TO_STOP_EARLY = 240
FEW_PAIRS = 1000  # with fewer, rates are higher, because there are few steps, and weights decay more
COMPONENT_RATE, READOUT_RATE = 0.006, 0.003
COMPONENT_RATE_FEW, READOUT_RATE_FEW = 0.01, 0.005
CATEGORY_PRIOR = 4.0  # one over twice the prior variance of a category's parameters
PATIENCE = 0.25  # share of all epochs without a lower held-out loss, in the second half, after which learning stops
WARM_UP = 0.3  # share of all steps


@dataclass(frozen=True)
class LabelledInputs:
    """Inputs of P pairs with their true counts."""

    config: EstimatorConfig
    categories: int  # number of those with labels
    pairs: IndexedPairs
    inputs: ModelInputs
    true_counts: Tensor  # [P]
    parts: Tensor  # [P]: the part of the photos that each pair belongs to

    def of_part(self, part: int) -> Tensor:
        """Return the rows of the pairs of a part."""
        return (self.parts == part).nonzero().flatten()


@torch.random.fork_rng(devices=[])  # leaves the caller's random numbers as they are
@single_threaded_torch()
def train_member(
    labelled: LabelledInputs, part: int, *, seed: int, epochs: int, on_progress: OnProgress = lambda done, total: None
) -> CountModel:
    """Return a model that learned from all parts but one, with the weights of its lowest loss on that part.

    Where the part is too small for that, the weights are those after the last epoch. ``on_progress`` is called with the
    epochs of all members.
    """
    torch.manual_seed(seed)
    model = CountModel(labelled.config, labelled.categories)
    done, total_epochs = part * epochs, labelled.config.members * epochs
    learn, held_out = (labelled.parts != part).nonzero().flatten(), labelled.of_part(part)
    model.standardise(labelled.inputs.at(learn))
    few, stops_early = len(learn) < FEW_PAIRS, len(labelled.parts) >= MIN_PAIRS_TO_STOP_EARLY
    batch = _batch(len(learn))
    optimiser = _optimiser(model, few)
    total = epochs * math.ceil(len(learn) / batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, [group["lr"] for group in optimiser.param_groups], total_steps=total, pct_start=WARM_UP
    )
    best, best_loss, worse = copy.deepcopy(model.state_dict()), math.inf, 0
    for epoch in range(epochs):
        model.train()
        for rows in learn[torch.randperm(len(learn))].split(batch):
            _step(model, labelled, rows, optimiser, len(learn))
            schedule.step()
        loss = held_out_loss(model, labelled, held_out)
        if loss < best_loss or not stops_early:
            best, best_loss, worse = copy.deepcopy(model.state_dict()), loss, 0
        elif epoch >= epochs // 2:
            worse += 1
        on_progress(done + epoch + 1, total_epochs)
        if worse >= PATIENCE * epochs:
            break
    on_progress(done + epochs, total_epochs)
    model.load_state_dict(best)
    return model.eval()


def epochs_for(pairs: int) -> int:
    """Return the number of epochs to learn from so many pairs."""
    steps = MIN_STEPS // 2 if pairs < MIN_PAIRS_TO_STOP_EARLY else MIN_STEPS
    return max(EPOCHS, epochs_of(pairs, steps))


def epochs_of(pairs: int, steps: int) -> int:
    """Return how many epochs over so many pairs have so many steps."""
    return math.ceil(steps / math.ceil(max(pairs, 1) / _batch(pairs)))


def _batch(pairs: int) -> int:
    return 32 if pairs < FEW_PAIRS else 128


def held_out_loss(model: CountModel, labelled: LabelledInputs, rows: Tensor) -> float:
    """Return the mean negative log-likelihood of some pairs."""
    logits = infer(model, labelled.inputs, rows).logits
    truth = labelled.true_counts[rows].clamp(max=model.config.max_objects)
    return torch.nn.functional.cross_entropy(logits, truth).item() if len(rows) else math.inf


def _optimiser(model: CountModel, few: bool) -> torch.optim.Optimizer:
    readout = [*model.surroundings.parameters(), *model.from_component.parameters(), *model.from_summary.parameters()]
    component_rate, readout_rate = (COMPONENT_RATE_FEW, READOUT_RATE_FEW) if few else (COMPONENT_RATE, READOUT_RATE)
    component = [*model.component.parameters(), model.category_score, model.category_count]
    groups = [
        {"params": component, "lr": component_rate, "weight_decay": 0.0},
        {"params": readout, "lr": readout_rate, "weight_decay": 1.0 if few else 0.1},
    ]
    return torch.optim.AdamW(groups, fused=True)


def _step(
    model: CountModel, labelled: LabelledInputs, rows: Tensor, optimiser: torch.optim.Optimizer, pairs: int
) -> None:
    """Learn from a random batch, in two groups of pairs of similar size, which need less padding."""
    rows = rows[labelled.inputs.sizes[rows].argsort(stable=True)]
    optimiser.zero_grad()
    for group in rows.tensor_split((len(rows) * 3 // 4,)):
        if not len(group):
            continue
        logits = model(labelled.inputs.at(group)).logits
        truth = labelled.true_counts[group].clamp(max=model.config.max_objects)
        loss = torch.nn.functional.cross_entropy(logits, truth, reduction="sum") / len(rows)
        loss.backward()
    penalty = model.category_score.square().sum() + model.category_count.square().sum()
    (penalty * (CATEGORY_PRIOR / pairs)).backward()
    for table in (model.category_score, model.category_count):
        assert table.grad is not None
        table.grad[0] = 0
    optimiser.step()
