"""Import training scripts and notebooks in Python, by reading their syntax tree. They are never executed.

`interpreter/` follows the script. `program.py` finds the trainer among its calls, `rows.py` reads functions over rows,
`data.py` follows the data, `shapes.py` writes how rows are read, and `reader.py` makes the draft with the key tables of
TRL's YAML.
"""
