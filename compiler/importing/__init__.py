"""`xpc import`: convert another tool's configuration to a spec, and report how every key was imported.

Each kind of source has a folder: `trl`, `axolotl`, `llamafactory`, `torchtune`, `accelerate` (with DeepSpeed), `python`
(training scripts) and `command` (command lines and shell scripts). `bundle.py` reads bundles of xpc. All of them use
`trl/` for the arguments of transformers and TRL, `accelerate/` for the launch, and `text/` for YAML, JSON and shell
scripts. For each key, there are four outcomes. The key becomes a setting; it is kept under `extra` or in a comment; it
has no effect, and the report says why; or it is an error, which names the key's file and line. `keys.py` reads the key
tables. Only `cli.py` reads and writes files.
"""
