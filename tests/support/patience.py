"""The timeout after which a test considers a process hung."""

HUNG = 1800
"""A timeout in seconds. It is so long that only a process that never ends exceeds it, however busy the machine is."""
