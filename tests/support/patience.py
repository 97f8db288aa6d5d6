"""The timeout after which a test considers a process hung."""

HUNG = 1800
"""Seconds. It is so long that only a process that never ends reaches it, however busy the machine is."""
