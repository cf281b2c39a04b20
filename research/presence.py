"""What each part of presence counting is worth, on the toy task.

    python research/presence.py run docs/results/presence/variants.jsonl     # about 6 minutes on one H200
    python research/presence.py table docs/results/presence/variants.jsonl   # the table of its page

Every variant trains at four points of the toy task, twice each, for 1,000 iterations. Variants are the component's
own equations (tallybox.presence.reference) with one of them replaced.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tallybox.boxes import box_iou
from tallybox.presence import reference
from tallybox.presence.weights import CELLS, LOGIT_LIMIT, PresenceFunctions, PresenceWeights, initial_weights
from tallybox.runs import read_results
from tallybox.toy.data import draw_images
from tallybox.toy.models import ToyModel
from tallybox.toy.training import one_cycle

POINTS = ((0.95, 0.0), (0.0, 0.5), (0.2, 0.5), (0.5, 0.5))
SEEDS = 2
BATCH, BOXES, ITERATIONS, EVALUATION_BATCHES, LEARNING_RATE = 1024, 10, 1000, 100, 0.03


@dataclass(frozen=True)
class Variant:
    """The component as it is, or with something changed."""

    name: str
    heads: int = 1
    segments: int = 16
    rounds: int = reference.ROUNDS
    evidence: bool = True
    stands: str = "overlap, score"  # what η depends on; "overlap", or "overlap, difference" with τ inside
    knots: str = "bent"  # of φ; "logit" or "uniform"
    step: bool = True  # of τ, where the order of boxes decides


def variants() -> Iterator[Variant]:
    """Yield what is compared: one change at a time from one head, then heads and segments."""
    whole = Variant("as it is, 1 head")
    yield whole
    yield replace(whole, name="no suppression", rounds=0)
    yield replace(whole, name="one round", rounds=1)
    yield replace(whole, name="three rounds", rounds=3)
    yield replace(whole, name="no evidence", evidence=False)
    yield replace(whole, name="η of the overlap alone", stands="overlap")
    yield replace(whole, name="η of the overlap alone, no evidence", stands="overlap", evidence=False)
    yield replace(whole, name="η τ as one lattice of overlap and difference", stands="overlap, difference")
    yield replace(whole, name="that lattice, no evidence", stands="overlap, difference", evidence=False)
    yield replace(whole, name="no step in τ", step=False)
    yield replace(whole, name="φ's knots even in the logit", knots="logit")
    yield replace(whole, name="φ's knots even in the score", knots="uniform")
    for heads in (2, 3, 4, 8):
        yield replace(whole, name=f"{heads} heads", heads=heads)
    for segments in (8, 32, 64):
        yield replace(whole, name=f"{segments} segments", segments=segments)


class VariantModel(ToyModel):
    """A variant with a linear readout, for many settings at once."""

    def __init__(self, variant: Variant, settings: int) -> None:
        super().__init__(settings, BOXES, heads=variant.heads, features=BOXES + 2)
        self.variant = variant
        weights = initial_weights(variant.heads, variant.segments)
        if variant.stands == "overlap, difference":  # rises with both: from the product of two straight lines
            weights.overlap[:] = 1 / CELLS
        if not variant.step:
            weights.order[:] = 1
        if variant.knots != "bent":
            weights.calibration[:] = phi_edges(variant.knots, variant.segments).diff() * variant.segments
        self.learned = nn.ParameterDict()
        for name, weight in weights._asdict().items():
            self.learned[name] = nn.Parameter(weight.repeat(settings, 1, *(1 for _ in weight.shape)))
        for name, is_used in self.uses().items():
            self.learned[name].requires_grad_(is_used)

    def uses(self) -> dict[str, bool]:
        """Tell which learned numbers take part at all."""
        suppresses = self.variant.rounds > 0
        orders = suppresses and self.variant.stands != "overlap, difference"
        return {
            "evidence": self.variant.evidence,
            "overlap": suppresses,
            "headroom": suppresses,
            "order": orders,
            "step": orders and self.variant.step,
            "sharpness": suppresses,
        }

    def parameters_used(self) -> int:
        """Count the numbers that one setting learns; η of the overlap alone uses one column of its table."""
        count = sum(p.numel() // len(p) for p in self.parameters() if p.requires_grad)
        if self.variant.stands == "overlap" and self.variant.rounds:
            count -= self.variant.heads * CELLS * CELLS
        return count

    def functions(self) -> PresenceFunctions:
        """Make the functions; what the variant leaves out is made not to matter."""
        weights = PresenceWeights(*(self.learned[name] for name in PresenceWeights._fields))
        if self.variant.stands == "overlap":
            first_column = torch.arange(CELLS + 1, device=weights.overlap.device) == 0
            weights = weights._replace(overlap=torch.where(first_column, weights.overlap, 0))
        if not self.variant.step:
            weights = weights._replace(step=torch.zeros_like(weights.step))
        return PresenceFunctions.of(weights)

    def forward(self, attention: Tensor, boxes: Tensor) -> Tensor:
        """Return scores of each count."""
        f = self.functions()
        logit = reference.score_logit(attention, logits=False).unsqueeze(-2)
        overlap = box_iou(boxes, boxes).unsqueeze(-3)
        coordinate = reference.score_coordinate(logit)
        is_pair = ~torch.eye(BOXES, dtype=torch.bool, device=logit.device)
        evidence = torch.zeros_like(overlap)
        if self.variant.evidence:
            evidence = torch.where(is_pair, reference.neighbour_evidence(coordinate, overlap, f), 0)
        calibrated = self.calibrated(logit, evidence, f)
        presence = calibrated
        if self.variant.rounds:
            stands = torch.where(is_pair, self.stands(logit, boxes, overlap, coordinate, f), 0)
            for _ in range(self.variant.rounds):
                presence = calibrated * (1 - stands * presence.unsqueeze(-2)).prod(-1)
        features = reference.count_features_of(presence, reference.poisson_binomial(presence, BOXES))
        return self.readout(features.flatten(-2))

    def stands(self, logit: Tensor, boxes: Tensor, overlap: Tensor, coordinate: Tensor, f: PresenceFunctions) -> Tensor:
        """s_ij."""
        if self.variant.stands == "overlap, difference":
            difference = logit.unsqueeze(-2) - logit.unsqueeze(-1)
            ahead = (f.sharpness[..., None, None] * difference).sigmoid()
            return lattice(f.overlap, overlap, ahead)
        before = reference.precedes(logit, boxes.unsqueeze(-3))
        shared = reference.at_overlaps(reference.at_scores(f.overlap, 1 - coordinate), overlap)
        return shared * reference.pair_order(logit, before, f)

    def calibrated(self, logit: Tensor, evidence: Tensor, f: PresenceFunctions) -> Tensor:
        """p⁰."""
        if self.variant.knots == "bent":
            return reference.calibrated_score(logit, evidence, f)
        z = f.slope.unsqueeze(-1) * logit + f.shift.unsqueeze(-1) + evidence.sum(-1)
        segments = self.variant.segments
        edges = phi_edges(self.variant.knots, segments).to(z)
        score = z.sigmoid()
        lower = (torch.searchsorted(edges, score.detach(), right=True) - 1).clamp(0, segments - 1)
        place = ((score - edges[lower]) / (edges[lower + 1] - edges[lower])).clamp(0, 1)
        return reference.interpolate(lower + place, f.calibration).clamp(0, 1)


def lattice(table: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Evaluate a function of two numbers, both different for every pair."""
    e, f = first * CELLS, (second * CELLS).expand(*second.shape)
    lower, upper = f.detach().floor().long().clamp(0, CELLS - 1), e.detach().floor().long().clamp(0, CELLS - 1)
    at, place = e - upper, f - lower
    shape = torch.broadcast_shapes(e.shape, f.shape)
    flat = table.flatten(-2).expand(*shape[:-2], (CELLS + 1) ** 2)

    def knot(row: Tensor, column: Tensor) -> Tensor:
        index = (row * (CELLS + 1) + column).expand(shape).flatten(-2)
        return flat.gather(-1, index).unflatten(-1, shape[-2:])

    low = knot(upper, lower) * (1 - place) + knot(upper, lower + 1) * place
    high = knot(upper + 1, lower) * (1 - place) + knot(upper + 1, lower + 1) * place
    return low + at * (high - low)


def phi_edges(knots: str, segments: int) -> Tensor:
    """Return where φ's segments meet if they are even in the logit or in the score."""
    if knots == "uniform":
        return torch.linspace(0, 1, segments + 1)
    edges = torch.linspace(-LOGIT_LIMIT, LOGIT_LIMIT, segments + 1).sigmoid()
    edges[0], edges[-1] = 0, 1
    return edges


def train(variant: Variant, device: torch.device, iterations: int) -> dict[str, Any]:
    """Train a variant at all points and score it."""
    settings = [point for point in POINTS for _ in range(SEEDS)]
    side_length, noise = torch.tensor(settings, device=device).T.contiguous()
    generator = torch.Generator(device).manual_seed(0)
    model = VariantModel(variant, len(settings)).to(device)
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: one_cycle(step / iterations))

    def draw() -> tuple[Tensor, Tensor, Tensor]:
        images = draw_images(side_length, noise, images=BATCH, boxes=BOXES, generator=generator)
        return images.attention, images.boxes, images.count

    start = time.perf_counter()
    for _ in range(iterations):
        attention, boxes, count = draw()
        optimiser.zero_grad()
        scores = model(attention, boxes).flatten(0, 1)
        (nn.functional.cross_entropy(scores, count.flatten(), reduction="sum") / BATCH).backward()
        optimiser.step()
        schedule.step()
    right = torch.zeros(len(settings), device=device)
    seconds = time.perf_counter() - start
    with torch.no_grad():
        for _ in range(EVALUATION_BATCHES):
            attention, boxes, count = draw()
            right += (model(attention, boxes).argmax(-1) == count).float().mean(-1)
    accuracy = (right / EVALUATION_BATCHES).view(len(POINTS), SEEDS).tolist()
    return {
        "variant": variant.name,
        "parameters": model.parameters_used(),
        "step_ms": round(seconds / iterations * 1e3, 2),
        "accuracy": {
            f"l={side:g} q={q:g}": [round(a, 4) for a in of] for (side, q), of in zip(POINTS, accuracy, strict=True)
        },
    }


def table(results: list[dict[str, Any]]) -> str:
    """Return the results as a Markdown table, means of the seeds."""
    points = list(results[0]["accuracy"])
    lines = [f"| variant | parameters | ms a step | {' | '.join(points)} |", "|---|---:|---:|" + "---:|" * len(points)]
    for result in results:
        means = [f"{sum(result['accuracy'][point]) / SEEDS:.4f}" for point in points]
        lines.append(
            f"| {result['variant']} | {result['parameters']} | {result['step_ms']:.1f} | {' | '.join(means)} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run what is not yet in the file, or print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "table"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    options = parser.parse_args()
    if options.command == "table":
        print(table(read_results(options.file)))
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    options.file.parent.mkdir(parents=True, exist_ok=True)
    finished = {result["variant"] for result in read_results(options.file)}
    for variant in variants():
        if variant.name not in finished:
            result = train(variant, device, options.iterations)
            with options.file.open("a") as file:
                file.write(json.dumps(result) + "\n")
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
