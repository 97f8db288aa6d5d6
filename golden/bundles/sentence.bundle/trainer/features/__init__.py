"""What only some runs need; a bundle has the modules that its own run uses."""
