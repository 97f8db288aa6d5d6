"""The xpc compiler: text and tables in, a bundle out. `pipeline.py` is the way through."""

__version__ = "0.4.0"
