"""Rows: sources, shapes, mixtures and token counts."""
