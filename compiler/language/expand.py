"""Flatten a tree to items, so that every setting is one path with one value.

The language has three shorthands: `with a k=v` gives the same items as the body would, a bare choice sets its setting,
and `name(k=v)` is `name { k = v }`. An item is a path of the table of settings, the written node (None for a bare
flag), and its place.
"""

from __future__ import annotations

from xpc.compiler import registry
from xpc.compiler.language import schema
from xpc.compiler.language.advisor import Advisor, GetAdvisor, UnknownName
from xpc.compiler.language.expand_data import DataBlocks, Operand
from xpc.compiler.language.items import Item, Swept, Written
from xpc.compiler.language.kinds import BLOCK, CHOICES, FLAG
from xpc.grammar.diagnostic import Edit
from xpc.grammar.source import Span
from xpc.grammar.tree import Call, Clause, Count, File, List, Name, Number, Ref, Setting, String, Value

SWITCHED = ("off", "no", "none", "false", "disabled", "yes", "true", "enabled")
"""Words that switch a flag on or off."""


def _is_repository(value: Value) -> bool:
    """Whether a value of `hub` names a repository, and is not a yes or no."""
    switches = ("true", "false", "yes", "no", "on", "off", "none")
    return isinstance(value, String) or (isinstance(value, Ref) and value.name not in switches)


def expand(file: File, evaluated: frozenset[str] = frozenset(), advisor: GetAdvisor = Advisor) -> Written:
    """Flatten one file. Problems are collected in the result; bases are not read here.

    `evaluated` are the names of `data` blocks that are used only for evaluation. `advisor` gives suggestions if the
    file has mistakes.
    """
    return _Expander(file, evaluated, advisor).run()


class _Expander(DataBlocks):
    def __init__(self, file: File, evaluated: frozenset[str] = frozenset(), advisor: GetAdvisor = Advisor) -> None:
        super().__init__(file, evaluated, advisor)
        self.choices = schema.bare_choices()
        self.header = False
        self.unknowns = 0
        self.guess: str | None = None

    def run(self) -> Written:
        train = self.file.train
        if train is not None:
            if train.budget is not None:
                unit = train.budget.unit.text
                path = {
                    "epoch": "train.epochs",
                    "epochs": "train.epochs",
                    "step": "train.steps",
                    "steps": "train.steps",
                }
                if unit in path:
                    self.add(path[unit], train.budget.amount, train.budget.span)
                else:
                    self.problem(
                        "XP105",
                        f"a run lasts epochs or steps, not `{unit}`",
                        train.budget.unit.span,
                        help="write `for 3 epochs` or `for 1000 steps`",
                    )
            self.header = True
            self.options(train.options)
            self.header = False
        for statement in self.file.statements:
            self.statement(statement, None)
        return self.out

    # -- statements -----------------------------------------------------------------------------------------------

    def statement(self, node: Setting | Clause, clause: str | None) -> None:
        if isinstance(node, Setting):
            self.setting(node, clause)
            return
        head, *operands = self.without_units((node.head, *node.operands)) or (None,)
        if head is not node.head:
            return  # reported
        body: list[Operand | Clause] = [*operands, *(node.block.statements if node.block else ())]
        if isinstance(head, Call):
            body = [*head.args, *body]
            self.named(head.name, body, clause, node.span)
        elif isinstance(head, Ref) and head.is_name:
            self.named(Name(head.span, head.name), body, clause, node.span)
        else:
            what = "a text" if isinstance(head, String) else f"`{self.typed(head.span)}`"
            self.problem(
                "XP101",
                f"{what} is written where a setting or clause belongs",
                head.span,
                help="sources of data go into a block: `data NAME { ... }`",
            )

    def without_units(self, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        """The items of a line, without words after numbers (`every=10 steps`) and switches (`packing off`), which are
        reported and dropped.
        """
        kept: list[Operand] = []
        for node in operands:
            last = kept[-1] if kept else None
            counted = isinstance(last, Setting) and isinstance(last.value, Number)
            switch = isinstance(last, Ref) and isinstance(node, Ref) and node.name in SWITCHED
            if last is not None and isinstance(node, Ref) and (counted or switch):
                # imported only for a name that follows a setting
                from xpc.compiler.language.missing_equals import followed_by

                found = followed_by(last, node, self.file.source.text)
                if found is not None:
                    kept = kept if counted else kept[:-1]
                    self.problem("XP104", found.message, found.span, help=found.help, edit=found.form)
                    continue
            kept.append(node)
        return tuple(kept)

    def operand(self, node: Operand, clause: str | None) -> None:
        """Read an item of `with`, of a call, or of a clause's line."""
        if isinstance(node, Setting):
            self.setting(node, clause)
        elif isinstance(node, Call):
            self.named(node.name, list(node.args), clause, node.span)
        elif isinstance(node, Ref) and node.is_name and not (clause == "eval" and self.holds_rows(node.name)):
            self.named(Name(node.span, node.name), [], clause, node.span)
        elif isinstance(node, Count) and clause is None:
            self.add("hardware", node, node.span)
        elif clause == "eval" and isinstance(node, Ref | String | List):
            form = self.implied_setting(clause, node) or f"data = {self.typed(node.span)}"
            edit = form if len(form) < 60 else None
            message = f"`eval` has no value of its own: {'the rows are `data`' if form[0] == 'd' else 'write when'}"
            self.problem("XP104", message, node.span, help=f"write `eval {{ {form} }}`", edit=edit)
        elif not (isinstance(node, Number) and self.is_reported(node)):
            form = self.implied_setting(clause or "", node)
            help, message = f"write `{form or 'name=value'}`", f"`{self.typed(node.span)}` is a value without a setting"
            self.problem("XP104", message, node.span, help=help, edit=form or None)

    def implied_setting(self, clause: str, node: Value) -> str:
        from xpc.compiler.language.missing_equals import implied_setting  # imported only for a wrong spec

        return implied_setting(clause, self.typed(node.span))

    def options(self, options: tuple[Operand, ...]) -> None:
        """Read the items of `with`. A name is followed by its value and its settings, as on a line of the body: `with
        seed 7 track wandb name="x" gbs=64` is `seed 7`, `track wandb name="x"` and `gbs = 64`.
        """
        options, at = self.without_units(options), 0
        while at < len(options):
            node, at = options[at], at + 1
            if not (isinstance(node, Ref) and node.is_name):
                self.operand(node, None)
                continue
            row, first = schema.BY_PATH.get(node.name), at
            value = options[at] if at < len(options) else None
            if (
                isinstance(value, Number | String | Ref)
                and self.lacks_equals(node.name)
                and self.is_value_of(node.name, value)
            ):
                self.without_equals(node.name, value, Span(node.span.start, value.span.end))
                at += 1
                continue
            if row is not None and row.head and row.kind not in (FLAG, BLOCK):
                while at < len(options) and (at == first or row.kind is CHOICES) and self.is_head(row, options[at]):
                    at += 1
            elif node.name == "extra" and isinstance(value, Ref | Call):
                at += 1
            while at < len(options) and self.belongs_to(node.name, options[at]):
                at += 2 if self.is_unmarked(node.name, options[at : at + 2]) else 1
            body: list[Operand | Clause] = [*options[first:at]]
            if body:
                self.named(Name(node.span, node.name), body, None, node.span)
            else:
                self.operand(node, None)

    def belongs_to(self, name: str, node: Operand) -> bool:
        """Whether an item of `with` is a setting of the name before it, as on a line of the body. If the setting could
        also be one of the body, it is reported as ambiguous: `eval every=100 micro=8`.
        """
        if not isinstance(node, Setting | Ref | Call):
            return False
        inner = node.name if isinstance(node, Ref) else node.name.text
        if name == "extra":
            return isinstance(node, Setting) and inner not in self.outer
        if name == "sweep":
            return isinstance(node, Setting) and isinstance(node.value, List)
        choice = self.choices.get(name)
        home = schema.BY_PATH[choice].clause if choice else self.outer.get(name, name)
        path = f"{'lora' if home in schema.ADAPTERS else home}.{inner}"
        other = inner if inner in schema.CLAUSES and inner in schema.BY_PATH else self.outer.get(inner, path)
        if path not in schema.BY_PATH or (not isinstance(node, Setting) and inner in (*schema.CLAUSES, *self.choices)):
            return False
        if other != path and name in ("data", "eval"):
            typed = self.typed(node.span)
            message = f"`{inner}` after `{name}` may be its own setting, or `{other}`"
            self.problem("XP104", message, node.span, help=f"write `{name}({typed})`, or `{typed}` before `{name}`")
            return True
        return other == path

    def lacks_equals(self, name: str) -> bool:
        row = schema.BY_PATH.get(self.outer.get(name, ""))
        return row is not None and not row.head and row.kind not in (FLAG, BLOCK)

    def is_unmarked(self, clause: str, pair: tuple[Operand, ...]) -> bool:
        """Whether two items after a clause are a setting of it and the value, without `=`: `optimizer lr 1e-5`."""
        if len(pair) < 2 or not isinstance(pair[0], Ref) or isinstance(pair[1], Setting):
            return False
        row = schema.BY_PATH.get(f"{clause}.{pair[0].name}")
        return row is not None and self.lacks_equals(row.name) and self.is_value_of(row.name, pair[1])

    def is_value_of(self, name: str, value: Value) -> bool:
        """Whether an item after a setting's name can only be its value: `lr 1e-5`, `dtype bf16`."""
        choices = schema.BY_PATH[self.outer[name]].choices
        return isinstance(value, Number | String) or (isinstance(value, Ref) and value.name in choices)

    def without_equals(self, name: str, value: Value, span: Span) -> None:
        written = self.advisor().written_value(self.outer.get(name, ""), Item("", value, self.label(value.span)))
        form = f"{name}={written or self.typed(value.span)}"
        self.problem("XP104", f"`{name}` takes its value after `=`", span, help=f"write `{form}`", edit=form)

    def with_equals(self, clause: str, body: list[Operand | Clause]) -> list[Operand | Clause]:
        """The items of a clause, without `every 100` (a missing `=`), which is reported and dropped."""
        from xpc.compiler.language.missing_equals import unmarked_values  # few lines need it

        kept, found = unmarked_values(clause, body, self.file.source.text)
        for one in found:
            message = f"`{one.form.partition('=')[0]}` takes its value after `=`"
            self.problem("XP104", message, one.span, help=f"write `{one.form}`", edit=one.form)
        return kept

    def is_head(self, row: schema.Setting, node: Operand) -> bool:
        """Whether an item of `with` is the value of the clause before it."""
        if isinstance(node, Setting):
            return False
        if not isinstance(node, Ref | Call):
            return True
        name = node.name if isinstance(node, Ref) else node.name.text
        if row.choices:
            return name in row.choices or not (
                name in self.choices or name in self.outer or name in schema.CLAUSES or row.kind is CHOICES
            )
        return name not in self.choices and name not in self.outer and name not in schema.CLAUSES

    def setting(self, node: Setting, clause: str | None) -> None:
        name = node.name
        path = self.find(name, clause, node.value)
        if path is None:
            return
        row = schema.BY_PATH.get(path)
        if row is None or row.kind is BLOCK:
            help = f"write `{name.text} {{ ... }}`, with its settings inside"
            if name.text in ("data", "model"):
                typed = self.typed(node.value.span)
                help = "write `train " + (f"MODEL on {typed}`" if name.text == "data" else f"{typed} on DATA`")
            self.problem("XP104", f"`{name.text}` is a clause, not a setting", name.span, help=help)
        elif path == "track" and isinstance(node.value, Call):
            self.head("track", [node.value], node.span)
        elif path == "save.hub" and _is_repository(node.value):  # `hub = me/model` is `hub(name=me/model)`
            self.add(path, None, node.span)
            self.out.items.setdefault("save.hub.name", Item("save.hub.name", node.value, self.label(node.span)))
        else:
            self.add(path, node.value, node.span)

    def find(self, name: Name, clause: str | None, value: Value | None = None) -> str | None:
        """The path of a name in a clause (None: anywhere), or None after a report."""
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

    def unknown(self, name: Name, clause: str | None, value: Value | None = None) -> str | None:
        """Report an unknown name. Returns the name to write instead, if its value can stay."""
        typed = None if value is None else self.typed(value.span)
        unknown = UnknownName(name.text, clause, value, typed, self.label(name.span), self.header)
        found = self.advisor().unknown_name(unknown, self.unknowns)
        self.unknowns += 1
        self.out.intended.update(found.intended)
        replaced = Span(name.span.start, value.span.end) if found.replaces_value and value is not None else name.span
        cut = found.replaces_value and value is not None and value.span.end - value.span.start > len(typed or "")
        block = self.source.text[name.span.end :].lstrip(" ")[:1] == "{" and "=" in (found.edit or "")
        edits = () if found.edit is None or cut or block else (Edit(replaced, found.edit),)
        label = self.label(name.span, found.text)
        self.problems.report(found.code, found.message, label, help=found.help, edits=edits)
        return None if found.replaces_value else found.edit

    def named(self, name: Name, body: list[Operand | Clause], clause: str | None, span: Span) -> None:
        """Read a name with its items: a clause, a flag with settings, or a bare choice with settings of its clause."""
        text = name.text
        if clause is None and text == "data":
            self.data(name, body)
            return
        if clause is None and text == "extra":
            from xpc.compiler.language.expand_extra import extra  # most specs have none

            extra(self, name, body)
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
        if path == "save.hub" and len(body) == 1 and isinstance(body[0], String):  # `hub "me/x"`
            self.without_equals(text, body[0], Span(name.span.start, body[0].span.end))
        elif row.kind is FLAG:
            self.add(path, None, name.span)
            self.inside(body, path)
        elif row.pending:
            self.add(path, None, name.span)
        elif row.alone and not body:
            self.add(path, Ref(name.span, row.alone), name.span)
        elif len(body) == 1 and not isinstance(body[0], Setting | Clause):
            self.without_equals(text, body[0], Span(name.span.start, body[0].span.end))
        else:
            self.missing_value(row, name, body, span)

    def missing_value(self, row: schema.Setting, name: Name, body: list[Operand | Clause], span: Span) -> None:
        """Report a setting or a clause without its value, or with a block instead of it."""
        message, place, help, edit = self.advisor().missing_value(row, name, body, span, self.file.source)
        self.problem("XP104", message, place, f"expected {row.kind.phrase}", help=help, edit=edit)

    def inside(self, body: list[Operand | Clause], clause: str) -> None:
        for node in body:
            if isinstance(node, Clause):
                self.statement(node, clause)
            else:
                self.operand(node, clause)

    def head(self, clause: str, body: list[Operand | Clause], span: Span) -> None:
        """Read a clause: first the operands that are its value, then its settings."""
        home = "lora" if clause in schema.ADAPTERS else clause
        if any(isinstance(one, Ref) and f"{home}.{one.name}" in schema.BY_PATH for one in body[:-1]):
            body = self.with_equals(home, body)
        row = schema.BY_PATH.get(clause)
        if row is not None and (row.kind is FLAG or row.kind is BLOCK):
            first = body[0] if body else None
            on_or_off = isinstance(first, Ref) and first.is_name and first.name in ("true", "false")
            self.add(clause, first if on_or_off and isinstance(first, Ref) else None, span)
            body = body[1:] if on_or_off else body
            if row.kind is BLOCK:
                self.out.sweep = Swept(self.file, self.label(span), tuple(body))
                return
            self.inside(body, home)
            return
        heads: list[Value] = []
        rest: list[Operand | Clause] = []
        for node in body:
            is_child = isinstance(node, Ref) and f"{clause}.{node.name}" in schema.BY_PATH
            if row is None or isinstance(node, Setting | Clause) or is_child:
                rest.append(node)
            elif isinstance(node, Call):
                second = bool(heads) and row.kind is not CHOICES and node.name.text not in row.choices
                if f"{clause}.{node.name.text}" in schema.BY_PATH or second:  # `save "out" hubb(private)`
                    rest.append(node)
                else:
                    heads.append(Ref(node.name.span, node.name.text))
                    rest.extend(node.args)
            else:
                heads.append(node)
        if row is not None and heads:
            many = row.path == "track" and len(heads) > 1
            written = Span(heads[0].span.start, heads[-1].span.end)
            joined = "".join(self.typed(each.span) for each in heads)
            if not many and len(heads) > 1 and joined in row.choices:
                self.problem(
                    "XP106",
                    f"`{self.typed(written)}` is one word",
                    written,
                    help=f"write `{joined}`",
                    edit=joined,
                )
                heads = [Ref(written, joined)]
            first = next((one for one in heads if isinstance(one, Count)), heads[0])  # `4 nodes x 8 x h100-80gb`
            if (
                clause == "hardware"
                and len(heads) == 2
                and isinstance(first, Number)
                and isinstance(heads[1], Ref)
                and not self.is_reported(first)
            ):
                self.problem(
                    "XP104",
                    "a count and a GPU have an `x` between them",
                    written,
                    help=f"write `{first.text} x {heads[1].name}`",
                )
                first = Count(written, first, heads[1])
            elif not many:
                self.second(clause, heads)
            self.add(clause, List(written, tuple(heads)) if many else first, written)
        elif row is not None and not rest:
            self.missing_value(row, Name(span, clause), [], span)
        self.inside(rest, clause)

    def second(self, clause: str, heads: list[Value]) -> None:
        """Report a second value of a clause, unless a syntax error already covers it."""
        if len(heads) < 2 or any(self.is_reported(each) for each in heads):
            return
        keep = f"keep `{self.typed(heads[0].span)}`"
        self.problem("XP104", f"`{clause}` takes one value", heads[1].span, "a second one", help=keep)
