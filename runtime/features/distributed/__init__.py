"""Processes, GPUs and nodes."""
