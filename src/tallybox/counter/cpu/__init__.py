"""The counting component on CPU, in numba: the only room that imports numba.

Nothing of size N³ in memory. Images are handled eight at once, one in each lane of a vector (`lanes_*`), or, where
there are many boxes or few images, one at a time, with eight steps of a row in a vector (`rows_*`). Both take the
innermost steps from `likeness` and look the activations up in registers (`vectors`). Kernels work on a range of
images and release the interpreter lock; `launch` chooses among them and shares the images out among threads. They
compile once and are then read from a cache on disk. float32 and float64.

Legend: M counters, R images each, N boxes, S segments. `rise [8, S]` is how much each activation rises
in each segment, `base [8, S]` its value where the segment starts; f(x) = base[s] + rise[s] (S x - s).
Sim, D, X and Ã are symmetric with constant diagonals, so only pairs of different boxes are visited, once.
Masked proposals are left out before anything is computed.
"""
