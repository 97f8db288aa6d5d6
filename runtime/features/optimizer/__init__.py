"""Features for the optimizer and the loss."""
