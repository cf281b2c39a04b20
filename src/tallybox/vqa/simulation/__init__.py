"""Simulated data sets in the official formats: scenes, proposals, questions, answers."""
