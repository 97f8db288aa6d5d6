"""Follow a script by its syntax tree, and compute the values that its text decides. Nothing is executed.

`source.py` parses a file within bounds. `script.py` follows it with a `Machine` (`machine.py`), which has the state: the
scopes, and what the libraries' functions were called with.
"""
