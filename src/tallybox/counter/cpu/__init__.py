"""The counting component on CPU, in numba: the only room that imports numba.

One image at a time, its matrices in cache, nothing of size N³ in memory. Kernels work on a range of
images and release the interpreter lock; `launch` shares the images out among threads. They compile
once and are then read from a cache on disk. float32 and float64.

Legend: M counters, R images each, N boxes, S segments. `rise [8, S]` is how much each activation rises
in each segment, `base [8, S]` its value where the segment starts; f(x) = base[s] + rise[s] (S x - s).
Sim, D, X and Ã are symmetric with constant diagonals, so only pairs i < j are visited. Masked proposals
are left out before anything is computed.
"""
