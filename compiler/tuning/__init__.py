"""`xpc plan` and `xpc tune`: the commands, their pages and tables, and the readings of real runs."""
