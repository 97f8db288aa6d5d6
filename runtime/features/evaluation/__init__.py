"""Features for evaluation during training."""
