"""Replacements and overrides of private library code: one module per topic, listed in README.md."""
