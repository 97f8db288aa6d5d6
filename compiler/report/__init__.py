"""`xpc report DIR...`: what a run's spec asked for, what was planned and what ran, in one table with the curves."""
