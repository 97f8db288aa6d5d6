"""The xpc compiler: it compiles the text of a spec to a bundle. `pipeline/__init__.py` calls its steps one by one."""

__version__ = "0.4.0"
