"""Import training scripts and notebooks in Python, which are read by their syntax tree and never executed.

`source.py` parses a file within bounds. `machine.py` walks the statements and `expressions.py` the expressions, with
the values of `values.py` and the functions of `functions.py`; a value that the text does not decide is `Unknown` with
its line. `program.py` finds the trainer among the calls, `rows.py` reads functions over rows, `data.py` the data, and
`reader.py` writes the draft with the key tables that TRL's YAML uses.
"""
