"""Names of the commands; in this folder, those that are no stage of a compilation: lists, starters, completion."""

APART = {
    "fmt": "xpc.compiler.review.fmt",
    "plan": "xpc.compiler.tuning.command",
    "tune": "xpc.compiler.tuning.tune",
    "diff": "xpc.compiler.review.diff",
    "verify": "xpc.compiler.review.verify",
    "upgrade": "xpc.compiler.review.upgrade",
    "lock": "xpc.compiler.locking.command",
    "new": "xpc.compiler.commands.starter",
    "list": "xpc.compiler.commands.listing",
    "schema": "xpc.compiler.commands.settings_schema",
    "completion": "xpc.compiler.commands.completion",
    "lsp": "xpc.compiler.language_server",
    "doctor": "xpc.compiler.commands.doctor",
}
"""Commands that are modules of their own: `parse` reads their options, `run` gives what is printed and the status."""
COMMANDS = {
    "check": "say what is wrong with specs, and write nothing",
    "compile": "check a spec and write its bundle",
    "explain": "explain a code, a setting, or the values of a spec",
    "fmt": "write specs in the one canonical form",
    "plan": "say what a run needs of its GPUs, and how long it takes",
    "tune": "measure on your own GPUs which way to run a spec is fastest",
    "diff": "compare two specs, commits or bundles",
    "verify": "compare a bundle with its spec, its packages or its run",
    "upgrade": "say what another stack changes for a spec, and move the spec to it",
    "lock": "pin the commits, files and packages that a spec means",
    "import": "write a spec from another tool's configuration",
    "new": "write a spec to begin with, or a copy of a recipe",
    "list": "list models, GPUs, datasets, settings, recipes ...",
    "schema": "print the settings as a JSON Schema",
    "completion": "print a completion script for bash, zsh or fish",
    "lsp": "serve editors with the Language Server Protocol",
    "doctor": "say whether this machine is ready for runs",
}
"""Every command with its line in `xpc --help`."""
LATER = ("sweep", "report", "preview", "rehearse")
"""Names that the language's contract reserves for commands to come."""
