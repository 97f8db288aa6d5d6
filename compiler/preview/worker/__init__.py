"""The part of `xpc preview` that runs in the interpreter that trains, with the trainer of a bundle.

It imports nothing of the compiler: `start.py` is run as a file, and the other modules are its package.
"""
