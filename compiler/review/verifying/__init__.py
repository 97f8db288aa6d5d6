"""The parts of `xpc verify`: it computes the expected files, and compares files, finished runs and complete folders
with them.
"""
