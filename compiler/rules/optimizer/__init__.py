"""Rules about optimizers, schedules and the choice of the best checkpoint."""
