"""Features that only some runs need. A bundle has only the modules that its own run uses."""
