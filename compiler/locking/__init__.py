"""`xpc lock`, the only command that accesses the hub and the package index. For `compile --locked`, this package
compares a spec with its lock.
"""
