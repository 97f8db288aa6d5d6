"""`xpc report DIR...`: the spec's settings, the plan and the measurements of runs in one table, with curves."""
