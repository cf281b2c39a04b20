"""From a counter's weights to its functions at their knots, and back with the gradients."""

from __future__ import annotations

import numpy as np

from tallybox.kernels.cpu.compiling import Array, Number, compiled
from tallybox.presence.cpu.parts import CALIBRATION, KNOTS, SHARPNESS, SHIFT, SLOPE, STEP
from tallybox.presence.weights import CELLS, LOGIT_BEND, LOGIT_LIMIT


@compiled
def calibration_edges(segments: int, edges: Array) -> None:
    """Where φ's segments meet, as `weights.calibration_edges`."""
    edges[0], edges[segments] = 0, 1
    for s in range(1, segments):
        bent = (2 * s / segments - 1) / (1 + LOGIT_BEND / LOGIT_LIMIT)
        edges[s] = 1 / (1 + np.exp(-LOGIT_BEND * bent / (1 - abs(bent))))


@compiled
def side(weight: Number) -> float:
    """The slope of |w|, 1 at 0: what starts at 0 can grow."""
    return -1.0 if weight < 0 else 1.0


@compiled
def fill_tables(
    slope: Array,
    shift: Array,
    calibration: Array,
    evidence: Array,
    overlap: Array,
    headroom: Array,
    order: Array,
    step: Array,
    sharpness: Array,
    tables: Array,
) -> None:
    """Write each counter's functions at their knots."""
    segments = calibration.shape[1]
    order_at, evidence_at = CALIBRATION + segments + 1, CALIBRATION + 2 * (segments + 1)
    overlap_at = evidence_at + KNOTS * KNOTS
    for m in range(tables.shape[0]):
        table = tables[m]
        table[SLOPE], table[SHIFT], table[SHARPNESS] = slope[m], shift[m], sharpness[m]

        total = 0.0
        for s in range(segments):
            total += abs(calibration[m, s])
        so_far = 0.0
        table[CALIBRATION] = 0
        for s in range(segments):
            so_far += abs(calibration[m, s]) / total if total > 0 else 1.0 / segments
            table[CALIBRATION + s + 1] = so_far
        table[CALIBRATION + segments] = 1

        total = abs(step[m])
        for s in range(segments):
            total += abs(order[m, s])
        so_far = 0.0
        table[order_at] = 0
        for s in range(segments):
            so_far += abs(order[m, s]) / total if total > 0 else 0.0
            table[order_at + s + 1] = so_far
        table[STEP] = 1 - so_far

        total = abs(headroom[m])
        for e in range(CELLS):
            for f in range(KNOTS):
                total += abs(overlap[m, e, f])
        for f in range(KNOTS):
            table[evidence_at + f] = 0
            table[overlap_at + f] = 0
        for e in range(CELLS):
            of_row = 0.0
            for f in range(KNOTS):
                k = (e + 1) * KNOTS + f
                of_row += abs(overlap[m, e, f]) / total if total > 0 else 0.0
                table[evidence_at + k] = evidence[m, e, f]
                table[overlap_at + k] = min(table[overlap_at + k - KNOTS] + of_row, 1.0)


@compiled
def tables_backward(
    calibration: Array,
    overlap: Array,
    headroom: Array,
    order: Array,
    step: Array,
    tables: Array,
    owed: Array,
    grad_slope: Array,
    grad_shift: Array,
    grad_calibration: Array,
    grad_evidence: Array,
    grad_overlap: Array,
    grad_headroom: Array,
    grad_order: Array,
    grad_step: Array,
    grad_sharpness: Array,
) -> None:
    """Carry what each counter's knots are owed, ``owed [M, T]`` in double, back to its weights."""
    segments = calibration.shape[1]
    order_at, evidence_at = CALIBRATION + segments + 1, CALIBRATION + 2 * (segments + 1)
    overlap_at = evidence_at + KNOTS * KNOTS
    shares = np.empty((CELLS + 1, KNOTS + 1))
    for m in range(tables.shape[0]):
        table, grad = tables[m], owed[m]
        grad_slope[m], grad_shift[m], grad_sharpness[m] = grad[SLOPE], grad[SHIFT], grad[SHARPNESS]

        # A segment's share of the rise lifts every knot behind it.
        total, weighted, later = 0.0, 0.0, 0.0
        for s in range(segments):
            total += abs(calibration[m, s])
        for s in range(segments - 1, -1, -1):
            later += grad[CALIBRATION + s + 1]
            grad_calibration[m, s] = later
            weighted += later * (table[CALIBRATION + s + 1] - table[CALIBRATION + s])
        for s in range(segments):
            scale = np.sign(calibration[m, s]) / total if total > 0 else 0.0
            grad_calibration[m, s] = (grad_calibration[m, s] - weighted) * scale

        # The step is what the segments leave.
        total, weighted, later = abs(step[m]), 0.0, -grad[STEP]
        for s in range(segments):
            total += abs(order[m, s])
        for s in range(segments - 1, -1, -1):
            later += grad[order_at + s + 1]
            grad_order[m, s] = later
            weighted += later * (table[order_at + s + 1] - table[order_at + s])
        if not total > 0:
            total, weighted = 1.0, 0.0
        for s in range(segments):
            grad_order[m, s] = (grad_order[m, s] - weighted) * side(order[m, s]) / total
        grad_step[m] = -weighted * side(step[m]) / total

        total, weighted = abs(headroom[m]), 0.0
        for e in range(CELLS):
            for f in range(KNOTS):
                total += abs(overlap[m, e, f])
        if not total > 0:
            total = 1.0
        shares[:] = 0.0
        for e in range(CELLS - 1, -1, -1):
            of_row = 0.0
            for f in range(KNOTS - 1, -1, -1):
                k = (e + 1) * KNOTS + f
                grad_evidence[m, e, f] = grad[evidence_at + k]
                of_row += grad[overlap_at + k]
                shares[e, f] = shares[e + 1, f] + of_row
                weighted += shares[e, f] * abs(overlap[m, e, f]) / total
        for e in range(CELLS):
            for f in range(KNOTS):
                grad_overlap[m, e, f] = (shares[e, f] - weighted) * side(overlap[m, e, f]) / total
        grad_headroom[m] = -weighted * side(headroom[m]) / total
