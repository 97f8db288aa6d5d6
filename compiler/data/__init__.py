"""Read local data files, survey their rows (count and classify them), and remember the results."""
