"""accelerate's YAML, and the DeepSpeed JSON that it or a trainer names."""
