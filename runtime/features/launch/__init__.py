"""Features for packages and files that are checked before a run starts."""
