"""What every run needs, from reading the bundle to the last line of the summary."""
