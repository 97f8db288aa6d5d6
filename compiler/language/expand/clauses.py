"""Turn the clauses of a file into items.

The language has three shorthands. `with a k=v` is the same as a line `a k=v` of the body. A choice may stand without
the name of its setting: `zero2` is `strategy zero2`. `name(k=v)` is `name { k = v }`. An item consists of the path of a
setting, the syntax node of its value (None for a flag without a value), and its location.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xpc.compiler import registry
from xpc.compiler.language import schema
from xpc.compiler.language.advisor import GetAdvisor, UnknownName
from xpc.compiler.language.items import Collector, Item, SweepBlock
from xpc.compiler.language.kinds import BLOCK, CHOICES, FLAG
from xpc.grammar.diagnostic import Edit
from xpc.grammar.record import evolve
from xpc.grammar.source import Span
from xpc.grammar.tree import Call, Clause, Count, File, List, Name, Number, Ref, Setting, String, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    BlockReader = Callable[["Clauses", Name, list["Operand | Clause"]], None]

Operand = Setting | Value
SWITCHED = ("off", "no", "none", "false", "disabled", "yes", "true", "enabled")
"""Words that users write after a flag to switch it on or off, as in `packing off`. The language does not have them."""


def _is_repository(value: Value) -> bool:
    """Whether a value of `hub` names a repository. It may also be a switch such as `off`, or a setting of `hub`."""
    others = ("true", "false", "yes", "no", "on", "off", "none", "private", "public")
    named = isinstance(value, Ref) and value.name not in (*others, *schema.BY_PATH["save.hub.strategy"].choices)
    return isinstance(value, String) or named


class Clauses(Collector):
    """Reads the clauses of one file. `blocks` are the functions for blocks such as `data`, which contain more than
    settings. `advisor` suggests corrections of mistakes. `header` is true while the class reads the settings after
    `with`.
    """

    def __init__(self, file: File, advisor: GetAdvisor, blocks: Mapping[str, BlockReader]) -> None:
        super().__init__(file)
        self.advisor, self.blocks = advisor, blocks
        self.outer, self.choices = schema.outer_names(), schema.bare_choices()
        self.header = False
        self.unknowns = 0
        self.guess: str | None = None

    def statement(self, node: Setting | Clause, clause: str | None) -> None:
        """Read one line inside of the clause `clause`, or outside of all clauses if `clause` is None."""
        if isinstance(node, Setting):
            self.setting(node, clause)
            return
        head, *operands = self.without_units((node.head, *node.operands)) or (None,)
        if head is not node.head:
            return  # `without_units` has already reported an error here
        body: list[Operand | Clause] = [*operands, *(node.block.statements if node.block else ())]
        if isinstance(head, Call):
            body = [*head.args, *body]
            self.named(head.name, body, clause, node.span)
        elif isinstance(head, Ref) and head.is_name:
            self.named(Name(head.span, head.name), body, clause, node.span)
        else:
            what = "a text" if isinstance(head, String) else self.in_backticks(head.span)
            message = f"{what} is written where a setting or clause belongs"
            self.problem("XP101", message, head.span, help="sources of data go into a block: `data NAME { ... }`")

    def without_units(self, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        """Report and remove words that are not needed on a line: a unit after a number (`every=10 steps`), and a switch
        after a flag (`packing off`). Returns the remaining items.
        """
        kept: list[Operand] = []
        for node in operands:
            last = kept[-1] if kept else None
            counted = isinstance(last, Setting) and isinstance(last.value, Number)
            switch = isinstance(last, Ref) and isinstance(node, Ref) and node.name in SWITCHED
            if last is not None and isinstance(node, Ref) and (counted or switch):
                # imported here, because it is needed only if a word follows a setting
                from xpc.compiler.language.expand.missing_equals import followed_by

                found = followed_by(last, node, self.file.source.text)
                if found is not None:
                    kept = kept if counted else kept[:-1]
                    self.problem("XP104", found.message, found.span, help=found.help, edit=found.form)
                    continue
            kept.append(node)
        return tuple(kept)

    def holds_rows(self, name: str) -> bool:
        """Whether a name after `eval` is a `data` block, a registered dataset or a split, and not a setting."""
        if f"eval.{name}" in schema.BY_PATH:
            return False
        # imported here, because few specs have such a name
        from xpc.compiler.language.expand.missing_equals import SPLITS, block_names

        return name in (*block_names(self.file), *SPLITS) or registry.find_dataset(name) is not None

    def operand(self, node: Operand, clause: str | None) -> None:
        """Read one item that stands after `with`, in a call, or on the line of a clause."""
        if isinstance(node, Setting):
            self.setting(node, clause)
        elif isinstance(node, Call):
            self.named(node.name, list(node.args), clause, node.span)
        elif isinstance(node, Ref) and node.is_name and not (clause == "eval" and self.holds_rows(node.name)):
            self.named(Name(node.span, node.name), [], clause, node.span)
        elif isinstance(node, Count) and clause is None:
            self.add("hardware", node, node.span)
        elif not (isinstance(node, Number) and self.is_reported(node)):
            # imported here, because only a wrong spec needs it
            from xpc.compiler.language.expand.missing_equals import block_names, stray_value

            rows = clause == "eval" and isinstance(node, Ref | String | List)
            message, help, edit = stray_value(
                clause or "", self.typed(node.span), rows, self.out.items, block_names(self.file, "data")
            )
            self.problem("XP104", message, node.span, help=help, edit=edit)

    def valued(self, node: Value, other: Value, form: str) -> None:
        """Report two items that were meant to be one setting, such as `lora 16` or `8 h100-80gb`. `form` is the legal
        text for the help.
        """
        span = Span(node.span.start, other.span.end)
        message = f"{self.in_backticks(span)} is not a legal form"
        self.problem("XP104", message, span, help=f"write `{form}`", edit=form)

    def without_equals(self, name: str, value: Value, span: Span) -> None:
        """Report a value that follows the name of its setting without `=`, such as `lr 1e-5`."""
        path = self.outer.get(name, "")
        help, form = self.advisor().with_equals(path, f"{name}=", Item("", value, self.label(value.span)))
        self.problem("XP104", f"`{name}` takes its value after `=`", span, help=help, edit=form)

    def with_equals(self, clause: str, body: list[Operand | Clause]) -> list[Operand | Clause]:
        """Report and remove settings of a clause that lack a `=`, such as `every 100`. Returns the remaining items."""
        # imported here, because only a line that may lack a `=` needs it
        from xpc.compiler.language.expand.missing_equals import unmarked_values

        kept, found = unmarked_values(clause, body, self.file.source.text)
        for one in found:
            message = f"`{one.form.partition('=')[0]}` takes its value after `=`"
            self.problem("XP104", message, one.span, help=f"write `{one.form}`", edit=one.form)
        return kept

    def setting(self, node: Setting, clause: str | None) -> None:
        """Read a setting, `name = value`."""
        name = node.name
        path = self.find(name, clause, node.value)
        if path is None:
            return
        row = schema.BY_PATH.get(path)
        if row is None or row.kind is BLOCK:
            help = f"write `{name.text} {{ ... }}`, with its settings inside"
            if name.text in ("data", "model"):  # suggest as for another tool's name, such as `dataset`
                unknown = {"data": "dataset", "model": "model_name"}[name.text]
                typed = self.typed(node.value.span)
                renamed = UnknownName(unknown, clause, node.value, typed, self.label(name.span), self.header)
                help = self.advisor().unknown_name(renamed, 0).help
            self.problem("XP104", f"`{name.text}` is a clause, not a setting", name.span, help=help)
        elif path == "track" and isinstance(node.value, Call):
            self.head("track", [node.value], node.span)
        elif path == "save.hub" and _is_repository(node.value):  # `hub = me/model` means `hub(name=me/model)`
            self.add(path, None, node.span)
            self.out.items.setdefault("save.hub.name", Item("save.hub.name", node.value, self.label(node.span)))
        else:
            self.add(path, node.value, node.span)

    def find(self, name: Name, clause: str | None, value: Value | None = None) -> str | None:
        """The path of the setting that has the name `name` in a clause, or outside of all clauses if `clause` is None.
        An unknown name is reported, and the result is None.
        """
        text = name.text
        if clause is None:
            if text in schema.CLAUSES and text not in ("train",):
                return text
            if text in self.outer:
                return self.outer[text]
        elif f"{clause}.{text}" in schema.BY_PATH:
            return f"{clause}.{text}"
        self.guess = self.unknown(name, clause, value)
        return None

    def is_known(self, name: str) -> bool:
        """Whether a name without a value may stand after `with`: the name of a setting, a choice or a clause."""
        return name in self.outer or name in self.choices or name in schema.CLAUSES

    def unknown(self, name: Name, clause: str | None, value: Value | None = None, equals: str = "") -> str | None:
        """Report an unknown name. Return the correct name if the mistake is only in the name, and not in its value.
        `equals` is `=` if the spec lacks this sign before the value.
        """
        typed = None if value is None else self.typed(value.span)
        unknown = UnknownName(name.text, clause, value, typed, self.label(name.span), self.header)
        found = self.advisor().unknown_name(unknown, self.unknowns)
        if equals and found.edit is not None and not found.replaces_value:
            form = f"{found.edit}{equals}{typed}"
            found = evolve(found, edit=form, help=found.help.replace(found.edit, form), replaces_value=True)
        self.unknowns += 1
        # an unknown name in a clause may be the setting that the clause needs
        self.out.intended.update(found.intended or ([f"{clause}.{name.text}"] if clause else []))
        replaced = Span(name.span.start, value.span.end) if found.replaces_value and value is not None else name.span
        cut = found.replaces_value and value is not None and value.span.end - value.span.start > len(typed or "")
        block = self.source.text[name.span.end :].lstrip(" ")[:1] == "{" and "=" in (found.edit or "")
        edits = () if found.edit is None or cut or block else (Edit(replaced, found.edit),)
        label = self.label(name.span, found.text)
        self.problems.report(found.code, found.message, label, help=found.help, edits=edits)
        return None if found.replaces_value else found.edit

    def named(self, name: Name, body: list[Operand | Clause], clause: str | None, span: Span) -> None:
        """Read a name and the following items that belong to it: the contents of a clause, the settings of a flag, or
        further settings of a choice's clause (`offload=cpu` in `zero2 offload=cpu`).
        """
        text = name.text
        if clause is None and text in self.blocks:
            self.blocks[text](self, name, body)
            return
        if clause is None and text in schema.CLAUSES and text != "train":
            self.head(text, body, name.span)
            return
        choice = self.choices.get(text)
        if choice is not None and (clause is None or choice.startswith(clause + ".")):
            self.add(choice, Ref(name.span, text), name.span)
            self.inside(body, schema.BY_PATH[choice].clause)
            return
        if clause is None and (registry.find_gpu(text) is not None or text == "cpu"):
            self.add("hardware", Ref(name.span, text), name.span)
            self.inside(body, "hardware")
            return
        value = body[0] if len(body) == 1 and not isinstance(body[0], Setting | Clause) else None
        path = self.find(name, clause, value)
        if path is None:
            if clause is None and self.guess in schema.CLAUSES and self.guess not in ("data", "extra", "train"):
                self.inside([one for one in body if isinstance(one, Setting | Clause)], self.guess)
            return
        row = schema.BY_PATH[path]
        # the spec has a repository without `=`: `hub "me/x"`
        if path == "save.hub" and len(body) == 1 and isinstance(body[0], String):
            self.without_equals(text, body[0], Span(name.span.start, body[0].span.end))
        elif row.kind is FLAG:
            self.add(path, None, name.span)
            self.inside(body, path)
        elif row.alone and not body:
            self.add(path, Ref(name.span, row.alone), name.span)
        elif len(body) == 1 and not isinstance(body[0], Setting | Clause):
            self.without_equals(text, body[0], Span(name.span.start, body[0].span.end))
        else:
            self.missing_value(row, name, body, span)

    def missing_value(self, row: schema.Setting, name: Name, body: list[Operand | Clause], span: Span) -> None:
        """Report a setting or a clause that has no value, or a block in place of a value."""
        message, location, help, edit = self.advisor().missing_value(row, name, body, span, self.file.source)
        self.problem("XP104", message, location, f"expected {row.kind.phrase}", help=help, edit=edit)

    def inside(self, body: list[Operand | Clause], clause: str) -> None:
        """Read the settings of a clause."""
        for node in body:
            if isinstance(node, Clause):
                self.statement(node, clause)
            else:
                self.operand(node, clause)

    def head(self, clause: str, body: list[Operand | Clause], span: Span) -> None:
        """Read a clause. First comes its own value, such as `"out"` in `save "out" keep=2`, and then come its
        settings.
        """
        home = "lora" if clause in schema.ADAPTERS else clause
        if any(isinstance(one, Ref) and f"{home}.{one.name}" in schema.BY_PATH for one in body[:-1]):
            body = self.with_equals(home, body)
        row = schema.BY_PATH.get(clause)
        if row is not None and (row.kind is FLAG or row.kind is BLOCK):
            self.switch(row, body, home, span)
            return
        heads, rest = _values_and_settings(row, body)
        if row is not None and heads:
            rest = self.own_value(row, heads, rest)
        elif row is not None and not rest:
            self.missing_value(row, Name(span, clause), [], span)
        self.inside(rest, clause)

    def switch(self, row: schema.Setting, body: list[Operand | Clause], home: str, span: Span) -> None:
        """Read a clause whose value is `true`, `false` or missing (`lora false`, `lora { rank = 16 }`), or the `sweep`
        block.
        """
        first = body[0] if body else None
        on_or_off = isinstance(first, Ref) and first.is_name and first.name in ("true", "false")
        self.add(row.path, first if on_or_off and isinstance(first, Ref) else None, span)
        body = body[1:] if on_or_off else body
        if row.kind is BLOCK:
            self.out.sweep = SweepBlock(self.file, self.label(span), tuple(body))
        else:
            self.inside(body, home)

    def own_value(
        self, row: schema.Setting, heads: list[Value], rest: list[Operand | Clause]
    ) -> list[Operand | Clause]:
        """Read a clause's own value, such as `"out"` in `save "out" keep=2`. `heads` are the items after the clause's
        name that may be its value, and `rest` the items after them. Returns the settings of the clause: the items in
        `heads` that turn out to be settings, and then the items in `rest`.
        """
        if row.path == "track" and len(heads) > 1 and isinstance(heads[-1], String):
            typed = self.typed(heads[-1].span)
            help = f"write `project={typed}`, or `name={typed}` for the name of the run"
            self.problem("XP104", f"`{typed}` is a value without a setting", heads[-1].span, help=help)
            heads = heads[:-1]
        many = row.path == "track" and len(heads) > 1
        written = Span(heads[0].span.start, heads[-1].span.end)
        joined = None if many else self.one_word(row, heads, written)
        if joined is not None:
            heads = [joined]
        elif row.kind is not CHOICES and (
            isinstance(heads[0], String) or (isinstance(heads[0], Ref) and heads[0].name in row.choices)
        ):  # in `save "out" push_to_hub`, the second word is a setting, and not a second value of `save`
            rest = [one for one in heads[1:] if isinstance(one, Ref)] + rest
            heads = [heads[0], *(one for one in heads[1:] if not isinstance(one, Ref))]
        if row.path == "hardware" and list(map(type, heads)) == [Ref, Number] and len(self.typed(heads[1].span)) < 4:
            heads.reverse()  # the number follows the GPU, as in `h100-80gb 8`, and is no part of its name: `rtx 4090`
        # if there are several counts, take one with an `x`, as in `4 nodes x 8 x h100-80gb`
        first = next((one for one in heads if isinstance(one, Count)), heads[0])
        counted = self.count_without_x(heads, first, written) if row.path == "hardware" else None
        if counted is None and not many:
            self.second(row.path, heads)
        self.add(row.path, List(written, tuple(heads)) if many else counted or first, written)
        return rest

    def one_word(self, row: schema.Setting, heads: list[Value], written: Span) -> Ref | None:
        """If a choice is written as several words, such as `adamw 8bit`, report the mistake and return the joined
        choice. None for any other value.
        """
        joined = "".join(self.typed(each.span) for each in heads)
        joined = next((one for one in row.choices if one.replace("_", "") == joined), joined)
        if len(heads) > 1 and row.choices and joined not in row.choices:  # the words are a choice, as in `zero stage 2`
            joined = self.advisor().joined_value(row.path, [self.typed(each.span) for each in heads]) or joined
        if len(heads) == 1 or joined not in row.choices:
            return None
        message = f"{self.in_backticks(written)} is one word"
        self.problem("XP106", message, written, help=f"write `{joined}`", edit=joined)
        return Ref(written, joined)

    def count_without_x(self, heads: list[Value], first: Value, written: Span) -> Count | None:
        """Report a missing `x` between a number and a GPU, as in `hardware 8 h100-80gb`, and return the joined value.
        None for any other value.
        """
        gpu = heads[1] if len(heads) == 2 else None
        if not isinstance(first, Number) or not isinstance(gpu, Ref) or self.is_reported(first):
            return None
        help = f"write `{first.text} x {gpu.name}`"
        if gpu.name in ("node", "nodes"):
            help = f"write `nodes {first.text}` on a line of its own, and the GPUs of one node here"
        self.problem("XP104", "a count and a GPU have an `x` between them", written, help=help)
        return Count(written, first, gpu)

    def second(self, clause: str, heads: list[Value]) -> None:
        """Report a second value of a clause. If one of the two values already has a syntax error, nothing more is
        reported.
        """
        if len(heads) < 2 or any(self.is_reported(each) for each in heads):
            return
        joined = self.advisor().joined_value(clause, [self.typed(one.span) for one in heads])
        if joined is not None:
            span = Span(heads[0].span.start, heads[-1].span.end)
            message = "`hardware` takes a count, `x` and a GPU" if " " in joined else f"`{joined}` is one word"
            self.problem("XP104", message, span, help=f"write `{clause} {joined}`", edit=joined)
            return
        from xpc.compiler.language.expand.missing_equals import implied_setting

        second = self.typed(heads[1].span)
        form = implied_setting(clause, second).replace(" = ", "=") if len(heads) == 2 else ""
        help = f"write `{form}`" if form else f"keep `{self.typed(heads[0].span)}`"
        edit = form if second != "steps" else None  # `every=100` is only an example for `steps`
        self.problem(
            "XP104", f"`{clause}` takes one value", heads[1].span, "a second one", help=help, edit=edit or None
        )


def _values_and_settings(
    row: schema.Setting | None, body: list[Operand | Clause]
) -> tuple[list[Value], list[Operand | Clause]]:
    """Divide the items after a clause's name into two groups: the clause's own values, such as `"out"` in `save "out"
    keep=2`, and its settings.
    """
    if row is None:
        return [], body
    heads: list[Value] = []
    rest: list[Operand | Clause] = []
    for node in body:
        is_child = isinstance(node, Ref) and f"{row.path}.{node.name}" in schema.BY_PATH
        if isinstance(node, Setting | Clause) or is_child:
            rest.append(node)
        elif isinstance(node, Call):
            second = bool(heads) and row.kind is not CHOICES and node.name.text not in row.choices
            # this word is a setting, perhaps misspelt: `save "out" hubb(private)`
            if f"{row.path}.{node.name.text}" in schema.BY_PATH or second:
                rest.append(node)
            else:
                heads.append(Ref(node.name.span, node.name.text))
                rest.extend(node.args)
        else:
            heads.append(node)
    return heads, rest
