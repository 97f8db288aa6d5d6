"""Local data files: their rows are found, read, counted and remembered."""
