"""Local data files: find, read and count their rows, and remember the counts."""
