"""Resolve a parsed spec into a typed experiment: names of models and data, the registry, defaults, and the batch
arithmetic.
"""
