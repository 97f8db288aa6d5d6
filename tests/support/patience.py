"""How long a test waits for a process before it calls it hung."""

HUNG = 1800
"""Seconds. Only a process that never ends gets there: no verdict may depend on how busy a machine is."""
