"""Presence counting: each proposal's probability of standing for an object of its own, and their sum's distribution."""
