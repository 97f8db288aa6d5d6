"""`xpc rehearse`: run a small twin of an experiment on the CPU, from its rows to the push."""
