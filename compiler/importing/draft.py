"""The draft of a spec that an import builds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from xpc.compiler.importing.outcomes import ERROR, EXTRA, IRRELEVANT, MAPPED, RESERVED, Decision, KeyOutcome, Message
from xpc.compiler.importing.text.entries import SECRET, Entry, as_json, boolean, integer, number, plain, shown, text
from xpc.compiler.language import extras, kinds
from xpc.compiler.language.kinds import Amount
from xpc.compiler.language.schema import BY_PATH, Setting
from xpc.compiler.language.typed import plain as plain_text
from xpc.compiler.language.typed import show
from xpc.compiler.stacks import Stack
from xpc.grammar.read import hidden_characters
from xpc.grammar.record import field, mutable, record

ASSUMED = ("optimizer", "strategy", "precision", "train.epochs", "memory.checkpointing")
"""Settings that an imported spec states even if they have their default value, because the compiler would otherwise
choose a value itself or add a note.
"""

NULL = "null: the tool's own default"
SUGGESTED = 40
"""The largest number of unknown keys for which a spelling is suggested. A file with more unknown keys probably belongs
to a tool that xpc does not support.
"""


@record
class SettingText:
    """The value of a setting, written as in a spec. Further fields are the imported key from which it comes (None for a
    default of the tool), and the reason.
    """

    text: str
    entry: Entry | None = None
    why: str = ""


@record
class Source:
    """A dataset in the spec: a reference or a path in quotes (`ref`), its columns, the number or share of rows to draw
    (`take`), and the number of rows to read from the beginning (`limit`).

    `format`, `context` and `chat` are set only if they differ between the datasets of the spec. `location` is the
    imported key that states the row format. `share` is the dataset's share of a mixture, from 0 to 1.
    """

    ref: str
    columns: tuple[str, ...] = ()
    take: Amount | None = None
    limit: int | None = None
    format: str = ""
    context: str | None = None
    chat: bool = False
    location: Entry | None = None
    share: float | None = None


@mutable
class Draft:
    """The draft of a spec that an import builds.

    - `files`: the files to write next to the spec, by name
    - `later`: comments for keys that no setting can express yet
    - `differences`: comments about differences between the imported tool and a run of the spec, by the tool's name for
      the feature
    - `sweep`: the values of the settings that a script's loop changes
    - `trl`: the version of TRL whose defaults the spec states; `fitting`: all versions for which the imported file may
      be written; `pinned`: the location of a requirement that excludes other versions; `dated`: comments about defaults
      that differ among the `fitting` versions
    - `transformers`: whether the import reads TrainingArguments, which has other defaults than TRL's classes
    - `trl_rewards`: whether names such as `accuracy_reward` are TRL's reward functions; False if the repository's own
      functions have these names
    - `undecided`: comments about lines that `--partial` could not convert; `decisions`: what the user must decide about
      them (`partial.py`)
    - `read`: the keys of further files that the imported file names
    - `rewards`: the file of `--rewards`; `reward_names`: the functions in it that score completions
    - `text`: the complete spec, if it comes from a bundle
    - `seen`: the key names that were looked up, whether the file has them or not
    """

    stack: Stack
    method: str = "sft"
    stem: str = "import"
    model: str = ""
    settings: dict[str, SettingText] = field(factory=dict)
    sources: list[Source] = field(factory=list)
    extra: dict[str, dict[str, str]] = field(factory=dict)
    files: dict[str, bytes] = field(factory=dict)
    later: dict[str, str] = field(factory=dict)
    differences: dict[str, str] = field(factory=dict)
    sweep: dict[str, list[str]] = field(factory=dict)
    trl: str = ""
    transformers: bool = False
    fitting: tuple[str, ...] = ()
    pinned: str = ""
    dated: dict[str, str] = field(factory=dict)
    trl_rewards: bool = True
    undecided: list[str] = field(factory=list)
    decisions: list[Decision] = field(factory=list)
    text: str = ""
    read: list[Mapping[str, Entry]] = field(factory=list)
    rewards: str = ""
    reward_names: tuple[str, ...] = ()
    outcomes: dict[tuple[str, str], KeyOutcome] = field(factory=dict)
    defaults: list[KeyOutcome] = field(factory=list)
    messages: list[Message] = field(factory=list)
    unknown: int = 0
    seen: set[str] = field(factory=set)

    # -- how keys are handled -----------------------------------------------------------------------------------------

    def mark(self, entry: Entry | None, outcome: str, to: str = "", why: str = "") -> None:
        """Record how a key is handled (`outcome`); nothing happens if `entry` is None. If the key already has a record,
        the two are merged, and an error remains an error.
        """
        if entry is None:
            return
        name = (entry.file, entry.key)
        old = self.outcomes.get(name)
        if old is not None and old.outcome != IRRELEVANT:
            outcome = old.outcome if old.outcome == ERROR else outcome
            to = "; ".join(dict.fromkeys(one for one in (old.to, to) if one))
            why = "; ".join(dict.fromkeys(one for one in (old.why, why) if one))
        self.outcomes[name] = KeyOutcome(entry.key, shown(entry), entry.file, entry.line, outcome, to, why)

    def handled(self, entry: Entry) -> bool:
        """Whether the draft already has a record of how a key is handled."""
        return (entry.file, entry.key) in self.outcomes

    def note(self, entry: Entry | None, why: str) -> None:
        """Record that a key has no effect, and why."""
        self.mark(entry, IRRELEVANT, why=why)

    def on(self, entry: Entry | None) -> Entry | None:
        """Return `entry` if it is on. For a value such as `false` or null, record that the key has no effect, and
        return None.
        """
        if entry is None or not entry.off:
            return entry
        self.note(entry, "it is off")
        return None

    def error(self, entry: Entry | None, why: str, help: str = "", own: bool = False, similar: bool = False) -> None:
        """Report an error for a key that a spec cannot express. `Message` explains `own` and `similar`."""
        if entry is None:
            return
        self.mark(entry, ERROR, why=why)
        text = f"`{entry.key}`: {why}" if entry.value is None else f"`{entry.key}: {shown(entry)}`: {why}"
        self.messages.append(Message("error", entry.location, text, help, entry, why, own, similar))

    def reserve(self, entry: Entry, typed: str, why: str) -> None:
        """Keep a key in a comment of the spec with the text `typed`, such as `key: value`. A warning says that a run of
        the spec ignores the key.
        """
        if typed not in self.later:
            self.later[typed] = why
            self.warn(entry, f"{why}; the spec keeps `{typed}` in a comment")
        self.mark(entry, RESERVED, f"# {typed}", why)

    def differs(self, name: str, why: str, entry: Entry | None = None) -> None:
        """Record a difference between the imported tool and a run of the spec, as a comment of the spec and as a
        warning.

        `name` is the argument or key of the tool. `why` says what the tool does, and what a run of the spec does
        instead.
        """
        before = self.differences.get(name, "")
        if why not in before:
            self.differences[name] = f"{before}; {why}" if before else why
            self.warn(entry, why if entry is not None else f"`{name}`: {why}")

    def drop(self, name: str, why: str, entry: Entry | None) -> None:
        """Keep the name of a key in a comment of the spec, because a run of the spec differs from what the key
        states.
        """
        self.mark(entry, RESERVED, f"# {name}")
        self.differs(name, why, entry)

    def keep(self, entries: Mapping[str, Entry], kept: Mapping[str, str]) -> None:
        """Keep each key in `kept` in a comment of the spec, together with the reason that `kept` gives. A key that is
        off has no effect, and is recorded as such.
        """
        for key, why in kept.items():
            entry = entries.get(key)
            if entry is not None and entry.off:
                self.note(entry, "it is empty or off")
            elif entry is not None:
                value = entry.typed or text(entry) or as_json(entry)
                self.reserve(entry, f"{key}: {SECRET if shown(entry) == SECRET else value}", why)

    def warn(self, entry: Entry | None, why: str, help: str = "") -> None:
        """Add a warning for the user. A warning does not prevent the spec from being written."""
        location = "" if entry is None else entry.location
        message_text = why if entry is None else f"`{entry.key}`: {why}"
        message = Message("warning", location, message_text, help)
        if message not in self.messages:
            self.messages.append(message)

    @property
    def wrong(self) -> bool:
        """Whether the import has an error, so that no spec is written."""
        return any(one.severity == "error" for one in self.messages)

    # -- settings --------------------------------------------------------------------------------------------------

    def has(self, path: str) -> bool:
        """Whether the draft has a value for the setting `path`."""
        return path in self.settings

    def value(self, path: str) -> str:
        """The value of a setting, as a spec states it; "" if the setting is not set."""
        return self.settings[path].text if path in self.settings else ""

    def take(self, path: str) -> Entry | None:
        """Remove a setting. Returns the key that set it, if there is one."""
        old = self.settings.pop(path, None)
        return None if old is None else old.entry

    def overrule(self, path: str, why: str) -> None:
        """Remove a setting, and record that the key that set it has no effect."""
        entry = self.take(path)
        if entry is not None:
            self.outcomes.pop((entry.file, entry.key), None)
            self.note(entry, why)

    def put(self, path: str, value: object, entry: Entry | None = None, why: str = "", weak: bool = False) -> None:
        """Set a setting. If another key has already set it to a different value, this is an error. With `weak`, it is
        only a warning, and the earlier value is kept.
        """
        row = BY_PATH[path]
        if row.kind is kinds.PATH and isinstance(value, str) and value.startswith("~/"):
            value = value.lstrip("~/")
            if entry is not None:
                self.warn(entry, f"a spec cannot contain `~`: it has the path `{value}`, relative to the spec")
        written = SettingText(in_text(row, value), entry, why)
        if entry is not None and hidden_characters(written.text):
            self.error(entry, "it contains an invisible character, which a spec does not allow")
            return
        old = self.settings.get(path)
        if old is not None and old.text != written.text:
            if entry is None:
                return
            if old.entry is None and old.why.startswith("`--"):
                self.note(entry, f"{old.why}: {path} = {old.text}")
            elif old.entry is None:
                self.settings[path] = written
                self.mark(entry, MAPPED, f"{path} = {written.text}", why)
            elif weak:
                self.note(entry, f"{old.entry.location} overrules this key: {path} = {old.text}")
                self.warn(entry, f"{old.entry.location} overrules {shown(entry)}: {path} = {old.text}")
            else:
                self.error(entry, f"{old.entry.location} already sets {path} = {old.text}", "keep one of the two")
            return
        if old is None or entry is not None:
            self.settings[path] = written
        if entry is None:
            self.defaults.append(KeyOutcome("", "", "", 0, MAPPED, f"{path} = {written.text}", why))
        else:
            self.mark(entry, MAPPED, f"{path} = {written.text}", why)

    def raw(self, path: str, typed: str, entry: Entry | None) -> None:
        """Set a setting to a value that is already written as in a spec. The value is not checked."""
        self.settings[path] = SettingText(typed, entry)
        self.mark(entry, MAPPED, f"{path} = {typed}")

    def default(self, path: str, value: object, why: str) -> None:
        """Set a setting to the imported tool's default, unless the setting has a value or xpc has the same default."""
        row = BY_PATH[path]
        if path in self.settings or (row.methods and self.method not in row.methods):
            return
        if row.default is None or row.default != value or path in ASSUMED:
            self.put(path, value, None, why)

    def setting(self, path: str, entry: Entry | None, weak: bool = False) -> None:
        """Set a setting from a key with the same meaning and unit, such as `learning_rate`, if the file has the key."""
        if entry is None or entry.empty:
            self.note(entry, NULL)
        elif (value := typed(path, entry)) is None:
            self.error(entry, f"the value must be {BY_PATH[path].kind.phrase}")
        else:
            self.put(path, value, entry, weak=weak)

    def write_rows(self, rows: Iterable[object]) -> str:
        """Write rows to a JSONL file next to the spec. Returns the file's name, such as `import.rows.jsonl`."""
        data = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows).encode()
        number, name = 1, f"{self.stem}.rows.jsonl"
        while self.files.get(name, data) != data:
            number += 1
            name = f"{self.stem}.rows-{number}.jsonl"
        self.files[name] = data
        return name

    # -- extra -----------------------------------------------------------------------------------------------------

    def keep_in_extra(self, library: str, name: str, entry: Entry, default: object = None) -> bool:
        """Keep a key under `extra`, for example as `extra trl { torch_compile = true }`.

        Returns False if the target stack has no argument of this name, or if a setting decides the argument. If the
        value equals `default`, the key is not kept but recorded as one without effect, because every bundle states this
        value.
        """
        if name not in extras.legal_names(self.stack, library, self.method):
            return False
        value = plain(entry)
        if value is None:
            self.note(entry, NULL)
            return True
        value = self._as_typed(library, name, entry, value)
        if default is not None and value == default:
            self.note(entry, f"a bundle for {self.stack.name} has this value anyway")
            return True
        if isinstance(value, dict):
            self.error(entry, "it is a mapping, which `extra` cannot contain")
        elif (wrong := extras.wrong_value(self.stack, library, name, value, self.method)) is not None:
            self.error(entry, f"on {self.stack.name}, the value must be {wrong}")
        else:
            self.extra.setdefault(library, {})[name] = plain_text(value)
            self.mark(entry, EXTRA, f"extra {library} {{ {name} = {plain_text(value)} }}")
        return True

    def _as_typed(self, library: str, name: str, entry: Entry, value: object) -> object:
        """Convert a string from a command line to the type that the target's argument accepts: a string, a bool or a
        number.
        """
        if not isinstance(value, str):
            return value
        switch = boolean(entry) if value.lower() in ("true", "false") else None
        for one in (value, switch, integer(entry), number(entry)):
            if one is not None and extras.wrong_value(self.stack, library, name, one, self.method) is None:
                return one
        return value

    # -- keys that no importer handled ---------------------------------------------------------------------------------

    def settle(
        self, entries: Mapping[str, Entry], known: Iterable[str] = (), refused: Mapping[str, str] | None = None
    ) -> None:
        """Handle all keys that no importer has handled."""
        names = tuple(known)
        begun: set[tuple[str, str]] = set()
        for file, key in self.outcomes:
            begun.update((file, key[:at]) for at, letter in enumerate(key) if letter in ".[")
        for entry in entries.values():
            self._settle(entry, names, refused or {}, begun)

    def _settle(self, entry: Entry, known: tuple[str, ...], refused: Mapping[str, str],
                begun: set[tuple[str, str]]) -> None:  # fmt: skip
        """Report a key that no importer has handled: as unknown, refused or without effect. If an importer has handled
        some keys of a mapping, report the mapping's remaining keys. `begun` has the (file, key) of each mapping of
        which an importer has handled a key.
        """
        if self.handled(entry):
            return
        inside = [*entry.mapping.values(), *(entry.value if isinstance(entry.value, list) else [])]
        inner_outcome = any(self.handled(one) for one in inside)
        if inner_outcome or (entry.file, entry.key) in begun:
            for one in inside:
                self._settle(one, known, refused, begun)
            return
        last = entry.key.rpartition(".")[2]
        if last in refused:
            self.error(self.on(entry), refused[last])
        elif entry.value is None:
            self.note(entry, NULL if last in known else "null: no value")
        else:
            # imported only here, because only an unknown key needs it
            from xpc.compiler.suggest.likeness import typo_of

            near = typo_of(last, known) if self.unknown < SUGGESTED and last not in known else None
            self.unknown += 1
            why = "the imported tool has no such key in the version that xpc supports"
            why = "no setting of a spec corresponds to it" if last in known else why
            help = f"did you mean `{near}`?" if near else "leave it out if it does not change the training"
            self.error(entry, why, help, own=not near and last not in known, similar=bool(near))


def in_text(row: Setting, value: object) -> str:
    """The text of a setting's value in a spec. Small numbers are written like learning rates: `2e-4` for 0.0002, and
    `1e-5` for Python's `1e-05`.
    """
    if not isinstance(value, float) or not 0 < abs(value) < 1e-3:
        return show(row, value)
    from decimal import Decimal

    return format(Decimal(repr(value)), "e")


def typed(path: str, entry: Entry) -> object | None:
    """The value of a key, converted to the type of the setting `path`; None if this is not possible."""
    kind = BY_PATH[path].kind
    if kind in (kinds.INT, kinds.TOKENS, kinds.DURATION):
        return integer(entry)
    if kind in (kinds.REAL, kinds.SHARE):
        value = number(entry)
        return value if kind is kinds.REAL or value is None else Amount("share", value)
    return boolean(entry) if kind is kinds.FLAG else text(entry)
