"""Presence counting on CPU, in numba: one image at a time, only pairs of boxes that overlap.

Legend: M counters, R images each, N boxes, S segments, E cells, T numbers in a counter's table (see table.py).
Boxes that do not overlap say nothing about each other, so an image's work is its overlapping pairs:
`first` and `second` [P] are their proposals, `iou` [P] their overlap, and `stands` [2, P] how much the
second stands for the first and the first for the second. Masked proposals are left out at the start.
"""
