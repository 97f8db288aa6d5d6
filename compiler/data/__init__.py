"""Read local data files, survey their rows (count and classify them), and store the results for later commands."""
