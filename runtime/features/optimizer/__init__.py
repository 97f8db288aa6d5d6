"""The optimizer and the loss."""
