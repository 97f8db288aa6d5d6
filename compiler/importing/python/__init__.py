"""Import Python training scripts and notebooks by interpreting their syntax trees. The scripts are never executed.

`interpreter/` interprets the script. `program.py` finds the trainer among the recorded calls, `data.py` traces the
dataset back to the call that loads it, `rows.py` reads the functions that are passed to `map`, `shapes.py` derives the
row format, and `reader.py` converts the result with the importer of TRL's YAML.
"""
