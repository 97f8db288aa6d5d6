"""Checkpoints and the hub."""
