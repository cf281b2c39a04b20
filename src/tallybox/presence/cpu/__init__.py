"""Presence counting on the CPU, in numba: one image at a time, only pairs of boxes that overlap or touch.

Legend: M counters, R images each, N boxes, S segments, E cells, K the largest count, T numbers in a counter's table
(`PresenceFunctions.table`). Boxes apart do not influence each other, so an image's work is its directed pairs: the
source of a pair is evidence for its target and suppresses it. Masked proposals are left out at the start.
"""
