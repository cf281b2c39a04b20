"""A training step: loss, gradients, Adam."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from tallybox.errors import InputError
from tallybox.vqa.batches import LabelledBatch
from tallybox.vqa.config import Precision, TrainingConfig
from tallybox.vqa.data.questions import ANSWERS_PER_QUESTION
from tallybox.vqa.model import VqaModel, WordPacking, at_least_float32


def soft_cross_entropy(logits: Tensor, answers: Tensor) -> Tensor:
    """Return the mean over questions of the loss, -Σ (share of people who answered k) · log softmax(logits)ₖ.

    ``logits [B, K]``, ``answers [B, 10]`` with -1 for an answer outside the K, which adds nothing.
    """
    log_probability = at_least_float32(logits).log_softmax(-1)
    per_person = log_probability.gather(1, answers.clamp(min=0)) * (answers >= 0)
    return -per_person.sum(1).mean() / ANSWERS_PER_QUESTION


def attention_loss(glimpse: Tensor, relevance: Tensor) -> Tensor:
    """Return the mean over questions of the mean binary cross-entropy of their proposals.

    ``glimpse [B, N]`` are log-odds, ``relevance [B, N]`` is 1, 0, or -1 if unknown. Proposals of unknown
    relevance are left out; a question that has no others adds 0.
    """
    is_known, glimpse = relevance >= 0, at_least_float32(glimpse)
    target = relevance.clamp(min=0).to(glimpse.dtype)
    per_proposal = nn.functional.binary_cross_entropy_with_logits(glimpse, target, reduction="none")
    per_question = (per_proposal * is_known).sum(1) / is_known.sum(1).clamp(min=1)
    return per_question.mean()


def mean_accuracy(logits: Tensor, answers: Tensor) -> Tensor:
    """Return the mean accuracy of the most probable answers, min(0.3 · people who agree, 1)."""
    agreeing = (answers == logits.argmax(-1, keepdim=True)).sum(1)
    return (0.3 * agreeing).clamp(max=1).mean()


def compute_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """Return the dtype of matrix products."""
    if precision == "auto":
        precision = "bfloat16" if device.type == "cuda" else "float32"
    dtype: torch.dtype = getattr(torch, precision)
    return dtype


def autocast(dtype: torch.dtype, device: torch.device) -> torch.autocast:
    """Compute matrix products in bfloat16 if that is ``dtype``."""
    # No cache: a captured step must cast the weights anew in each replay.
    return torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16, cache_enabled=False)


class VqaTrainer:
    """A model and its optimiser. All tensors that training changes exist from the start and stay in place."""

    def __init__(self, model: VqaModel, config: TrainingConfig, device: torch.device) -> None:
        self.config, self.device, self.steps = config, device, 0
        self.dtype = compute_dtype(config.precision, device)
        self.model = model.to(device, torch.float64 if self.dtype == torch.float64 else torch.float32)
        component = [] if model.count is None else list(model.count.parameters())
        rest = [p for p in model.parameters() if all(p is not c for c in component)]
        on_gpu = device.type == "cuda"  # where a captured step reads the learning rate from a tensor
        groups = [
            {"params": parameters, "lr": torch.zeros((), device=device) if on_gpu else 0.0, "factor": factor}
            for parameters, factor in ((rest, 1.0), (component, config.count_rate))
            if parameters
        ]
        self.optimiser = torch.optim.Adam(groups, fused=True, capturable=on_gpu)
        for parameter in model.parameters():  # Adam makes its state in a first step, here one of 0
            parameter.grad = torch.zeros_like(parameter)
        self.optimiser.step()
        for state in self.optimiser.state.values():
            for value in state.values():
                value.zero_()
        self.totals = torch.zeros(2, device=device)  # loss and accuracy, summed since the last `pop_totals`

    def compile(self) -> None:
        """Compile attention and classifier."""
        self.model.attention.compile()
        self.model.classifier.compile()

    def step(self, labelled: LabelledBatch) -> None:
        """Take one step."""
        self.set_learning_rate()
        self.update(labelled)
        self.steps += 1

    def set_learning_rate(self) -> None:
        """Set the learning rate of this step: it halves every half-life."""
        for group in self.optimiser.param_groups:
            rate = self.config.learning_rate * group["factor"] * 0.5 ** (self.steps / self.config.half_life)
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def update(self, labelled: LabelledBatch, packing: WordPacking | None = None) -> None:
        """Run forward, backward and Adam, without waiting for the device."""
        self.model.train()
        self.optimiser.zero_grad(set_to_none=True)
        with autocast(self.dtype, self.device):
            logits, glimpses = self.model(labelled.batch, packing)
        loss = soft_cross_entropy(logits, labelled.answers)
        if self.config.attention_supervision and labelled.relevance is not None:
            loss = loss + self.config.attention_supervision * attention_loss(glimpses[..., 0], labelled.relevance)
        loss.backward()
        self.optimiser.step()
        with torch.no_grad():
            self.totals += torch.stack((loss.detach(), mean_accuracy(logits, labelled.answers)))

    def pop_totals(self) -> tuple[float, float]:
        """Return the sums of loss and accuracy since the last call; waits for the device."""
        loss, accuracy = self.totals.tolist()
        self.totals.zero_()
        return loss, accuracy

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield all tensors that training changes, by name."""
        for name, value in self.model.state_dict(keep_vars=True).items():
            yield f"model.{name}", value.detach()
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimiser.state[parameter].items():
                yield f"optimiser.{name}.{key}", value

    def restore(self, tensors: Mapping[str, Tensor], steps: int) -> None:
        """Copy a state that `tensors` gave back into place."""
        for name, value in self.tensors():
            if name not in tensors or tensors[name].shape != value.shape:
                raise InputError(f"The checkpoint is of another model: {name} of shape {list(value.shape)} is missing.")
            value.copy_(tensors[name])
        self.steps = steps
