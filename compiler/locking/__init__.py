"""`xpc lock`, the only command that accesses the hub and the package index. This package also compares a spec with its
lock, for `compile --locked`.
"""
