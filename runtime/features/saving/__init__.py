"""Features for checkpoints and the hub."""
