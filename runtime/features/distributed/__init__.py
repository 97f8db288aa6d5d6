"""Features for processes, GPUs and nodes."""
