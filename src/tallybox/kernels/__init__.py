"""What the fused backends of all components share.

`dispatch` says which backend serves a call, `proposals` and `layout` bring inputs into the form that kernels take,
`threads` runs kernels side by side; `cpu/` holds what Numba kernels share, `cuda/` what Triton kernels share.
"""
