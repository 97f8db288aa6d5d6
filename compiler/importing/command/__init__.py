"""Import a command line or a shell script: `search.py` finds the training command, `line.py` parses it, `launcher.py`
reads the launcher's options, and `reader.py` converts the command to a draft of the spec.
"""
