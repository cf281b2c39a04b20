"""Seeing it count: one static page that explains a count, and a server for the explorer page and the HTTP service."""
