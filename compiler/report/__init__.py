"""`xpc report DIR...`: what a run's spec asks for, what was planned and what ran, in one table, with curves."""
