"""Keys of TRL, transformers and PEFT: YAML, command lines, and all sources that share these names."""
