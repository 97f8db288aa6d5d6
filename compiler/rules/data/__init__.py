"""Rules about training rows and evaluation sets."""
