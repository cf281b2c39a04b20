"""Presence counting on CUDA, in Triton.

Legend: N boxes, K the largest count, S segments, T numbers in a counter's table (`PresenceFunctions.table`). A row is a
proposal i with all proposals j of its image: kernels for pairs have a row in each lane, whichever image it is of, so
that no lane is idle where images have few boxes. Rounds and distributions have a program for each image, or for each
group of G small images. No kernel adds up with atomics, so the same input gives the same bits.
"""
