"""Rules about checkpoints, publishing, tracking and secrets."""
