"""The counting component on CUDA, in Triton: the only room that imports triton.

Nothing of size N³ is written; memory is a few times images * N². The same input gives the same bits: weight
gradients are summed in a fixed order; blocks only count themselves by atomics, to know who ends last. Two
pairs of kernels share their small parts: `lanes` gives each image a lane of a warp, for few boxes; `tiles`
gives it a block of threads, for many.

Legend: I images, N boxes, S segments (SP: up to a power of two). `base` and `rise` [8, S] say where
each segment of an activation starts and how much it rises; an activation's number is the paper's less
one; `s` are the segments' numbers. `state` and `scratch` are one allocation each, since at small sizes
a call costs as much as its allocations and launches.
"""
