"""Presence counting on CUDA, in Triton: a block of threads walks one image, in tiles of B x B boxes.

Legend: N boxes, K the largest count, S segments, T numbers in a counter's table (see table.py).
An image's state: s [N, N], then z, p⁰ and the two rounds' products [N] each, then [N + 1, K + 1] the distribution
of the first 0 ... N presences. Nothing is added up by atomics, so the same input gives the same bits.
"""
