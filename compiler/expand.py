"""Tree to items: the three equivalences of the language undone, so that every setting is one path and one value.

`with a k=v` is the same items in the body; a bare choice is its setting; `name(k=v)` is `name { k = v }`. What comes
out is flat: a path of the schema, the node that was written for it (None for a bare flag), and the place.
"""

from __future__ import annotations

from attrs import field

from xpc.compiler import registry, schema
from xpc.compiler.codes import report
from xpc.compiler.kinds import BLOCK, FLAG
from xpc.compiler.suggest import nearest, owner_name
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.record import mutable, record
from xpc.grammar.source import Source, Span
from xpc.grammar.tree import Block, Call, Clause, Count, File, List, Name, Number, Ref, Setting, String, Train, Value

Operand = Setting | Value


@record
class Item:
    """A setting as written: `node` is None where the bare name stands for true."""

    path: str
    node: Value | None
    label: Label


@record
class Row:
    """A source of a `data` block, with its `columns` and `take`."""

    ref: Ref | String
    label: Label
    items: tuple[Item, ...] = ()


@mutable
class Written:
    """What one file says. `data_name` is the name of its `data` block."""

    source: Source
    train: Train | None = None
    items: dict[str, Item] = field(factory=dict)
    rows: list[Row] = field(factory=list)
    data_name: Label | None = None
    extra: dict[str, dict[str, Item]] = field(factory=dict)
    problems: list[Diagnostic] = field(factory=list)


def expand(file: File) -> Written:
    """Flatten one file. Problems are collected in the result; the file's bases are not read here."""
    return _Expander(file).run()


class _Expander:
    def __init__(self, file: File) -> None:
        self.file = file
        self.out = Written(file.source, file.train)
        self.outer = schema.outer_names()
        self.choices = schema.bare_choices()

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
            for option in train.options:
                self.operand(option, None)
        for statement in self.file.statements:
            self.statement(statement, None)
        return self.out

    # -- reporting ------------------------------------------------------------------------------------------------

    def label(self, span: Span, text: str = "") -> Label:
        return Label(self.file.source, span, text)

    def problem(
        self,
        code: str,
        message: str,
        span: Span,
        text: str = "",
        help: str | None = None,
        edit: str | None = None,
        related: tuple[Label, ...] = (),
    ) -> None:
        edits = () if edit is None else (Edit(span, edit),)
        self.out.problems.append(report(code, message, self.label(span, text), help=help, edits=edits, related=related))

    def add(self, path: str, node: Value | None, span: Span) -> None:
        item = Item(path, node, self.label(span))
        first = self.out.items.setdefault(path, item)
        if first is not item:
            name = path.rpartition(".")[2]
            self.problem(
                "XP103",
                f"`{name}` is written twice",
                span,
                "again here",
                help="keep one of the two",
                related=(Label(first.label.source, first.label.span, "first here"),),
            )

    # -- statements -----------------------------------------------------------------------------------------------

    def statement(self, node: Setting | Clause, clause: str | None) -> None:
        if isinstance(node, Setting):
            self.setting(node, clause)
            return
        body: list[Operand | Clause] = [*node.operands, *(node.block.statements if node.block else ())]
        head = node.head
        if isinstance(head, Call):
            body = [*head.args, *body]
            self.named(head.name, body, clause, node.span)
        elif isinstance(head, Ref) and head.is_name:
            self.named(Name(head.span, head.name), body, clause, node.span)
        else:
            what = "a text" if isinstance(head, String) else f"`{self.typed(head.span)}`"
            self.problem(
                "XP101",
                f"{what} stands where a setting or clause goes",
                head.span,
                help="sources of data go into a block: data NAME { ... }",
            )

    def operand(self, node: Operand, clause: str | None) -> None:
        """An item of `with`, of a call, or of a clause's line."""
        if isinstance(node, Setting):
            self.setting(node, clause)
        elif isinstance(node, Call):
            self.named(node.name, list(node.args), clause, node.span)
        elif isinstance(node, Ref) and node.is_name:
            self.named(Name(node.span, node.name), [], clause, node.span)
        elif isinstance(node, Count) and clause is None:
            self.add("hardware", node, node.span)
        else:
            self.problem(
                "XP104", f"`{self.typed(node.span)}` is a value without a setting", node.span, help="write `name=value`"
            )

    def typed(self, span: Span) -> str:
        return self.file.source.text[span.start : span.end][:60]

    def setting(self, node: Setting, clause: str | None) -> None:
        name = node.name
        path = self.find(name, clause)
        if path is None:
            return
        row = schema.BY_PATH.get(path)
        if row is None:
            self.problem(
                "XP104", f"`{name.text}` is a clause, not a setting", name.span, help=f"write {name.text} {{ ... }}"
            )
        elif path == "track" and isinstance(node.value, Call):
            self.head("track", [node.value], node.span)
        else:
            self.add(path, node.value, node.span)

    def find(self, name: Name, clause: str | None) -> str | None:
        """The path that a name means in a clause (None: anywhere), or None after a report."""
        text = name.text
        if clause is None:
            if text in schema.CLAUSES and text not in ("train",):
                return text
            if text in self.outer:
                return self.outer[text]
        elif f"{clause}.{text}" in schema.BY_PATH:
            return f"{clause}.{text}"
        self.unknown(name, clause)
        return None

    def unknown(self, name: Name, clause: str | None) -> None:
        text = name.text
        elsewhere = [row.path for row in schema.TABLE if row.name == text]
        if clause == "with" or clause is None:
            if elsewhere:
                ways = [f"{path.rpartition('.')[0]}({text}=...)" for path in elsewhere]
                self.problem("XP102", f"`{text}` belongs inside a clause", name.span, help="write " + " or ".join(ways))
                return
        elif text in self.outer or text in schema.CLAUSES or text in self.choices or elsewhere:
            home = (self.outer.get(text) or self.choices.get(text) or (elsewhere or [text])[0]).split(".")[0]
            self.problem(
                "XP102",
                f"`{text}` is not a setting of `{clause}`",
                name.span,
                help=f"it belongs to `{home}`" if home != text else f"`{text}` stands on its own",
            )
            return
        known = self.candidates(clause)
        ours = owner_name(text)
        if ours is None or (clause is not None and ours not in known):
            ours = nearest(text, known) or ours or nearest(text, self.candidates(None))
        where = f"of `{clause}`" if clause else "of the language"
        single = ours is not None and all(c.isalnum() or c in "_-." for c in ours)
        self.problem(
            "XP101",
            f"`{text}` is not a setting {where}",
            name.span,
            f"did you mean `{ours}`?" if ours else "",
            help=f"write `{ours}`" if ours else "the settings of a clause are listed in the reference",
            edit=ours if single and ours in known else None,
        )

    def candidates(self, clause: str | None) -> list[str]:
        if clause is None:
            return [*(c for c in schema.CLAUSES if c != "train"), *self.outer, *self.choices]
        return [row.name for row in schema.children(clause)]

    def named(self, name: Name, body: list[Operand | Clause], clause: str | None, span: Span) -> None:
        """A name with what follows it: a clause, a flag and its settings, or a bare choice and its clause's."""
        text = name.text
        if clause is None and text in ("data", "extra"):
            (self.data if text == "data" else self.extra)(name, body)
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
        path = self.find(name, clause)
        if path is None:
            return
        row = schema.BY_PATH[path]
        if row.kind is FLAG:
            self.add(path, None, name.span)
            self.inside(body, path)
        elif row.kind is BLOCK or row.pending:
            self.add(path, None, name.span)
        elif row.alone and not body:
            self.add(path, Ref(name.span, row.alone), name.span)
        elif not body:
            self.problem(
                "XP104",
                f"`{text}` needs a value",
                name.span,
                f"expected {row.kind.phrase}",
                help=f"write `{text} = {row.choices[0] if row.choices else row.kind.example}`",
            )
        else:
            self.problem(
                "XP104",
                f"`{text}` takes one value, not a block",
                name.span,
                help=f"write `{text} = {row.choices[0] if row.choices else row.kind.example}`",
            )

    def inside(self, body: list[Operand | Clause], clause: str) -> None:
        for node in body:
            if isinstance(node, Clause):
                self.statement(node, clause)
            else:
                self.operand(node, clause)

    def head(self, clause: str, body: list[Operand | Clause], span: Span) -> None:
        """A clause: the operands that are its head, then its settings."""
        row = schema.BY_PATH.get(clause)
        if row is not None and row.kind in (FLAG, BLOCK):
            self.add(clause, None, span)
            if row.kind is BLOCK:
                return  # a sweep's lines are settings of their own; they are read when sweeps are compiled
            self.inside(body, "lora" if clause == "qlora" else clause)
            return
        heads: list[Value] = []
        rest: list[Operand | Clause] = []
        for node in body:
            is_child = isinstance(node, Ref) and f"{clause}.{node.name}" in schema.BY_PATH
            if row is None or isinstance(node, Setting | Clause) or is_child:
                rest.append(node)
            elif isinstance(node, Call):
                if f"{clause}.{node.name.text}" in schema.BY_PATH:
                    rest.append(node)
                else:
                    heads.append(Ref(node.name.span, node.name.text))
                    rest.extend(node.args)
            else:
                heads.append(node)
        if row is not None and heads:
            many = row.path == "track" and len(heads) > 1
            whole = Span(heads[0].span.start, heads[-1].span.end)
            self.add(clause, List(whole, tuple(heads)) if many else heads[0], whole)
            if not many:
                for extra in heads[1:]:
                    self.problem(
                        "XP104",
                        f"`{clause}` takes one value",
                        extra.span,
                        "a second one",
                        help=f"keep `{self.typed(heads[0].span)}`",
                    )
        elif row is not None and not rest:
            example = row.choices[0] if row.choices else row.kind.example
            self.problem(
                "XP104",
                f"`{clause}` needs a value",
                span,
                f"expected {row.kind.phrase}",
                help=f"write `{clause} {example}`",
            )
        self.inside(rest, clause)

    # -- data and extra ---------------------------------------------------------------------------------------------

    def data(self, name: Name, body: list[Operand | Clause]) -> None:
        title = body[0] if body and isinstance(body[0], Ref | String) else None
        row = schema.BY_PATH.get(f"data.{title.name}") if isinstance(title, Ref) and title.is_name else None
        if row is not None and row.kind is FLAG:
            title = None  # `data(shuffle)` is `data { shuffle }`
        if self.out.data_name is not None:
            self.problem(
                "XP103",
                "a spec has one `data` block",
                name.span,
                "again here",
                help="put all sources into one block",
                related=(self.out.data_name,),
            )
            return
        self.out.data_name = self.label(name.span if title is None else title.span)
        for node in body if title is None else body[1:]:
            if isinstance(node, Setting):
                self.setting(node, "data")
            elif isinstance(node, Clause):
                self.row(node.head, [*node.operands, *(node.block.statements if node.block else ())], node)
            elif isinstance(node, Ref | Call):
                self.row(node, [], Clause(node.span, node))
            else:
                self.operand(node, "data")

    def row(self, head: Call | Ref | String, body: list[Operand | Clause], node: Clause) -> None:
        if isinstance(head, Call):
            body = [*head.args, *body]
            head = Ref(head.name.span, head.name.text)
        if isinstance(head, Ref) and head.is_name:
            if f"data.{head.name}" in schema.BY_PATH:
                self.statement(node, "data")
                return
            if registry.find_dataset(head.name) is None and (head.name in self.outer or head.name in schema.CLAUSES):
                self.unknown(Name(head.span, head.name), "data")
                return
        items: list[Item] = []
        for part in body:
            if isinstance(part, Setting) and part.name.text in schema.SOURCE_SETTINGS:
                items.append(Item(part.name.text, part.value, self.label(part.span)))
            else:
                name = part.name if isinstance(part, Setting) else None
                text = name.text if name else self.typed(part.span)
                near = nearest(text, schema.SOURCE_SETTINGS)
                self.problem(
                    "XP101",
                    f"`{text}` is not a setting of a source",
                    part.span if name is None else name.span,
                    f"did you mean `{near}`?" if near else "",
                    help=f"write `{near}`" if near else "a source has `columns` and `take`",
                    edit=near,
                )
        self.out.rows.append(Row(head, self.label(head.span), tuple(items)))

    def extra(self, name: Name, body: list[Operand | Clause]) -> None:
        title = body[0] if body else None
        if not (isinstance(title, Ref) and title.name in schema.EXTRA_TARGETS):
            place = name.span if title is None else title.span
            near = nearest(self.typed(place), schema.EXTRA_TARGETS) or "trl"
            self.problem(
                "XP106", "`extra` goes to trl, accelerate or deepspeed", place, help=f"write `extra {near} {{ ... }}`"
            )
            return
        table = self.out.extra.setdefault(title.name, {})
        for node in body[1:]:
            self.extra_item(table, "", node)

    def extra_item(self, table: dict[str, Item], prefix: str, node: Operand | Clause) -> None:
        block: Block | None = None
        if isinstance(node, Setting):
            key, value, span = node.name.text, node.value, node.span
        elif isinstance(node, Clause) and isinstance(node.head, Ref) and not node.operands:
            key, value, span, block = node.head.name, None, node.span, node.block
        elif isinstance(node, Ref) and node.is_name:
            key, value, span = node.name, None, node.span
        else:
            self.problem("XP104", "`extra` holds `name = value` lines", node.span, help="write `name = value`")
            return
        if block is not None:
            for inner in block.statements:
                self.extra_item(table, f"{prefix}{key}.", inner)
            return
        item = Item(prefix + key, value, self.label(span))
        first = table.setdefault(item.path, item)
        if first is not item:
            self.problem(
                "XP103",
                f"`{key}` is written twice",
                span,
                "again here",
                help="keep one of the two",
                related=(Label(first.label.source, first.label.span, "first here"),),
            )


__all__ = ["Item", "Number", "Row", "Written", "expand"]
