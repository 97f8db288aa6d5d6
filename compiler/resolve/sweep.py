"""Read a `sweep` block. The result is a grid: lists of values, and zips of lists. For each value, the grid has the
settings that the value changes.

The grid is the product of all lists and zips. An element of a list is read as if it were the setting's value outside of
a sweep, and findings point at the element. This module is imported only for a spec with a sweep.
"""

from __future__ import annotations

from hashlib import sha256

from xpc.compiler.language import schema
from xpc.compiler.language.codes import Problems
from xpc.compiler.language.convert import convert
from xpc.compiler.language.expand.clauses import Clauses
from xpc.compiler.language.items import Item, Reporter
from xpc.compiler.language.kinds import BLOCK, FLAG
from xpc.compiler.language.load import MergedSpec
from xpc.compiler.language.typed import plain, show
from xpc.compiler.language.values import InvalidValue
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.record import entity, evolve, field
from xpc.grammar.source import Source, Span
from xpc.grammar.tree import Call, Clause, List, Name, Ref, Setting, String, Value

MOST = 10_000
"""Maximum number of members of a sweep."""
SHOWN = 40
"""The name of a member shows at most this many characters of a value."""
HEADER = {"epochs": "train.epochs", "steps": "train.steps"}
"""Settings of the `train` line. In a sweep, they have short names: `epochs` is `train.epochs`."""
PLAIN = ("int", "tokens", "real", "reals", "steps_or_share", "real_or_share", "every", "rows_or_share", "share",
         "duration", "flag", "choice")  # fmt: skip
"""Kinds of settings whose values are normalized, so that equal values such as `0.10` and `1e-1` have the same text."""
OWN = {
    "save": "delete the line: each member has a folder of its own below `save`",
    "track.name": "delete the line: the tracker gets each member's name",
    "target": "write one spec for each stack; with `extends` the specs share all other settings",
    "launch": "delete the line: all members are launched in the same way",
    "data": "write one spec for each dataset; with `extends` the specs share all other settings",
    "eval.data": "write a list of sets outside of the sweep: each run evaluates on all of them",
    "extra": "write one spec for each value; with `extends` the specs share all other settings",
}
"""Maps each setting or clause that a sweep cannot vary, such as `track.name` and `launch`, to the help of the error."""
VALUES = ("values", "value", "c", "choice", "choices", "list", "grid", "categorical", "one_of")
"""Functions by which other tools list values: `choice(1, 2)` is `[1, 2]`. Functions such as `uniform`, which draw
random values, are not among them.
"""
BATCHES = "a sweep contains lines such as `lr = [1e-6, 2e-6]`, and `zip { }` blocks of such lines"


@entity
class Pick:
    """One value of a list, or one value from each list of a zip: the settings that it changes (`items`), and its text
    in a member's name (`shown`).
    """

    shown: tuple[tuple[str, str], ...]
    items: dict[str, Item] = field(factory=dict)
    labels: tuple[Label, ...] = ()
    model: Ref | String | None = None

    def holds(self, location: Label) -> bool:
        """Whether `location` is inside one of the values that this run of the sweep takes from a list of the spec."""
        return any(
            one.source is location.source
            and one.span.start <= location.span.start
            and location.span.end <= one.span.end
            for one in self.labels
        )


@entity
class Grid:
    """The grid of a sweep. `groups` are its lists and zips. A member of the sweep has one element (a `Pick`) of each
    group. `locations` maps each swept setting to the position of its name in the block.
    """

    source: Source
    label: Label
    groups: list[list[Pick]] = field(factory=list)
    locations: dict[str, Label] = field(factory=dict)
    problems: Problems = field(factory=Problems)

    @property
    def size(self) -> int:
        """The number of members of the grid."""
        out = 1
        for group in self.groups:
            out *= len(group)
        return out


def read(loaded: MergedSpec) -> Grid:
    """Read the grid of a spec's sweep. Wrong values are reported and left out."""
    return _Reader(loaded).run()


class _Reader(Reporter):
    def __init__(self, loaded: MergedSpec) -> None:
        assert loaded.sweep is not None
        self.loaded, self.swept = loaded, loaded.sweep
        self.out = Grid(self.swept.file.source, self.swept.label)
        super().__init__(self.out.source, self.out.problems)

    def run(self) -> Grid:
        if not self.swept.body:
            self.problem("XP880", "the sweep varies nothing", self.swept.label.span, help=BATCHES)
        for node in self.swept.body:
            if isinstance(node, Setting):
                found = self.axis(node)
                self.group([] if found is None else [found])
            elif self.is_zip(node):
                self.zip(node)
            else:
                self.no_list(node)
        self.turn_on()
        if self.out.size > MOST:
            count = " x ".join(str(len(group)) for group in self.out.groups)
            self.problem(
                "XP883", f"the sweep has {self.out.size:,} members", self.swept.label.span,
                f"{count}, {MOST:,} at most", "take values out, or put lists that go together into `zip { }`",
            )  # fmt: skip
        return self.out

    def turn_on(self) -> None:
        """Turn on the flag whose setting is swept: `lora.rank = [8, 16]` turns on `lora`. If the spec or the sweep sets
        the flag itself, nothing is changed.
        """
        stated = {*self.loaded.items, *self.out.locations}
        for pick in (pick for group in self.out.groups for pick in group):
            for path, item in list(pick.items.items()):
                parent = path.rpartition(".")[0]
                while parent:
                    row = schema.BY_PATH.get(parent)
                    among = schema.ADAPTERS if parent in schema.ADAPTERS else (parent,)
                    if row is not None and row.kind is FLAG and not stated & set(among):
                        pick.items.setdefault(parent, Item(parent, None, item.label))
                    parent = parent.rpartition(".")[0]

    # -- axes -------------------------------------------------------------------------------------------------------

    def is_zip(self, node: Clause | Value) -> bool:
        head = node.head if isinstance(node, Clause) else node
        return (isinstance(head, Call) and head.name.text == "zip") or (isinstance(head, Ref) and head.name == "zip")

    def zip(self, node: Clause | Value) -> None:
        """Read a zip, which pairs lists: `gbs = [128, 256]` and `micro = [16, 8]` give two combinations, not four."""
        head = node.head if isinstance(node, Clause) else node
        body = [*(head.args if isinstance(head, Call) else ()), *(node.body if isinstance(node, Clause) else ())]
        axes = []
        for one in body:
            if isinstance(one, Setting):
                found = self.axis(one)
                if found is not None:
                    axes.append((one, found))
            else:
                self.problem("XP880", f"`{self.typed(one.span)}` is not a list of values", one.span,
                             help="a zip contains lines such as `gbs = [128, 256]`")  # fmt: skip
        if not body:
            self.problem(
                "XP880", "the zip varies nothing", head.span, help="a zip contains lines such as `gbs = [128, 256]`"
            )
        lengths = {len(found) for _, found in axes}
        if len(lengths) > 1:
            (first, longer), (other, shorter) = axes[0], next(each for each in axes if len(each[1]) != len(axes[0][1]))
            self.problem(
                "XP881",
                f"the lists of a zip need the same length, and these have {len(longer)} and {_values(len(shorter))}",
                other.value.span,
                _values(len(shorter)),
                f"give `{other.name.text}` {_values(len(longer))}, as `{first.name.text}` has",
                related=(self.label(first.value.span, _values(len(longer))),),
            )
            return
        self.group([found for _, found in axes])

    def group(self, axes: list[list[Pick | None]]) -> None:
        """Add one list, or the lists of one zip, to the grid. A repeated value is reported. None stands for an illegal
        value, and is skipped.
        """
        seen: dict[tuple[tuple[str, str], ...], Pick] = {}
        for row in zip(*axes, strict=True):
            parts = [one for one in row if one is not None]
            if len(parts) < len(row):
                continue
            pick = Pick(
                tuple(pair for one in parts for pair in one.shown),
                {path: item for one in parts for path, item in one.items.items()},
                tuple(label for one in parts for label in one.labels),
                next((one.model for one in parts if one.model is not None), None),
            )
            first = seen.setdefault(pick.shown, pick)
            if first is not pick:
                what = ", ".join(f"{path.rpartition('.')[2]}={shown}" for path, shown in pick.shown)
                self.problem(
                    "XP884", f"`{what}` is written twice", pick.labels[0].span, "counted once",
                    "delete one of the two", related=(first.labels[0],),
                )  # fmt: skip
        if seen:
            self.out.groups.append(list(seen.values()))

    def no_list(self, node: Clause | Value) -> None:
        """Report a line of a sweep that is not a list of values. If the line is a block that contains lists, such as
        `lora { rank = [8, 16] }`, the help shows each list with the setting's path: `lora.rank = [8, 16]`.
        """
        head = node.head if isinstance(node, Clause) else node
        name = head.name.text if isinstance(head, Call) else head.name if isinstance(head, Ref) else ""
        if name == "extra":
            self.problem("XP882", "a sweep cannot vary `extra`", head.span, help=OWN["extra"])
            return
        inside = [*(node.body if isinstance(node, Clause) else ()), *(head.args if isinstance(head, Call) else ())]
        lists = [
            f"{name}.{one.name.text} = {self.typed(one.value.span)}"
            for one in inside
            if isinstance(one, Setting) and isinstance(one.value, List) and f"{name}.{one.name.text}" in schema.BY_PATH
        ]
        from xpc.compiler.suggest.lines.lists import axis_in_words  # imported here, because only a wrong sweep needs it

        lists = lists or axis_in_words(self.typed(node.span))
        help = f"write {' and '.join(f'`{one}`' for one in lists)}" if lists else BATCHES
        edit = lists[0] if len(lists) == len(inside) == 1 else None
        self.problem("XP880", f"`{name or self.typed(node.span)}` is not a list of values", node.span, "", help, edit)

    def axis(self, node: Setting) -> list[Pick | None] | None:
        """Read one line of a sweep, such as `lr = [1e-6, 2e-6]`. Returns a `Pick` for each value of the list, None for
        a wrong value. Returns None if the line is not a list of values for a setting.
        """
        path = self.path(node.name)
        if path is None:
            return None
        name = self.label(node.name.span)
        first = self.out.locations.setdefault(path, name)
        if first is not name:
            self.again(f"`{node.name.text}` is swept twice", node.name.span, first)
            return None
        if not isinstance(node.value, List):
            called = node.value if isinstance(node.value, Call) else None
            # the function draws values at random, such as `uniform(1e-6, 1e-4)`
            drawn = called is not None and called.name.text not in VALUES
            typed = f"[{', '.join(self.typed(one.span) for one in (called.args if called else (node.value,)))}]"
            lacks = drawn or ".." in typed  # a range: `1e-5..1e-4`
            help = "each value in a list: a sweep has neither ranges nor random values" if lacks else f"`{typed}`"
            self.problem("XP880", f"`{node.name.text}` takes a list in a sweep", node.value.span, "",
                         f"write {help}", None if lacks else typed)  # fmt: skip
            return None
        if not node.value.items:
            from xpc.compiler.suggest.legal import example  # imported here, because only a wrong sweep needs it

            row = schema.BY_PATH.get(path)
            form = f"[{'qwen2.5-3b' if row is None else example(row)}]"
            self.problem("XP880", f"`{node.name.text}` has no values", node.value.span, "", f"write `{form}`", form)
            return None
        if path in self.loaded.over or (path in HEADER.values() and self.loaded.over & set(HEADER.values())):
            return None  # ignore the list, because a spec that extends this one states the setting
        either = tuple(HEADER.values()) if path in HEADER.values() else (path,)
        next_to = next((self.loaded.stated[one] for one in either if one in self.loaded.stated), None)
        if next_to is not None:
            self.problem(
                "XP885",
                f"`{node.name.text}` is set both outside and inside the sweep",
                node.name.span,
                "the members use these values",
                f"delete the `{node.name.text}` outside of the sweep",
                related=(evolve(next_to.label, text="not this"),),
            )
        return [self.pick(path, one) for one in node.value.items]

    # -- names ------------------------------------------------------------------------------------------------------

    def path(self, name: Name) -> str | None:
        text = name.text
        path = HEADER.get(text) or (text if text in schema.BY_PATH else schema.outer_names().get(text, text))
        for refused in (path, path.partition(".")[0]):
            if refused in OWN and (refused == path or refused in ("launch", "extra")):
                self.problem("XP882", f"a sweep cannot vary `{text}`", name.span, help=OWN[refused])
                return None
        row = schema.BY_PATH.get(path)
        if path == "model" or (row is not None and row.kind is not BLOCK):
            return path
        if row is not None or text in schema.CLAUSES:
            inner = next((one.path for one in schema.children(text)), None)
            self.problem("XP880", f"`{text}` is a clause, not a setting", name.span,
                         help=f"name the setting: `{inner} = [...]`" if inner else BATCHES)  # fmt: skip
            return None
        self.unknown(name)
        return None

    def unknown(self, name: Name) -> None:
        from xpc.compiler.suggest.extra_form import names  # imported only here, because only a misspelt sweep needs it
        from xpc.compiler.suggest.meaning import SAME, meaning
        from xpc.compiler.suggest.no_equivalent import advice

        rows = [row.path for row in schema.TABLE if row.name == name.text]
        if name.text in schema.SOURCE_SETTINGS and not rows:
            self.problem("XP101", f"a sweep cannot vary `{name.text}`, a setting of a data source", name.span,
                         help=OWN["data"])  # fmt: skip
            return
        if len(rows) > 1:
            listed = ", ".join(f"`{path}`" for path in rows[:-1]) + f" or `{rows[-1]}`"
            message = f"`{name.text}` is a setting of several clauses"
            self.problem("XP101", message, name.span, help=f"write {listed}")
            return
        guess = meaning(name.text, None, valued=True) if not rows else None
        if not rows and (guess is None or guess.likeness < SAME) and name.text in names():
            message = f"a sweep cannot vary `{name.text}`, which only `extra` passes on"
            self.problem("XP882", message, name.span, help=OWN["extra"])
            return
        near = rows[0] if rows else None if guess is None or guess.path not in schema.BY_PATH else guess.path
        if near is not None and schema.outer_names().get(near.rpartition(".")[2]) == near:
            near = near.rpartition(".")[2]
        # the advice for `batch_size`, for example, is `gbs` or `micro`
        advised = None if rows else advice(f"{name.text} number", "")
        if advised or near is None or schema.BY_PATH.get(near, schema.BY_PATH["seed"]).kind is BLOCK:
            message = f"`{name.text[:60]}` is not a setting of the language"
            self.problem("XP101", message, name.span, help=advised or "`xpc list settings` prints them all")
            return
        message = f"`{name.text[:60]}` is a setting of a block" if rows else (
            f"`{name.text[:60]}` is not a setting of the language")  # fmt: skip
        self.problem("XP101", message, name.span, f"did you mean `{near}`?", f"write `{near}`", near)

    # -- values -----------------------------------------------------------------------------------------------------

    def pick(self, path: str, node: Value) -> Pick | None:
        """Read one value of a list, such as the `1e-6` of `lr = [1e-6, 2e-6]`, as if it were the setting's only value.
        Return the settings of a member with this value, or None if the value is wrong.
        """
        label = self.label(node.span)
        if path == "model":
            if isinstance(node, Ref | String):
                return Pick(((path, _safe(self.out.source.slice(node.span))),), {}, (label,), node)
            self.problem("XP104", f"`{self.typed(node.span)}` is not a model", node.span,
                         help="write a registered name, `org/name` or a quoted folder")  # fmt: skip
            return None
        row = schema.BY_PATH[path]
        clauses = Clauses(self.swept.file, self.loaded.advisor, {})
        if row.head:
            clauses.head(path, [node], node.span)
        else:
            clauses.add(path, node, node.span)
        found = clauses.out
        problems = list(found.problems)
        shown = []
        for one, item in found.items.items():
            value = convert(schema.BY_PATH[one], item)
            if isinstance(value, InvalidValue):
                from xpc.compiler.suggest.legal import answer  # imported only here, because only a wrong sweep needs it

                problems.append(answer(value))
            shown.append((one, self.shown(schema.BY_PATH[one], item, value)))
        self.out.problems.extend(fitted(one, path, node.span) for one in problems)
        if problems or not found.items:
            return None
        # `zero3(offload=cpu)` is one value of `strategy`, but it sets two settings: `strategy` and `strategy.offload`
        text = "+".join([shown[0][1], *(f"{one.rpartition('.')[2]}-{value}" for one, value in shown[1:])])
        return Pick(((path, text),), found.items, (label,))

    def shown(self, row: schema.Setting, item: Item, value: object) -> str:
        """The text of a value in a member's name. Numbers are normalized; other values are as the user wrote them."""
        if row.kind.name in PLAIN and not isinstance(value, Diagnostic) and value is not None:
            return _safe(plain(value).lower() if row.kind.name == "flag" else show(row, value))
        return _safe("true" if item.node is None else self.out.source.slice(item.node.span))


def _values(count: int) -> str:
    return "1 value" if count == 1 else f"{count} values"


def _safe(text: str) -> str:
    """Change a text so that it can be a part of a file name. If this replaces or cuts characters, append a digest of
    the original text.
    """
    short = text.strip('[]" ').replace(", ", "+").replace(" x ", "x").replace("%", "pct")
    short = short if "--" in short else short.replace("/", "--")  # `a/b` becomes `a--b`, as in the hub's cache
    if short and len(short) <= SHOWN and all(c.isascii() and (c.isalnum() or c in "-_.+") for c in short):
        return short
    cut = "".join(c if c.isascii() and (c.isalnum() or c in "-_.+") else "-" for c in short)[:SHOWN].strip("-")
    return f"{cut or 'value'}-{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"


def fitted(found: Diagnostic, path: str, span: Span) -> Diagnostic:
    """Adapt a finding to one value of a list: an edit that would replace the complete setting is changed to replace
    only this value.
    """
    if found.primary is None or found.primary.span != span or not found.edits:
        return found
    text = found.edits[0].text
    for name in (path, path.rpartition(".")[2]):
        rest = text.removeprefix(name).lstrip()
        if rest != text and rest.startswith("="):
            text = rest[1:].lstrip()
    if path in ("train.epochs", "train.steps"):  # this setting belongs to the `train` line, as in `for 3 epochs`
        text = text.removeprefix("for ").removesuffix(f" {path.partition('.')[2]}")
    whole = len(found.edits) == 1 and found.edits[0].span == span
    if not whole or not text or ("=" in text and "(" not in text):
        return evolve(found, edits=())
    help = found.help
    if help is not None and help.startswith("write `") and help.count("`") == 2:
        help = f"write `{text}`"
    return evolve(found, edits=(Edit(span, text),), help=help)
