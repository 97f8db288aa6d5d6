"""The result of an import: the outcome of each key, the messages, and the decisions that are left to the user."""

from __future__ import annotations

from xpc.compiler.importing.text.entries import Entry
from xpc.grammar.record import record

MAPPED, EXTRA, IRRELEVANT, RESERVED, ERROR = "mapped", "extra", "irrelevant", "reserved", "error"
UNDECIDED = "undecided"
"""The ways in which an imported key is handled.

- MAPPED: it becomes a setting
- EXTRA: it is kept under `extra`
- IRRELEVANT: it has no effect
- RESERVED: it is kept in a comment, because a run of the spec does not follow it
- ERROR: a spec cannot express it
- UNDECIDED: an error that `--partial` turned into a comment, about which the user must decide
"""


@record
class KeyOutcome:
    """How one key was imported. `outcome` is a constant such as MAPPED or EXTRA, `to` is the resulting line of the
    spec, and `why` is the reason.
    """

    key: str
    value: str
    file: str
    line: int
    outcome: str
    to: str = ""
    why: str = ""


@record
class Message:
    """A warning or an error. `location` is the file and line of the key that the message is about.

    For an error, `entry` is the key itself, and `why` is the reason. `own` is true if no supported tool has the key, so
    that only the repository's own script can read it. `similar` is true if the key may be a misspelling of a known key.
    """

    severity: str
    location: str
    text: str
    help: str = ""
    entry: Entry | None = None
    why: str = ""
    own: bool = False
    similar: bool = False


@record
class Decision:
    """A question that `--partial` leaves to the user: a sentence, the files and lines that it is about, and what to
    write in the spec.
    """

    text: str
    locations: tuple[str, ...] = ()
    help: str = ""
