"""Presence counting on CUDA, in Triton: one program counts one image, in tiles of B x B boxes.

Legend: N boxes, K the largest count, S segments, T numbers in a counter's table (`PresenceFunctions.table`). In a tile
the values of proposals i are [B, 1], those of proposals j [1, B]. No kernel adds up with atomics, so the same input
gives the same bits.
"""
