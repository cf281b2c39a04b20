"""The counting component on CUDA, in Triton.

Nothing of size N³ is written; memory is a few times images * N². Weight gradients are summed in a fixed order, so the
same input gives the same bits. Two families of kernels share their small parts: `lanes` gives each image a lane of a
warp, for few boxes in many images; `tiles` gives it a block of threads.

Legend: I images, N boxes, S segments (SP: up to a power of two). A counter's `tables [2, 8, S]` say where each segment
of an activation starts and how much it rises.
"""
