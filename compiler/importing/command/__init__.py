"""Import a command line or a shell script. `search.py` finds the command that trains, `line.py` parses it,
`launcher.py` reads the options of the launcher, and `reader.py` converts the command to a draft of the spec.
"""
