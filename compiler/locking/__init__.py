"""`xpc lock`: the only command that asks the hub and the package index. `compile --locked` compares a spec
with its lock.
"""
