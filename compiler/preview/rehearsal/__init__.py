"""`xpc rehearse`: run a small version of an experiment (its twin) on the CPU, with all its steps from reading the rows
to pushing the model.
"""
