"""The program of a bundle: ``accelerate launch trainer/main.py`` starts it in each process.

When this file is run as a program, it makes its folder a package, so that imports work as in tests.
"""

import os
import sys

if not __package__:
    sys.path[0], __package__ = os.path.split(os.path.dirname(os.path.abspath(__file__)))
    _kept, sys.pycache_prefix = sys.pycache_prefix, os.devnull  # read no bytecode of this folder (see __init__.py)
    __import__(__package__)
    sys.pycache_prefix = _kept

if __name__ == "__main__":
    from .core import signals

    # the imports below take seconds, so signals are handled before them
    signals.listen()

from .core.run import main

if __name__ == "__main__":
    sys.exit(main(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), sys.argv[1:]))
