"""`xpc plan` and `xpc tune`: the commands, their output as text and HTML, and measurements of real runs."""
