"""Local files of rows: found, read, counted and remembered."""
