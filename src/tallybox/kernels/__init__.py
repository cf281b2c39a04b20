"""What the fused backends of both components share.

`dispatch` chooses the backend of a call, `proposals` and `layout` bring inputs into the form that kernels take,
`operators` registers kernels with PyTorch; `cpu/` is for Numba kernels, `cuda/` for Triton kernels.
"""

# Replaces a factor of 0 in a product. It is a power of two: dividing the product by it gives the product of the other
# factors exactly, and every product that contains it is negligible.
TINY = 2.0**-60
