"""Presence counting on CUDA, in Triton."""
