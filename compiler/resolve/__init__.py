"""Resolve a parsed spec into a typed experiment: look up models and data, read the registry, fill in defaults, and
compute the batch arithmetic.
"""
