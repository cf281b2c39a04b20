"""A step of learning: loss, gradients, Adam; plainly, or replayed as one CUDA graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tallybox.distributed import current_processes, mean_over_processes
from tallybox.errors import InputError
from tallybox.vqa.batches import Examples, LabelledBatch, Rows
from tallybox.vqa.configuration import Precision, TrainingConfig
from tallybox.vqa.model import Batch, VqaModel, at_least_float32

PEOPLE = 10  # who answered each question
WORDS_OF_A_GRAPH = 4  # questions are padded to multiples of this, so that a few graphs serve all
WARM_UP_STEPS = 3


def soft_cross_entropy(logits: Tensor, answers: Tensor) -> Tensor:
    """Return the mean over questions of the loss, -Σ (share of people who said k) · log softmax(logits)ₖ.

    ``logits [B, K]``, ``answers [B, 10]`` with -1 for what is not among the K: it adds nothing.
    """
    log_probability = at_least_float32(logits).log_softmax(-1)
    said = answers >= 0
    of_people = log_probability.gather(1, answers.clamp(min=0))
    return -(of_people * said).sum(1).mean() / PEOPLE


def attention_loss(glimpse: Tensor, relevance: Tensor) -> Tensor:
    """Return the mean over questions of the binary cross-entropy of their proposals.

    ``glimpse [B, N]`` are log-odds, ``relevance [B, N]`` is 1, 0, or -1 for what is not known: such a proposal does not
    count, and a question of which nothing is known adds 0 to the mean.
    """
    known = relevance >= 0
    target = relevance.clamp(min=0).to(at_least_float32(glimpse).dtype)
    of_proposals = nn.functional.binary_cross_entropy_with_logits(at_least_float32(glimpse), target, reduction="none")
    of_questions = (of_proposals * known).sum(1) / known.sum(1).clamp(min=1)
    return of_questions.mean()


class WithGlimpses(nn.Module):
    """A model that returns its glimpses too, as a module that processes can share."""

    def __init__(self, model: VqaModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return what `VqaModel.answer` does."""
        return self.model.answer(batch)


def people_agreeing(logits: Tensor, answers: Tensor) -> Tensor:
    """Return the mean accuracy of the most probable answers, min(0.3 · people who agree, 1)."""
    agreeing = (answers == logits.argmax(-1, keepdim=True)).sum(1)
    return (0.3 * agreeing).clamp(max=1).mean()


def computing_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """Return what products of matrices are computed in."""
    if precision == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}[precision]


def computing_in(dtype: torch.dtype, device: torch.device) -> torch.autocast:
    """Compute products of matrices in half precision where that is asked for."""
    # A captured step must cast weights anew each time: nothing may be kept from the step before.
    return torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16, cache_enabled=False)


class Learner:
    """A model and its optimiser. Every tensor that learning changes is there from the start and stays in place."""

    def __init__(self, model: VqaModel, config: TrainingConfig, device: torch.device) -> None:
        self.config = config
        self.device = device
        self.dtype = computing_dtype(config.precision, device)
        self.model = model.to(device, torch.float64 if self.dtype == torch.float64 else torch.float32)
        self.steps = 0
        component = [] if model.count is None else list(model.count.parameters())
        others = [p for p in model.parameters() if all(p is not c for c in component)]
        factors = [(others, 1.0)] + ([(component, config.count_rate)] if component else [])
        groups: list[dict[str, Any]] = [
            {"params": parameters, "lr": self._rate(factor), "factor": factor} for parameters, factor in factors
        ]
        on_gpu = device.type == "cuda"
        self.optimiser = torch.optim.Adam(groups, fused=True, capturable=on_gpu)
        for parameter in model.parameters():
            self.optimiser.state[parameter] = {
                "step": torch.zeros((), device=device if on_gpu else "cpu"),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        self.totals = torch.zeros(2, device=device)  # of loss and accuracy, since they were last taken
        processes = current_processes()
        self.answering: nn.Module = WithGlimpses(self.model)
        if processes.number > 1:
            self.answering = nn.parallel.DistributedDataParallel(
                self.answering, device_ids=[device] if on_gpu else None
            )

    def _rate(self, factor: float) -> Any:
        """Return a rate that a captured step can see change."""
        rate = self.config.learning_rate * factor
        return torch.tensor(rate, device=self.device) if self.device.type == "cuda" else rate

    def compile(self) -> None:
        """Turn the layers that look at proposals and answer into kernels of their own."""
        self.model.attention.compile()
        self.model.classifier.compile()

    def learn(self, labelled: LabelledBatch) -> None:
        """Take one step."""
        self.set_rate()
        self.compute(labelled)
        self.steps += 1

    def set_rate(self) -> None:
        """Bring the learning rate to where it is at this step: half as high every half-life."""
        for group in self.optimiser.param_groups:
            rate = self.config.learning_rate * group["factor"] * 0.5 ** (self.steps / self.config.half_life)
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def compute(self, labelled: LabelledBatch) -> None:
        """Do what a step asks of the device; nothing waits for it."""
        self.model.train()
        self.optimiser.zero_grad(set_to_none=True)
        with computing_in(self.dtype, self.device):
            logits, glimpses = self.answering(labelled.batch)
        loss = soft_cross_entropy(logits, labelled.answers)
        if self.config.attention_supervision and labelled.relevance is not None:
            loss = loss + self.config.attention_supervision * attention_loss(glimpses[..., 0], labelled.relevance)
        loss.backward()
        self.optimiser.step()
        with torch.no_grad():
            self.totals += torch.stack((loss.detach(), people_agreeing(logits, labelled.answers)))

    def take_totals(self) -> tuple[float, float]:
        """Return the sums of loss and accuracy since the last call, means over processes; the host waits for them."""
        loss, accuracy = mean_over_processes(self.totals).tolist()
        self.totals.zero_()
        return loss, accuracy

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every tensor that learning changes, by name."""
        for name, value in self.model.state_dict(keep_vars=True).items():
            yield f"model.{name}", value.detach()
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimiser.state[parameter].items():
                yield f"optimiser.{name}.{key}", value

    def restore(self, tensors: Mapping[str, Tensor], steps: int) -> None:
        """Go back to a state that `tensors` gave, in place."""
        for name, value in self.tensors():
            if name not in tensors or tensors[name].shape != value.shape:
                raise InputError(f"a checkpoint must hold {name} with shape {list(value.shape)}; it is another model's")
            value.copy_(tensors[name])
        self.steps = steps


class GraphedSteps:
    """Whole steps on a GPU as CUDA graphs, one for each padded length of questions: a replay is a single launch."""

    def __init__(self, learner: Learner, examples: Examples) -> None:
        self.learner = learner
        self.lengths = examples.questions.lengths
        self.rows = torch.zeros(learner.config.batch, dtype=torch.int64, device=learner.device)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        before = {name: value.clone() for name, value in learner.tensors()}
        longest = int(self.lengths.max())
        for words in range(self.padded(1), self.padded(longest) + 1, WORDS_OF_A_GRAPH):
            self._capture(examples, min(words, examples.words.shape[1]))
        learner.restore(before, learner.steps)
        learner.totals.zero_()

    @staticmethod
    def padded(words: int) -> int:
        """Return the length that a graph has for questions of so many words."""
        return -(-words // WORDS_OF_A_GRAPH) * WORDS_OF_A_GRAPH

    def learn(self, rows: Rows) -> None:
        """Take one step from the questions in ``rows [B]``."""
        longest = int(self.lengths[rows].max())
        self.learner.set_rate()
        self.rows.copy_(torch.from_numpy(rows).pin_memory(), non_blocking=True)
        next(graph for words, graph in self.graphs.items() if words >= longest).replay()
        self.learner.steps += 1

    def _capture(self, examples: Examples, words: int) -> None:
        def step() -> None:
            labelled = examples.at(self.rows, proposals=examples.photos.most, words=words)
            self.learner.compute(labelled)

        apart = torch.cuda.Stream(self.learner.device)
        apart.wait_stream(torch.cuda.current_stream(self.learner.device))
        with torch.cuda.stream(apart):
            for _ in range(WARM_UP_STEPS):
                step()
        torch.cuda.current_stream(self.learner.device).wait_stream(apart)
        graph = torch.cuda.CUDAGraph()
        pool = next(iter(self.graphs.values())).pool() if self.graphs else None
        with torch.cuda.graph(graph, pool=pool):
            step()
        self.graphs[words] = graph
