"""Import accelerate's YAML, and DeepSpeed's JSON, whether accelerate or a trainer's argument names the file."""
