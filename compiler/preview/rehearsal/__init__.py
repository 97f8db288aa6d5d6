"""`xpc rehearse`: run a small twin of an experiment on the CPU, from reading the rows to pushing the model."""
