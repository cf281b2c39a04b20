import math

import pytest
import torch

from tallybox.vqa.batches import LabelledBatch
from tallybox.vqa.config import TrainingConfig
from tallybox.vqa.steps import VqaTrainer, attention_loss, mean_accuracy, soft_cross_entropy
from tests.support.vqa_batches import SIZES, random_batch, small_model

CPU = torch.device("cpu")


def labelled(questions: int = 8) -> LabelledBatch:
    answers = torch.randint(-1, SIZES.answers, (questions, 10), generator=torch.Generator().manual_seed(2))
    return LabelledBatch(random_batch(questions), answers)


def test_the_loss_is_the_log_softmax_weighted_by_how_many_people_gave_each_answer():
    logits = torch.tensor([[1.0, 2.0, -1.0], [0.0, 0.5, 3.0]])
    answers = torch.tensor([[0, 0, 0, 1, 1, 2, -1, -1, -1, -1], [2] * 10])
    expected = 0.0
    for row, given in zip(logits.tolist(), answers.tolist(), strict=True):
        total = math.log(sum(math.exp(value) for value in row))
        expected -= sum((row[k] - total) * given.count(k) / 10 for k in range(3)) / 2
    assert soft_cross_entropy(logits, answers).item() == pytest.approx(expected, rel=1e-6)


def test_accuracy_counts_people_who_agree():
    answers = torch.tensor([[1] * 2 + [0] * 8, [2] * 10, [-1] * 10])
    logits = torch.eye(3)[[1, 2, 0]]
    assert mean_accuracy(logits, answers).item() == pytest.approx((0.6 + 1 + 0) / 3)


def test_the_attention_loss_is_the_mean_over_questions_of_the_mean_over_known_proposals():
    glimpse = torch.tensor([[2.0, -1.0, 5.0], [0.5, 3.0, -2.0], [1.0, 1.0, 1.0]])
    relevance = torch.tensor([[1, 0, -1], [0, 1, 1], [-1, -1, -1]], dtype=torch.int8)

    def log1pexp(value: float) -> float:
        return math.log1p(math.exp(value))

    first = (log1pexp(-2) + log1pexp(-1)) / 2
    second = (log1pexp(0.5) + log1pexp(-3) + log1pexp(2)) / 3
    assert attention_loss(glimpse, relevance).item() == pytest.approx((first + second + 0) / 3, rel=1e-6)
    learned = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    attention_loss(learned, torch.tensor([[1, 0, -1], [-1, -1, -1]], dtype=torch.int8)).backward()
    assert learned.grad.tolist() == [[-0.125, 0.125, 0], [0, 0, 0]]


def supervised(relevance: torch.Tensor | None, weight: float) -> VqaTrainer:
    """Return a learner after one step whose answers say nothing, so that it learns from the attention loss alone."""
    config = TrainingConfig(batch=8, precision="float64", attention_supervision=weight)
    trainer = VqaTrainer(small_model("baseline", dropout=0.0), config, CPU)
    unanswered = torch.full((8, 10), -1)
    trainer.step(LabelledBatch(random_batch(8), unanswered, relevance))
    return trainer


def test_supervision_reaches_the_first_glimpse_and_nothing_behind_it():
    batch = random_batch(8)
    relevance = torch.where(batch.mask, 1, -1).to(torch.int8)
    trainer = supervised(relevance, weight=3.0)
    grads = {name: value.grad for name, value in trainer.model.named_parameters()}
    to_glimpses = grads["attention.to_glimpses.weight"]
    assert to_glimpses[0].abs().max() > 0
    assert not to_glimpses[1].any()
    assert grads["question.gru.weight_ih_l0"].abs().max() > 0
    assert not grads["classifier.to_answers.weight"].any()
    plain = small_model("baseline", dropout=0.0)
    loss = 3 * attention_loss(plain(batch)[1][..., 0], relevance)
    assert trainer.pop_totals()[0] == pytest.approx(loss.item(), rel=1e-6)


@pytest.mark.parametrize(("known", "weight"), [(False, 3.0), (True, 0.0), (None, 3.0)])
def test_without_targets_or_weight_nothing_is_added(known, weight):
    batch = random_batch(8)
    relevance = None if known is None else torch.where(batch.mask & known, 1, -1).to(torch.int8)
    trainer = supervised(relevance, weight)
    assert trainer.pop_totals()[0] == 0
    assert not any(value.grad.any() for value in trainer.model.parameters())


def test_steps_are_those_of_plain_adam_with_a_falling_rate_and_another_rate_for_the_counter():
    config = TrainingConfig(batch=8, learning_rate=0.01, half_life=3, count_rate=2.0, precision="float64")
    trainer = VqaTrainer(small_model("counter", dropout=0.0), config, CPU)
    plain = small_model("counter", dropout=0.0).train()
    counter = list(plain.count.parameters())
    others = [p for p in plain.parameters() if all(p is not c for c in counter)]
    optimiser = torch.optim.Adam([{"params": others}, {"params": counter}])
    given = labelled()
    for step in range(4):
        for group, factor in zip(optimiser.param_groups, (1, 2), strict=True):
            group["lr"] = 0.01 * factor * 0.5 ** (step / 3)
        optimiser.zero_grad()
        soft_cross_entropy(plain(given.batch)[0], given.answers).backward()
        optimiser.step()
        trainer.step(given)
    for (name, value), expected in zip(trainer.model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")


def test_half_precision_learns_nearly_the_same():
    losses = []
    for precision in ("float32", "bfloat16"):
        model = small_model("counter", dropout=0.0, dtype=torch.float32)
        trainer = VqaTrainer(model, TrainingConfig(batch=8, precision=precision, learning_rate=0.01), CPU)
        batch, answers, _ = labelled()
        batch = batch._replace(features=batch.features.to(trainer.dtype), boxes=batch.boxes.float())
        for _ in range(10):
            trainer.step(LabelledBatch(batch, answers))
        losses.append(trainer.pop_totals()[0])
    assert losses[1] == pytest.approx(losses[0], rel=0.05)
