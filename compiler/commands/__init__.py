"""Names of the commands; in this folder, those that are no stage of a compilation: lists, starters, completion."""

APART = {
    "fmt": "xpc.compiler.review.fmt",
    "diff": "xpc.compiler.review.diff",
    "verify": "xpc.compiler.review.verify",
    "upgrade": "xpc.compiler.review.upgrade",
    "new": "xpc.compiler.commands.starter",
    "list": "xpc.compiler.commands.listing",
    "schema": "xpc.compiler.commands.settings_schema",
    "completion": "xpc.compiler.commands.completion",
    "doctor": "xpc.compiler.doctor",
}
"""Commands that are modules of their own: `parse` reads their options, `run` gives what is printed and the status."""
COMMANDS = (
    "check",
    "compile",
    "explain",
    "fmt",
    "diff",
    "verify",
    "upgrade",
    "import",
    "new",
    "list",
    "schema",
    "completion",
    "doctor",
)
LATER = ("plan", "lock", "sweep", "report")
