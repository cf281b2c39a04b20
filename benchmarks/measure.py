"""How every measurement is made: warm up, repeat, report the median; memory as the peak above what was in use."""

import ctypes
import gc
import os
import platform
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from tallybox.runs import versions

Run = Callable[[], object]  # what is measured


@dataclass(frozen=True)
class BenchRow:
    """One line of a benchmark: ours beside the reference, in one run on one machine."""

    case: str
    median_ms: float
    reference_ms: float
    speedup: float
    peak_bytes: int | None  # None where it cannot be measured
    reference_peak_bytes: int | None


def compare(
    case: str,
    ours: Run,
    reference: Run,
    device: torch.device,
    seconds: float,
    *,
    scale: float = 1.0,
    reference_scale: float = 1.0,
) -> BenchRow:
    """Measure two functions for ``seconds`` each; times are multiplied by the scales."""
    # Memory first, and ours first: what a large call leaves behind hides what a small one needs.
    peaks = peak_bytes(ours, device), peak_bytes(reference, device)
    ours_ms = scale * median_ms(ours, device, seconds=seconds)
    reference_ms = reference_scale * median_ms(reference, device, seconds=seconds)
    return make_row(case, ours_ms, reference_ms, *peaks)


def make_row(
    case: str, ours_ms: float, reference_ms: float, peak: int | None = None, reference_peak: int | None = None
) -> BenchRow:
    """Return measurements as a row, rounded."""
    return BenchRow(
        case, round(ours_ms, 4), round(reference_ms, 4), round(reference_ms / ours_ms, 2), peak, reference_peak
    )


def report(rows: list[BenchRow], device: torch.device) -> dict[str, Any]:
    """Return a benchmark's result, ready for JSON, with the hardware and the versions that it was measured with."""
    machine = {
        "processor": _processor_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        **versions(),
        "date": time.strftime("%Y-%m-%d"),
    }
    if device.type == "cuda":
        machine["accelerator"] = torch.cuda.get_device_name(device)
    return {"machine": machine, "rows": [asdict(row) for row in rows]}


def _processor_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.*)", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else []
    return names[0] if names else platform.processor() or platform.machine()


def median_ms(run: Run, device: torch.device, *, seconds: float = 2.0) -> float:
    """Return the median milliseconds of one call, over batches of calls that fill ``seconds``.

    A batch is long enough (20 ms) for a GPU's queue to stay filled, as it is in training.
    """
    run()
    run()
    calls = max(1, int(0.02 / max(_batch_seconds(run, device, 1), 1e-6)))
    times: list[float] = []
    deadline = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < deadline:
        times.append(_batch_seconds(run, device, calls) / calls * 1e3)
    return statistics.median(times)


def _batch_seconds(run: Run, device: torch.device, calls: int) -> float:
    _synchronise(device)
    start = time.perf_counter()
    for _ in range(calls):
        run()
    _synchronise(device)
    return time.perf_counter() - start


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_bytes(run: Run, device: torch.device) -> int | None:
    """Return how much more memory is in use at the peak of one call than before it."""
    run()
    gc.collect()
    if device.type != "cuda":
        return _peak_resident_bytes(run)
    _synchronise(device)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    run()
    _synchronise(device)
    return torch.cuda.max_memory_allocated(device) - before


def _peak_resident_bytes(run: Run) -> int | None:
    """Measure by the operating system's high-water mark, which Linux lets a process reset."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # memory kept from earlier calls would hide what this one needs
        Path("/proc/self/clear_refs").write_text("5")
        before = _status_bytes("VmRSS")
        run()
        return max(_status_bytes("VmHWM") - before, 0)
    except (OSError, AttributeError, IndexError):
        return None


def _status_bytes(field: str) -> int:
    return 1024 * int(re.findall(rf"^{field}:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)[0])
