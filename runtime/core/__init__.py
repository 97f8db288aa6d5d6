"""What every run needs, from reading the bundle to the last line of the summary."""

FORMAT = 1
"""Of trainer_args.json; it changes with its shape."""
CHATS = ("text", "messages", "conversations")
"""Shapes of rows without a prompt of their own."""
EIGHT_BIT = ("8bit", "bnb", "paged", "lion", "ademamix")
"""Parts of the names of optimizers that are bitsandbytes' (transformers, trainer_optimizer.py)."""
