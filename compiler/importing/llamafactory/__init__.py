"""Import LLaMA-Factory's YAML, commands and datasets."""
