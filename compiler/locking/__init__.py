"""`xpc lock`: the one command that asks the hub and the package index. `compile --locked` reads it, too."""
