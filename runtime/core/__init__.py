"""The parts that every run needs, from reading the bundle to the last line of the summary."""

FORMAT = 1
"""Version of the layout of trainer_args.json."""
