"""What Numba kernels share: compiling, vectors of eight numbers, boxes."""
