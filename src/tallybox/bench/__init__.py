"""Measurements: correctness first, then time and memory, with the machine they were made on."""
