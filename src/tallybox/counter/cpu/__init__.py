"""The counting component on CPU, in Numba.

Nothing of size N³ in memory. Images are handled eight at once, one in each lane of a vector (`forward.Group`). Kernels
work on a range of images and release the interpreter's lock; `launch` shares the images out among threads. float32 and
float64.

Legend: M counters, R images each, N boxes, S segments. Sim, D, X and Ã are symmetric with constant diagonals, so only
pairs of different boxes are visited, once. Masked proposals are left out before anything is computed.
"""
