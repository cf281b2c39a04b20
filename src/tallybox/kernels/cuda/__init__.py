"""What Triton kernels share: launching, boxes."""
