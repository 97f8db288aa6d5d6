"""Import training scripts and notebooks in Python, which are read by their syntax tree and never executed.

`source.py` parses a file within bounds. `machine.py` walks statements and `expressions.py` expressions, with the
values of `values.py`; `known.py` has functions whose value is computed, and `calls.py` records the others. A value that
the text does not decide is `Unknown` with its line. `program.py` finds the trainer among the calls, `rows.py` reads
functions over rows, `data.py` follows the data, `shapes.py` writes how rows are read, and `reader.py` makes the draft
with the key tables of TRL's YAML.
"""
