"""Evaluation while a run trains."""
