"""Read key tables: TOML files with the keys of another tool. A key has an entry if its name alone decides how the
import handles it. For example:

    cutoff_len = { renamed = "max_length" }
    plot_loss = { irrelevant = "metrics are written anyway" }
    badam_mode = { refused = "xpc has no such optimizer", needs = "use_badam" }

Keys with the same reason share a line of a table `[irrelevant]`, `[comment]` or `[refused]` at the end:

    [irrelevant]
    "only inference reads it" = ["max_new_tokens", "infer_backend"]

A key that an importer looks up needs no entry, because `Lookups` records it. Such a key needs an entry with `read` only
if it is looked up under a condition, or if the TRL importer would otherwise import it as an argument of TRL.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from xpc.grammar.package_data import read_table
from xpc.grammar.record import field, fields, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.importing.draft import Draft
    from xpc.compiler.importing.text.entries import Entry

GROUPED = ("irrelevant", "comment", "refused")
"""Names of the tables that map a reason to the keys that have it."""
OUTCOMES = ("setting", "renamed", "read", "irrelevant", "comment", "refused", "flag")
"""Columns of a key table that say how a key is handled; each row has at least one of them."""


class MalformedTable(Exception):
    """Raised for a key table that has an unknown column, a value of a wrong type, or a row that does not say how its
    key is handled.
    """


@record
class Key:
    """An entry of a key table; an empty field does not apply to the key.

    - `setting`: the path of a setting with the same meaning and unit
    - `renamed`: the key's name in TRL, or in a file that the table names
    - `read`: the settings that an importer's code sets from the key
    - `irrelevant`: why the key has no effect
    - `comment`: why the spec keeps the key as a comment
    - `refused`: why the key is an error unless it is off; `help` is what to write instead
    - `usual`: values that every bundle has anyway, so that they are irrelevant; all other values are refused
    - `needs`: another key, a `key: value`, or a `key: value or value`, without which the tool does not read this key
    - `values`: the translation of the key's values
    - `flag`: whether it is an option without a value
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
"""Maps each column of a key table whose values are not strings to the type of its values."""


class KeyTable(dict[str, Key]):
    """A table of keys: maps each key to its row, in the order of the table's file."""

    def column(self, name: str) -> dict[str, str]:
        """One column of the table: maps each key whose row has a value in the column `name`, such as `renamed`, to this
        value. For `irrelevant` and `refused`, rows with `usual` values are left out, because the key's value then
        decides whether the key is irrelevant or refused.
        """
        return {
            key: getattr(row, name)
            for key, row in self.items()
            if getattr(row, name) and (name not in ("irrelevant", "refused") or row.usual is None)
        }

    def block(self, name: str) -> KeyTable:
        """The rows of the keys inside the mapping `name`, as a table. In this table, the row of `fp16.loss_scale` has
        the key `loss_scale` if `name` is `fp16`.
        """
        head = f"{name}."
        return KeyTable({key.removeprefix(head): row for key, row in self.items() if key.startswith(head)})

    def note_irrelevant(self, draft: Draft, entries: Mapping[str, Entry]) -> None:
        """Record that each `irrelevant` key of the table has no effect, and why. If the key is a mapping, this is
        recorded for each key in it.
        """
        for key, why in self.column("irrelevant").items():
            if key in entries:
                for one in entries[key].mapping.values() or [entries[key]]:
                    draft.note(one, why)

    def apply_usual(self, draft: Draft, entries: Mapping[str, Entry]) -> None:
        """Handle the keys that have `usual` values: such a value is irrelevant, and any other value is an error."""
        for key, row in self.items():
            entry = entries.get(key) if row.usual is not None else None
            if entry is not None and (entry.empty or is_usual(row, entry)):
                draft.note(entry, row.irrelevant)
            elif entry is not None and row.refused and has_needed(entries, row.needs):
                draft.error(entry, row.refused, row.help)

    def note_unneeded(self, draft: Draft, entries: Mapping[str, Entry]) -> None:
        """Record that a key has no effect if it needs another key that is not on. For example, LoRA's rank has no
        effect without LoRA.
        """
        for key, needs in self.column("needs").items():
            if key in entries and not has_needed(entries, needs):
                draft.note(entries[key], f"it has no effect without `{needs}`")


def is_usual(row: Key, entry: Entry) -> bool:
    """Whether a key has one of its `usual` values, which every bundle uses anyway. A string from a command line, such
    as "3" or "true", is compared as a number or a bool.
    """
    from xpc.compiler.importing.text.entries import boolean, number

    usual = row.usual or ()
    if not isinstance(entry.value, str):
        return entry.value in usual
    return any(
        one == (boolean(entry) if isinstance(one, bool) else entry.value if isinstance(one, str) else number(entry))
        for one in usual
    )


def has_needed(entries: Mapping[str, Entry], needs: str) -> bool:
    """Whether a file meets the condition `needs`. A key in `needs` must be in the file and not be off; `key: value`
    must be in the file with this value, or with one of several: `stage: dpo or kto`. An empty `needs` is always met.
    """
    key, colon, value = needs.partition(": ")
    if not key:
        return True
    if key not in entries:
        return False
    return str(entries[key].value).lower() in value.split(" or ") if colon else not entries[key].off


@cache
def load(name: str) -> KeyTable:
    """Load a key table, such as `axolotl/keys.toml`. Raises MalformedTable."""
    return table(read_table(__file__, name), name)


def table(rows: Mapping[str, object], name: str) -> KeyTable:
    """Build a key table from the parsed TOML of its file. Raises MalformedTable, which names the file and the key."""
    own = {key: one for key, one in rows.items() if key not in GROUPED}
    for column in GROUPED:
        reasons = rows.get(column, {})
        for why, keys in reasons.items() if isinstance(reasons, dict) else ():
            own |= {key: {column: why} for key in keys}
    return KeyTable({key: _row(one, f"{name}: `{key}`") for key, one in own.items()})


def _row(row: object, location: str) -> Key:
    if not isinstance(row, dict):
        raise MalformedTable(f"{location} is not a table of columns")
    columns = fields(Key)
    for column, value in row.items():
        if column not in columns:
            raise MalformedTable(f"{location} has no such column as `{column}`: the columns are {', '.join(columns)}")
        kind = TYPES.get(column, str)
        if not isinstance(value, kind):
            raise MalformedTable(f"{location}: `{column}` takes a {kind.__name__}, not {value!r}")
    if not any(row.get(column) for column in OUTCOMES):
        raise MalformedTable(f"{location} does not say how the key is handled: it needs one of {', '.join(OUTCOMES)}")
    if "usual" in row and not row.get("irrelevant"):
        raise MalformedTable(f"{location} has `usual` and no `irrelevant`, which states why the value changes nothing")
    return Key(**{**row, **({"usual": tuple(row["usual"])} if "usual" in row else {})})
