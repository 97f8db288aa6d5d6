"""Rows that are read while the run trains."""
