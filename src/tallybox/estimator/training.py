"""Learning from counts alone: several models, each of which leaves a part of the photos out and is judged by it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tallybox.estimator.configuration import EstimatorConfig
from tallybox.estimator.model import Answers, CountModel
from tallybox.estimator.questions import Questions
from tallybox.kernels.threads import small_operations

OnStep = Callable[[int, int], None]  # done, total

# Found on a fifth of 3,000 labelled photos of COCO that was left out, and by learning from 30 and 100 of the others.
EPOCHS = 12
MIN_STEPS = 300  # with few photos an epoch has few
# With fewer pairs the part that a member leaves out is too small to stop early by: half the steps are taken, and the
# last model is kept. On four draws of 30 photos that gave 0.527 exact on others; stopping early gave 0.481.
MIN_PAIRS_TO_STOP_EARLY = 240
FEW_PAIRS = 1000  # with fewer, rates are higher, for there are few steps, and weights decay more
COMPONENT_RATE, READOUT_RATE = 0.006, 0.003
COMPONENT_RATE_FEW, READOUT_RATE_FEW = 0.01, 0.005
CATEGORY_PRIOR = 4.0  # one over twice the variance of what is a category's own
PATIENCE = 0.25  # share of all epochs without a better held-out part, in the second half, that ends the learning
WARM_UP = 0.3  # share of all steps


@dataclass(frozen=True)
class Examples:
    """Questions with their true counts."""

    questions: Questions
    category_rows: Tensor  # [Q]
    true_counts: Tensor  # [Q]
    parts: Tensor  # [Q]: which part of the photos each is of


def answer(model: CountModel, questions: Questions, category_rows: Tensor, chosen: Tensor | None = None) -> Answers:
    """Answer questions in groups of similar size, without gradients."""
    chosen = torch.arange(len(questions)) if chosen is None else chosen
    logits = torch.empty(len(chosen), model.config.max_objects + 1)
    expected = torch.empty(len(chosen))
    order = questions.sizes[chosen].argsort(stable=True)
    model.eval()
    with torch.no_grad(), small_operations():
        for rows in order.split(512):
            if len(rows):
                logits[rows], expected[rows] = model(questions.at(chosen[rows]), category_rows[chosen[rows]])
    return Answers(logits, expected)


def train_member(
    config: EstimatorConfig, categories: int, examples: Examples, member: int, seed: int, on_step: OnStep, epochs: int
) -> CountModel:
    """Return a model that learned from all parts but its own, as it was when it answered its own part best.

    Where its own part is too small to tell, as it was in the end.
    """
    with torch.random.fork_rng(devices=[]), small_operations():  # nobody else's random numbers change
        torch.manual_seed(seed)
        return _train(CountModel(config, categories), examples, member, on_step, epochs)


def _train(model: CountModel, examples: Examples, member: int, on_step: OnStep, epochs: int) -> CountModel:
    learn = (examples.parts != member).nonzero().flatten()
    held_out = (examples.parts == member).nonzero().flatten()
    model.standardise(examples.questions.at(learn))
    few, stops_early = len(learn) < FEW_PAIRS, len(examples.parts) >= MIN_PAIRS_TO_STOP_EARLY
    batch = 32 if few else 128
    optimiser = _optimiser(model, few)
    total = epochs * math.ceil(len(learn) / batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, [group["lr"] for group in optimiser.param_groups], total_steps=total, pct_start=WARM_UP
    )
    best, best_loss, worse = copy.deepcopy(model.state_dict()), math.inf, 0
    for epoch in range(epochs):
        model.train()
        for rows in learn[torch.randperm(len(learn))].split(batch):
            _step(model, examples, rows, optimiser, len(learn))
            schedule.step()
        loss = held_out_loss(model, examples, held_out)
        if loss < best_loss or not stops_early:
            best, best_loss, worse = copy.deepcopy(model.state_dict()), loss, 0
        elif epoch >= epochs // 2:
            worse += 1
        on_step(epoch + 1, epochs)
        if worse >= PATIENCE * epochs:
            break
    on_step(epochs, epochs)
    model.load_state_dict(best)
    return model.eval()


def min_steps(pairs: int) -> int:
    """Return the smallest number of steps to learn from so many pairs with."""
    return MIN_STEPS // 2 if pairs < MIN_PAIRS_TO_STOP_EARLY else MIN_STEPS


def epochs_for(pairs: int, steps: int) -> int:
    """Return how often to go through so many pairs to take so many steps."""
    batch = 32 if pairs < FEW_PAIRS else 128
    return math.ceil(steps / math.ceil(max(pairs, 1) / batch))


def held_out_loss(model: CountModel, examples: Examples, rows: Tensor) -> float:
    """Return the mean negative log-likelihood of some examples."""
    logits = answer(model, examples.questions, examples.category_rows, rows).logits
    truth = examples.true_counts[rows].clamp(max=model.config.max_objects)
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


def _step(model: CountModel, examples: Examples, rows: Tensor, optimiser: torch.optim.Optimizer, pairs: int) -> None:
    """Learn from a random batch, in two groups of similar size so that little of it is padding."""
    rows = rows[examples.questions.sizes[rows].argsort(stable=True)]
    optimiser.zero_grad()
    for group in rows.tensor_split((len(rows) * 3 // 4,)):
        if not len(group):
            continue
        answers = model(examples.questions.at(group), examples.category_rows[group])
        truth = examples.true_counts[group].clamp(max=model.config.max_objects)
        loss = torch.nn.functional.cross_entropy(answers.logits, truth, reduction="sum") / len(rows)
        loss.backward()
    own = model.category_score.square().sum() + model.category_count.square().sum()
    (own * (CATEGORY_PRIOR / pairs)).backward()
    for table in (model.category_score, model.category_count):
        assert table.grad is not None
        table.grad[0] = 0
    optimiser.step()
