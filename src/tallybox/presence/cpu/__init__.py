"""Presence counting on CPU, in numba: one image at a time, only pairs of boxes that overlap or touch.

Legend: M counters, R images each, N boxes, S segments, E cells, T numbers in a counter's table (see table.py).
Boxes apart say nothing about each other, so an image's work is those pairs:
`first` and `second` [P] are their proposals, `iou` [P] their overlap, and `stands` [2, P] how much the
second stands for the first and the first for the second. Masked proposals are left out at the start.
"""
