"""Interpret a script's syntax tree, and compute the values that its source determines. The script is never executed.

`source.py` parses a file of limited size, and `script.py` interprets it. `machine.py` has the interpreter's state.
Expressions are in `expressions.py`, `operators.py`, `attributes.py` and `texts.py`; statements in `statements.py`,
`control_flow.py`, `assignment.py` and `imports.py`; calls in `script_calls.py`. `branches.py` undoes and merges the
changes of branches.

Values have the classes of `values.py`. `known.py` and `methods.py` have the functions whose value is computed,
`command_line/` the arguments from argparse, typer, click and hydra, and `script_calls.py` records other calls. A value
that the source does not determine is `Unknown`, with its line.
"""
