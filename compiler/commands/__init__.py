"""The names of all commands, and the modules of the commands new, list, schema, completion and doctor, which compile no
spec.
"""

APART = {
    "fmt": "xpc.compiler.review.fmt",
    "preview": "xpc.compiler.preview.command",
    "plan": "xpc.compiler.tuning.command",
    "rehearse": "xpc.compiler.preview.rehearsal.command",
    "tune": "xpc.compiler.tuning.tune",
    "diff": "xpc.compiler.review.diff",
    "verify": "xpc.compiler.review.verify",
    "report": "xpc.compiler.report.command",
    "upgrade": "xpc.compiler.review.upgrade",
    "lock": "xpc.compiler.locking.command",
    "new": "xpc.compiler.commands.starter",
    "list": "xpc.compiler.commands.listing",
    "schema": "xpc.compiler.commands.settings_schema",
    "completion": "xpc.compiler.commands.completion",
    "lsp": "xpc.compiler.language_server",
    "doctor": "xpc.compiler.commands.doctor",
}
"""Maps each command that has a module of its own, outside of `cli.py`, to this module. The module has two functions:
`parse` reads the options, and `run` returns the printed text and the exit status.
"""
COMMANDS = {
    "check": "report what is wrong with specs, and write nothing",
    "compile": "check a spec and write its bundle",
    "explain": "explain a code, a setting, or the values of a spec",
    "fmt": "write specs in the one canonical form",
    "preview": "show rows as the trainer gets them, and what is learned from them",
    "rehearse": "run a small version of an experiment to its end, on this CPU",
    "plan": "predict a run's memory and time",
    "tune": "find the fastest way to run a spec, by short runs on your GPUs",
    "diff": "compare two specs, commits or bundles",
    "verify": "compare a bundle with its spec, its packages or its run",
    "report": "show what a run was asked to do, what was planned and what ran",
    "upgrade": "show what another stack changes for a spec, and move the spec to it",
    "lock": "pin the commits, files and packages of a spec",
    "import": "write a spec from another tool's configuration",
    "new": "write a spec to begin with, or a copy of a recipe",
    "list": "list models, GPUs, datasets, settings, recipes ...",
    "schema": "print the settings as a JSON Schema",
    "completion": "print a completion script for bash, zsh or fish",
    "lsp": "serve editors with the Language Server Protocol",
    "doctor": "check whether this machine is ready for runs",
}
"""Maps each command to its description in `xpc --help`."""
OTHER_WORDS = {
    "convert": "import", "format": "fmt", "lint": "check", "review": "diff", "run": "compile", "train": "compile",
    "validate": "check",
}  # fmt: skip
"""Maps words that other tools have for a command to the command."""
LATER = ("sweep",)
"""Names that are reserved for commands that xpc may get later."""
