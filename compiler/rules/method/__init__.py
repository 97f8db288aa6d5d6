"""Rules about training methods."""
