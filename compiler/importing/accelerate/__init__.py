"""Import accelerate's YAML, and the DeepSpeed JSON that accelerate or a trainer uses."""
