"""The spec that an import builds, and the fate of every key that it was built from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from xpc.compiler.importing.text.entries import SECRET, Entry, as_json, boolean, integer, number, plain, shown, text
from xpc.compiler.language import extras, kinds
from xpc.compiler.language.kinds import Amount
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.language.typed import plain as plain_text
from xpc.compiler.language.typed import show
from xpc.compiler.stacks import Stack
from xpc.grammar.nearest import nearest
from xpc.grammar.read import hidden_characters
from xpc.grammar.record import field, mutable, record

MAPPED, EXTRA, IRRELEVANT, RESERVED, ERROR = "mapped", "extra", "irrelevant", "reserved", "error"
"""A key is written as a setting; kept under `extra`; of no effect here; kept in a comment, because this version does
not compile it; or cannot be said."""

ASSUMED = ("optimizer", "strategy", "precision", "train.epochs", "memory.checkpointing")
"""Settings whose default is said all the same: a bundle chooses otherwise, or with a note."""

EXPONENT = re.compile(r"(?<=\de)(-)0(?=\d)")
"""The nought that Python writes before an exponent of one figure."""
NULL = "null: the tool's own default"
SUGGESTED = 40
"""Unknown keys that a nearest name is looked for; a file with more is of no tool that is known here."""
UNREADABLE_EXTRA = "it is a mapping, which `extra` cannot write"


@record
class Fate:
    """What became of one key."""

    key: str
    value: str
    file: str
    line: int
    fate: str
    to: str = ""
    why: str = ""


@record
class Message:
    """A warning or an error, with the key's place where it has one."""

    severity: str
    place: str
    text: str
    help: str = ""


@record
class Written:
    """A setting as it is typed, with the key that it came from (None: a default of the tool) and the reason."""

    text: str
    entry: Entry | None = None
    why: str = ""


@record
class Source:
    """A source of data: a reference or a quoted path as typed, with its columns, share and most rows.

    `format`, `context` and `chat` are its own where the sources differ; `place` is the key that says what its rows are.
    """

    ref: str
    columns: tuple[str, ...] = ()
    take: Amount | None = None
    limit: int | None = None
    format: str = ""
    context: str | None = None
    chat: bool = False
    place: Entry | None = None


@mutable
class Draft:
    """A spec in the making. `files` go beside it, by name; `later` are comments: what no setting can say yet;
    `differences` are comments, too: what the source's tool does and a run of the spec does not, by the tool's name of
    it; `read` are the files that a source named; `text` is the whole spec where a bundle holds it; `seen` are the keys
    that a reader looked up, whether the source has them or not."""

    stack: Stack
    method: str = "sft"
    stem: str = "import"
    model: str = ""
    settings: dict[str, Written] = field(factory=dict)
    sources: list[Source] = field(factory=list)
    extra: dict[str, dict[str, str]] = field(factory=dict)
    files: dict[str, bytes] = field(factory=dict)
    later: dict[str, str] = field(factory=dict)
    differences: dict[str, str] = field(factory=dict)
    text: str = ""
    read: list[Mapping[str, Entry]] = field(factory=list)
    fates: dict[tuple[str, str], Fate] = field(factory=dict)
    defaults: list[Fate] = field(factory=list)
    messages: list[Message] = field(factory=list)
    unknown: int = 0
    seen: set[str] = field(factory=set)

    # -- what is said of a key -------------------------------------------------------------------------------------

    def mark(self, entry: Entry | None, fate: str, to: str = "", why: str = "") -> None:
        """Record the fate of a key, if the source has it. A second fate is added to the first; an error remains."""
        if entry is None:
            return
        name = (entry.file, entry.key)
        old = self.fates.get(name)
        if old is not None and old.fate != IRRELEVANT:
            fate = old.fate if old.fate == ERROR else fate
            to = "; ".join(dict.fromkeys(one for one in (old.to, to) if one))
            why = "; ".join(dict.fromkeys(one for one in (old.why, why) if one))
        self.fates[name] = Fate(entry.key, shown(entry), entry.file, entry.line, fate, to, why)

    def note(self, entry: Entry | None, why: str) -> None:
        """The key changes nothing here, for a reason."""
        self.mark(entry, IRRELEVANT, why=why)

    def on(self, entry: Entry | None) -> Entry | None:
        """The key if it is on; else None, with a note that it is off."""
        if entry is None or not entry.off:
            return entry
        self.note(entry, "it is off")
        return None

    def error(self, entry: Entry | None, why: str, help: str = "") -> None:
        """The key, if the source has it, cannot be written in a spec."""
        if entry is None:
            return
        self.mark(entry, ERROR, why=why)
        self.messages.append(Message("error", entry.place, f"`{entry.key}: {shown(entry)}`: {why}", help))

    def reserve(self, entry: Entry, typed: str, why: str) -> None:
        """Keep a key in a comment of the spec, with a warning: the run does not do what it says."""
        if typed not in self.later:
            self.later[typed] = why
            self.warn(entry, f"{why}; the spec keeps `{typed}` in a comment")
        self.mark(entry, RESERVED, f"# {typed}", why)

    def differs(self, name: str, why: str, entry: Entry | None = None) -> None:
        """The source's tool does otherwise than a run of the spec: a comment of the spec, and a warning.

        `name` is the tool's own for it, an argument or a key; `why` says what is done there and what here.
        """
        if name not in self.differences:
            self.differences[name] = why
            self.warn(entry, why if entry is not None else f"`{name}`: {why}")

    def keep(self, entries: Mapping[str, Entry], kept: Mapping[str, str]) -> None:
        """Keep keys in comments of the spec, each with its reason; one that is off says nothing."""
        for key, why in kept.items():
            entry = entries.get(key)
            if entry is not None and entry.off:
                self.note(entry, "it says nothing")
            elif entry is not None:
                value = entry.typed or text(entry) or as_json(entry)
                self.reserve(entry, f"{key}: {SECRET if shown(entry) == SECRET else value}", why)

    def warn(self, entry: Entry | None, why: str, help: str = "") -> None:
        """Something that a user should know although the spec is written."""
        place = "" if entry is None else entry.place
        message_text = why if entry is None else f"`{entry.key}`: {why}"
        message = Message("warning", place, message_text, help)
        if message not in self.messages:
            self.messages.append(message)

    @property
    def wrong(self) -> bool:
        """Whether an error stands."""
        return any(one.severity == "error" for one in self.messages)

    # -- settings --------------------------------------------------------------------------------------------------

    def has(self, path: str) -> bool:
        """Whether a setting is written."""
        return path in self.settings

    def put(self, path: str, value: object, entry: Entry | None = None, why: str = "", weak: bool = False) -> None:
        """Write a setting. Another value that stands there is an error, or decides where this one is `weak`."""
        row = BY_PATH[path]
        if row.pending:
            if entry is not None:
                home = row.path.rpartition(".")[0]
                typed = f"{row.name} = {show(row, value)}"
                self.reserve(entry, f"{home} {{ {typed} }}" if home else typed, row.pending)
            return
        typed = EXPONENT.sub(r"\1", show(row, value)) if row.kind is kinds.REAL else show(row, value)
        written = Written(typed, entry, why)
        if entry is not None and hidden_characters(written.text):
            self.error(entry, "it holds a character that cannot be seen, which a spec may not")
            return
        old = self.settings.get(path)
        if old is not None and old.text != written.text:
            if entry is None or old.entry is None:
                if entry is not None:
                    self.settings[path] = written
                    self.mark(entry, MAPPED, f"{path} = {written.text}", why)
                return
            if weak:
                self.note(entry, f"{old.entry.place} says {path} = {old.text}, and decides")
                self.warn(entry, f"{shown(entry)} differs from {old.entry.place}, which decides: {path} = {old.text}")
                return
            self.error(entry, f"{old.entry.place} says {path} = {old.text}", "keep one of the two")
            return
        if old is None or entry is not None:
            self.settings[path] = written
        if entry is None:
            self.defaults.append(Fate("", "", "", 0, MAPPED, f"{path} = {written.text}", why))
        else:
            self.mark(entry, MAPPED, f"{path} = {written.text}", why)

    def raw(self, path: str, typed: str, entry: Entry | None) -> None:
        """Write a setting as it is typed."""
        self.settings[path] = Written(typed, entry)
        if entry is not None:
            self.mark(entry, MAPPED, f"{path} = {typed}")

    def default(self, path: str, value: object, why: str) -> None:
        """Write a value that the tool would use and the source leaves out, unless the setting is written, or the
        language has the same default."""
        row = BY_PATH[path]
        if path in self.settings or (row.methods and self.method not in row.methods):
            return
        if row.default is None or row.default != value or path in ASSUMED:
            self.put(path, value, None, why)

    def setting(self, path: str, entry: Entry | None, weak: bool = False) -> None:
        """Write a setting from a key of the same meaning and unit, if the source has it."""
        if entry is None:
            return
        if entry.empty:
            self.note(entry, NULL)
            return
        value = typed(path, entry)
        if value is None:
            self.error(entry, f"it takes {BY_PATH[path].kind.phrase}")
            return
        self.put(path, value, entry, weak=weak)

    # -- the escape ------------------------------------------------------------------------------------------------

    def escape(self, escape: str, name: str, entry: Entry, default: object = None) -> bool:
        """Keep a key under `extra`, where the target has the name and no setting decides it; False where not.

        A value that the bundle states anyway is noted as that.
        """
        if name not in extras.legal_names(self.stack, escape, self.method):
            return False
        value = plain(entry)
        if value is None:
            self.note(entry, NULL)
            return True
        value = self._as_typed(escape, name, entry, value)
        if default is not None and value == default:
            self.note(entry, f"{self.stack.name} states the same")
            return True
        wrong = UNREADABLE_EXTRA if isinstance(value, dict) else None
        wrong = wrong or extras.wrong_value(self.stack, escape, name, value, self.method)
        if wrong is not None:
            self.error(entry, f"{self.stack.name} takes {wrong} for it")
            return True
        self.extra.setdefault(escape, {})[name] = plain_text(value)
        self.mark(entry, EXTRA, f"extra {escape} {{ {name} = {plain_text(value)} }}")
        return True

    def _as_typed(self, escape: str, name: str, entry: Entry, value: object) -> object:
        """A text of the command line as the number or truth value that the target takes."""
        if not isinstance(value, str):
            return value
        for one in (
            value,
            boolean(entry) if value.lower() in ("true", "false") else None,
            integer(entry),
            number(entry),
        ):
            if one is not None and extras.wrong_value(self.stack, escape, name, one, self.method) is None:
                return one
        return value

    # -- the end ---------------------------------------------------------------------------------------------------

    def settle(
        self, entries: Mapping[str, Entry], known: Iterable[str] = (), refused: Mapping[str, str] | None = None
    ) -> None:
        """Every key without a fate: of no effect where it is null, or off and refused, else an error."""
        names = tuple(known)
        begun: set[tuple[str, str]] = set()
        for file, key in self.fates:
            begun.update((file, key[:at]) for at, letter in enumerate(key) if letter in ".[")
        for entry in entries.values():
            self._settle(entry, names, refused or {}, begun)

    def _settle(self, entry: Entry, known: tuple[str, ...], refused: Mapping[str, str],
                begun: set[tuple[str, str]]) -> None:  # fmt: skip
        """`begun` are the keys that something inside of has a fate."""
        if (entry.file, entry.key) in self.fates:
            return
        inside = [*entry.mapping.values(), *(entry.value if isinstance(entry.value, list) else [])]
        inner_fate = any((one.file, one.key) in self.fates for one in inside)
        if inner_fate or (entry.file, entry.key) in begun:
            for one in inside:
                self._settle(one, known, refused, begun)
            return
        last = entry.key.rpartition(".")[2]
        if last in refused:
            if entry.off:
                self.note(entry, "it is off")
            else:
                self.error(entry, refused[last])
        elif entry.value is None:
            self.note(entry, NULL if last in known else "null: it says nothing")
        else:
            near = nearest(last, known) if self.unknown < SUGGESTED and last not in known else None
            self.unknown += 1
            why = "the tool knows no such key, or this version does not"
            why = "the spec has no place for it" if last in known else why
            self.error(entry, why, f"did you mean `{near}`?" if near else "leave it out if it has no effect")


def typed(path: str, entry: Entry) -> object | None:
    """The value of a key under a setting's kind, or None where it does not fit."""
    kind = BY_PATH[path].kind
    if kind in (kinds.INT, kinds.TOKENS, kinds.DURATION):
        return integer(entry)
    if kind is kinds.REAL:
        return number(entry)
    if kind is kinds.FLAG:
        return boolean(entry)
    if kind is kinds.SHARE:
        value = number(entry)
        return None if value is None else Amount("share", value)
    return text(entry)
