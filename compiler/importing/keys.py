"""The key tables of the sources: TOML files with a row for each key whose fate depends only on its name.

    cutoff_len = { renamed = "max_length" }
    plot_loss = { irrelevant = "metrics are written anyway" }
    badam_mode = { refused = "the language has no such optimizer", needs = "use_badam" }

Keys that a reader looks up need no row: `Lookups` records them. A key needs a `read` row if a reader looks it up only
under a condition, or if TRL's reader would take it for an argument of TRL.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from xpc.grammar.package_data import read_table
from xpc.grammar.record import field, fields, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from xpc.compiler.importing.draft import Draft
    from xpc.compiler.importing.text.entries import Entry

FATES = ("setting", "renamed", "read", "irrelevant", "comment", "refused", "flag")
"""The columns of which a row needs at least one."""


class MalformedTable(Exception):
    """Raised for a key table with an unknown column, a value of the wrong type, or a row that does not say what a key
    becomes.
    """


@record
class Key:
    """A row of a key table; an empty column does not apply to the key.

    `setting` is the path of a setting with the same meaning and unit; `renamed` is the key's name in TRL, or in a file
    that the table names; `read` lists the settings that a reader writes from the key. `irrelevant` is the reason why
    the key changes nothing, `comment` the reason why the spec keeps it as a comment, and `refused` the reason why it is
    an error unless it is off (`help` says what to write instead). `usual` are the values that a bundle has anyway:
    these values are irrelevant, and all others are refused. `needs` is the key, or the `key: value`, without which no
    tool reads this key. `values` translates the key's values, and a `flag` is an option without a value.
    """

    setting: str = ""
    renamed: str = ""
    read: str = ""
    irrelevant: str = ""
    comment: str = ""
    refused: str = ""
    help: str = ""
    needs: str = ""
    usual: tuple[object, ...] | None = None
    values: Mapping[str, str] = field(factory=dict)
    flag: bool = False


TYPES = {"usual": list, "values": dict, "flag": bool}
"""Columns whose values are not texts."""


class KeyTable(Mapping[str, Key]):
    """The rows of a key table, in the order of its file."""

    def __init__(self, rows: Mapping[str, Key]) -> None:
        self.rows = rows

    def __getitem__(self, name: str) -> Key:
        return self.rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> dict[str, str]:
        """The keys that have a column, with the column's text. For `irrelevant` and `refused`, keys with `usual` values
        are omitted.
        """
        return {
            key: getattr(row, name)
            for key, row in self.rows.items()
            if getattr(row, name) and (name not in ("irrelevant", "refused") or row.usual is None)
        }

    def block(self, name: str) -> KeyTable:
        """The rows named `name.KEY`, by KEY: the keys inside the mapping `name` of a file."""
        head = f"{name}."
        return KeyTable({key.removeprefix(head): row for key, row in self.rows.items() if key.startswith(head)})

    def note_irrelevant(self, draft: Draft, entries: Mapping[str, Entry]) -> None:
        """Note each key that changes nothing; for a mapping, each key inside it."""
        for key, why in self.column("irrelevant").items():
            if key in entries:
                for one in entries[key].mapping.values() or [entries[key]]:
                    draft.note(one, why)

    def apply_usual(self, draft: Draft, entries: Mapping[str, Entry]) -> None:
        """For each key with `usual` values, note such a value as irrelevant, and report any other value."""
        for key, row in self.rows.items():
            entry = entries.get(key) if row.usual is not None else None
            if entry is not None and (entry.empty or is_usual(row, entry)):
                draft.note(entry, row.irrelevant)
            elif entry is not None and row.refused and has_needed(entries, row.needs):
                draft.error(entry, row.refused, row.help)

    def note_unneeded(self, draft: Draft, entries: Mapping[str, Entry]) -> None:
        """Note that a key is irrelevant if no tool reads it in this file, because a key that it needs is not on."""
        for key, needs in self.column("needs").items():
            if key in entries and not has_needed(entries, needs):
                draft.note(entries[key], f"nothing reads it without `{needs}`")


def is_usual(row: Key, entry: Entry) -> bool:
    """Whether a value is one that a bundle has anyway. On command lines, numbers and truth values are texts."""
    from xpc.compiler.importing.text.entries import boolean, number

    usual = row.usual or ()
    if not isinstance(entry.value, str):
        return entry.value in usual
    return any(
        one == (boolean(entry) if isinstance(one, bool) else entry.value if isinstance(one, str) else number(entry))
        for one in usual
    )


def has_needed(entries: Mapping[str, Entry], needs: str) -> bool:
    """Whether a file has what a row needs: a key that is on, or a `key: value`. True if the row needs nothing."""
    key, colon, value = needs.partition(": ")
    if not key:
        return True
    return key in entries and (str(entries[key].value).lower() == value if colon else not entries[key].off)


@cache
def load(name: str) -> KeyTable:
    """Load the key table of a file of this folder, such as `axolotl/keys.toml`. Raises MalformedTable."""
    return table(read_table(__file__, name), name)


def table(rows: Mapping[str, object], name: str) -> KeyTable:
    """Make a key table from the plain rows of its file. Raises MalformedTable, which names the file and the row."""
    return KeyTable({key: _row(one, f"{name}: `{key}`") for key, one in rows.items()})


def _row(row: object, place: str) -> Key:
    if not isinstance(row, dict):
        raise MalformedTable(f"{place} is not a table of columns")
    columns = fields(Key)
    for column, value in row.items():
        if column not in columns:
            raise MalformedTable(f"{place} has no such column as `{column}`: the columns are {', '.join(columns)}")
        kind = TYPES.get(column, str)
        if not isinstance(value, kind):
            raise MalformedTable(f"{place}: `{column}` takes a {kind.__name__}, not {value!r}")
    if not any(row.get(column) for column in FATES):
        raise MalformedTable(f"{place} has no fate: it takes one of {', '.join(FATES)}")
    if "usual" in row and not row.get("irrelevant"):
        raise MalformedTable(f"{place}: `usual` values need a reason why they are `irrelevant`")
    return Key(**{**row, **({"usual": tuple(row["usual"])} if "usual" in row else {})})
