"""Training of the ensemble on counts alone; each member leaves a part of the photos out and is validated on it.

Legend: M members, P pairs.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from tallybox.detections.labels import Pairs
from tallybox.estimator.inference import infer
from tallybox.estimator.inputs import EstimatorConfig, ModelInputs
from tallybox.estimator.model import CountEnsemble

OnProgress = Callable[[int, int], None]  # done, total

# Chosen on a held-out fifth of 3,000 labelled photos of COCO, by training on the rest and on 30 and 100 of it.
EPOCHS = 12
MIN_STEPS = 300  # needs more epochs if there are few photos
# With fewer pairs, the part that a member leaves out is too small for early stopping: half the steps are taken, and the
# last parameters are kept. On four draws of 30 photos that gave 0.527 exact on unseen photos; early stopping 0.481.
MIN_PAIRS_TO_STOP_EARLY = 240
SMALL_DATASET_PAIRS = 1000  # with fewer, rates are higher, because there are few steps, and parameters decay more
RATES, RATES_SMALL = (0.006, 0.003), (0.01, 0.005)  # of the component and of the readout
CATEGORY_PRIOR = 4.0  # one over twice the prior variance of a category's parameters
PATIENCE = 0.25  # share of all epochs without a lower held-out loss, in the second half, after which training stops
WARM_UP = 0.3  # share of all steps
PADDING = -1  # as a row


@dataclass(frozen=True)
class LabelledInputs:
    """Inputs of P pairs with their true counts."""

    config: EstimatorConfig
    categories: int  # number of those with labels
    pairs: Pairs
    inputs: ModelInputs
    true_counts: Tensor  # [P]
    parts: Tensor  # [P]: the part of the photos that each pair belongs to

    def by_part(self) -> Tensor:
        """Return the rows that each member leaves out, ``[M, R]``, padded."""
        rows = [(self.parts == part).nonzero().flatten() for part in range(self.config.members)]
        return pad_sequence(rows, batch_first=True, padding_value=PADDING)


@torch.random.fork_rng(devices=[])  # leaves the caller's random numbers as they are
def train(
    labelled: LabelledInputs, *, seed: int, epochs: int, on_progress: OnProgress = lambda done, total: None
) -> CountEnsemble:
    """Train members, of which member m learns from all parts but part m, together.

    Each has the parameters of its lowest loss on that part, or of the last epoch if the parts are too small for that.
    """
    torch.manual_seed(seed)
    members = labelled.config.members
    ensemble = CountEnsemble(labelled.config, labelled.categories, members)
    learn = [(labelled.parts != part).nonzero().flatten() for part in range(members)]
    held_out = labelled.by_part()
    for member, rows in enumerate(learn):
        ensemble.standardise(member, labelled.inputs.at(rows))
    pairs = max(map(len, learn))
    stops_early = len(labelled.parts) >= MIN_PAIRS_TO_STOP_EARLY
    optimiser = _optimiser(ensemble, small=pairs < SMALL_DATASET_PAIRS)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser,
        [group["lr"] for group in optimiser.param_groups],
        total_steps=epochs * math.ceil(pairs / _batch(pairs)),
        pct_start=WARM_UP,
    )
    best, best_loss = copy.deepcopy(ensemble.state_dict()), torch.full((members,), torch.inf)
    worse = torch.zeros(members)
    for epoch in range(epochs):
        ensemble.train()
        shuffled = [rows[torch.randperm(len(rows))] for rows in learn]
        for rows in pad_sequence(shuffled, batch_first=True, padding_value=PADDING).split(_batch(pairs), 1):
            _step(ensemble, labelled, rows, optimiser, pairs)
            schedule.step()
        loss = held_out_losses(ensemble, labelled, held_out)
        better = (loss < best_loss) & (worse < PATIENCE * epochs) if stops_early else torch.ones(members) > 0
        for name, tensor in ensemble.state_dict().items():
            best[name][better] = tensor[better]
        best_loss = torch.where(better, loss, best_loss)
        worse = torch.where(better, 0, worse + (epoch >= epochs // 2))
        on_progress(epoch + 1, epochs)
        if (worse >= PATIENCE * epochs).all():
            break
    on_progress(epochs, epochs)
    ensemble.load_state_dict(best)
    return ensemble.eval()


def epochs_for(pairs: int) -> int:
    """Return the number of epochs to train on so many pairs."""
    steps = MIN_STEPS // 2 if pairs < MIN_PAIRS_TO_STOP_EARLY else MIN_STEPS
    return max(EPOCHS, math.ceil(steps / math.ceil(pairs / _batch(pairs))))


def _batch(pairs: int) -> int:
    return 32 if pairs < SMALL_DATASET_PAIRS else 128


def held_out_losses(ensemble: CountEnsemble, labelled: LabelledInputs, rows: Tensor) -> Tensor:
    """Return each member's mean negative log-likelihood ``[M]`` of its rows ``[M, R]``; infinite without any."""
    logits = infer(ensemble, labelled.inputs, rows.clamp(min=0)).logits
    truth = labelled.true_counts[rows].clamp(max=ensemble.config.max_objects)
    losses = cross_entropy(logits.flatten(0, 1), truth.flatten(), reduction="none").view_as(rows)
    real = rows != PADDING
    return torch.where(real.any(1), (losses * real).sum(1) / real.sum(1).clamp(min=1), torch.inf)


def _optimiser(ensemble: CountEnsemble, *, small: bool) -> torch.optim.Optimizer:
    component_rate, readout_rate = RATES_SMALL if small else RATES
    component = [*ensemble.component.parameters(), ensemble.category_score, ensemble.category_count]
    chosen = set(map(id, component))
    readout = [parameter for parameter in ensemble.parameters() if id(parameter) not in chosen]
    groups = [
        {"params": component, "lr": component_rate, "weight_decay": 0.0},
        {"params": readout, "lr": readout_rate, "weight_decay": 1.0 if small else 0.1},
    ]
    return torch.optim.AdamW(groups, fused=True)


def _step(
    ensemble: CountEnsemble, labelled: LabelledInputs, rows: Tensor, optimiser: torch.optim.Optimizer, pairs: int
) -> None:
    """Train on random batches ``[M, B]``, in two groups of pairs of similar size, which need less padding."""
    sizes = torch.where(rows == PADDING, -1, labelled.inputs.mask[rows].sum(-1))
    rows = rows.gather(1, sizes.argsort(dim=-1, stable=True))
    weight = (rows != PADDING) / (rows != PADDING).sum(1, keepdim=True).clamp(min=1)
    optimiser.zero_grad()
    split = rows.shape[1] * 3 // 4
    for columns in (slice(split), slice(split, None)):
        group = rows[:, columns].clamp(min=0)
        logits = ensemble(labelled.inputs.at(group)).logits
        truth = labelled.true_counts[group].clamp(max=ensemble.config.max_objects)
        losses = cross_entropy(logits.flatten(0, 1), truth.flatten(), reduction="none").view_as(group)
        (losses * weight[:, columns]).sum().backward()
    penalty = ensemble.category_score.square().sum() + ensemble.category_count.square().sum()
    (penalty * (CATEGORY_PRIOR / pairs)).backward()
    for table in (ensemble.category_score, ensemble.category_count):
        assert table.grad is not None
        table.grad[:, 0] = 0
    optimiser.step()
