"""Counts from any detector: its boxes read and checked, true counts, and the usual ways to count beside ours."""
