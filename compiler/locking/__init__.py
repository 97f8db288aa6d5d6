"""`xpc lock`: the only command that accesses the hub and the package index. `compile --locked` compares a spec with its
lock.
"""
