"""LLaMA-Factory's YAML, commands and data sets."""
