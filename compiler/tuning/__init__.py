"""`xpc plan` and `xpc tune`: the commands, their pages and tables, and measurements of real runs."""
