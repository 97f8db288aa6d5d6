"""`xpc import`: another tool's configuration becomes a spec, and every key of it gets a fate.

A folder for each source: `trl`, `axolotl`, `llamafactory`, `torchtune`, `accelerate` (with DeepSpeed); `command.py` and
`bundle.py` read command lines and bundles. All share `trl/` for the arguments of transformers and TRL, `accelerate/`
for the launch, and `text/`, which reads YAML, JSON and shell scripts. A key becomes a setting, is kept under `extra` or
in a comment, is irrelevant for a stated reason, or is an error with its file and line. `keys.py` reads the key tables.
Only `cli.py` reads and writes files.
"""
