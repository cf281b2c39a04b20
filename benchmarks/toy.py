"""Time a training step of the toy task, and the whole training, compared with the reference.

python -m benchmarks.toy [--device cuda] [--json]
"""

import time
from collections.abc import Iterator
from functools import partial

import torch
from benchmarks.command import benchmark_command
from benchmarks.measure import BenchRow, compare, make_row, median_ms

from tallybox.errors import TallyboxError
from tallybox.toy.sweep import sweep_settings
from tallybox.toy.training import Setting, ToyConfig, ToyTraining, train_settings

# After 20 equal steps the activations of fused and reference differ by rounding, amplified by Adam.
AGREEMENT = 2e-3

# The reference stores N³ values per image, so it is timed on fewer settings and scaled.
REFERENCE_SETTINGS = 8


def step(training: ToyTraining) -> None:
    """Draw a batch and learn from it."""
    images = training.draw()
    for name in training.models:
        training.learn(name, images)


def score(training: ToyTraining) -> None:
    """Draw a batch and let every model answer it."""
    images = training.draw()
    for name in training.models:
        training.accuracy(name, images)


def check_learning(device: torch.device, tolerance: float = AGREEMENT) -> None:
    """Raise unless fused and reference learn the same activations in 20 steps."""
    config = ToyConfig(iterations=20, batch=128, evaluation_batches=0)
    trained = []
    for backend in ("auto", "reference"):
        training = ToyTraining([Setting(0.4, 0.2)], 0, config, device=device, backend=backend)
        for _ in range(config.iterations):
            step(training)
        trained.append(training.activations())
    error = (trained[0] - trained[1]).abs().max().item()
    if not error < tolerance:
        raise TallyboxError(f"fused and reference learn differently (by {error:.1e}); not timed")


def bench_toy(device: torch.device, seconds: float = 2.0, config: ToyConfig | None = None) -> Iterator[BenchRow]:
    """Yield a row for a step of training, then one for the whole training of a point (CPU) or of both sweeps (CUDA)."""
    check_learning(device)
    config = config or ToyConfig()
    settings = [Setting(0.5, 0.5)]
    if device.type == "cuda":
        settings = sweep_settings("easy") + sweep_settings("hard")
    reference_settings = settings[:REFERENCE_SETTINGS]
    scale = len(settings) / len(reference_settings)
    ours = ToyTraining(settings, 0, config, device=device)
    reference = ToyTraining(reference_settings, 0, config, device=device, backend="reference")
    scaled = "" if scale == 1 else f", reference scaled from {len(reference_settings)} settings"
    case = f"a step, {len(settings)} settings{scaled}"
    row = compare(case, partial(step, ours), partial(step, reference), device, seconds, reference_scale=scale)
    yield row

    evaluation_ms = scale * median_ms(partial(score, reference), device, seconds=seconds)
    projected_ms = config.iterations * row.reference_ms + config.evaluation_batches * evaluation_ms
    start = time.perf_counter()
    train_settings(settings, 0, config, device=device)
    training_ms = (time.perf_counter() - start) * 1e3
    case = f"all of {len(settings)} settings, reference projected from its steps"
    yield make_row(case, training_ms, projected_ms, row.peak_bytes, row.reference_peak_bytes)


if __name__ == "__main__":
    benchmark_command(bench_toy)()
