"""The language: the table of settings, and from a tree to what was written."""
