"""The language: the table of settings, and reading a tree into what the spec states."""
