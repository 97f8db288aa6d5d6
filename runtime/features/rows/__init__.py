"""Rows: their sources, shapes, mixtures and counts of tokens."""
