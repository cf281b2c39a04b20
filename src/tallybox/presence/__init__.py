"""Presence counting: the probability that a proposal shows an object of its own, and the distribution of their sum."""
