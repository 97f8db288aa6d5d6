"""`xpc lock`: the only command that asks the hub and the package index. `compile --locked` checks its lock."""
