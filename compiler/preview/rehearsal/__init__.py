"""`xpc rehearse`: run a small version of an experiment (its twin) on the CPU, from reading the rows to pushing the
model.
"""
