"""The part of `xpc preview` that runs in the interpreter with the training packages. It prepares rows with the bundle's
own trainer.

It imports no module of the compiler: `start.py` is run as a file, and imports the other modules of this folder.
"""
