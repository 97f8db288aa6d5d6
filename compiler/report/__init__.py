"""`xpc report DIR...`: show the settings, the plan and the measurements of runs in one table, with curves."""
