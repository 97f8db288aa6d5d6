"""`xpc plan` and `xpc tune`: the commands, their pages and tables, and readings of real runs."""
