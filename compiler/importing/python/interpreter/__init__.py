"""Follow a script by its syntax tree, and compute the values that its text decides. Nothing is executed.

`source.py` parses a file of limited size, and `script.py` follows it. `machine.py` has the state. These modules define
what each kind of node does: `expressions.py` with `operators.py`, `attributes.py` and `texts.py`; `statements.py` with
`control_flow.py`, `assignment.py` and `imports.py`; and `script_calls.py`. `branches.py` undoes and joins branches.

Values have the classes of `values.py`. `known.py` and `methods.py` have the functions whose value is computed,
`command_line.py` the parsers of command lines, and `calls.py` records other calls. A value that the text does not
decide is `Unknown` with its line.
"""
