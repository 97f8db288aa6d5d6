"""What every run needs, from reading the bundle to the last line of the summary."""

FORMAT = 1
"""Of trainer_args.json; it changes with its shape."""
