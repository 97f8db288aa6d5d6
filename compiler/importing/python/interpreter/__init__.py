"""Interpret a script's syntax tree, and compute the values that its source determines. The script is never executed.

`source.py` parses a file of limited size, and `script.py` interprets it. `machine.py` has the interpreter's state.
These modules evaluate each kind of node: `expressions.py` with `operators.py`, `attributes.py` and `texts.py`;
`statements.py` with `control_flow.py`, `assignment.py` and `imports.py`; and `script_calls.py`. `branches.py` undoes
and merges the changes of branches.

`values.py` has the classes of values. `known.py` and `methods.py` compute calls of known functions, `command_line.py`
computes what the parsers of command lines return, and `calls.py` records all other calls. A value that the source does
not determine is `Unknown`, with the reason and the line.
"""
