"""Read the `data` blocks of one file: sources, and settings of the mixture or of an evaluation set."""

from __future__ import annotations

from xpc.compiler import registry
from xpc.compiler.language import schema
from xpc.compiler.language.expand.clauses import Clauses, Operand
from xpc.compiler.language.items import EvaluationBlock, Item, ParsedFile, Row
from xpc.compiler.language.kinds import FLAG
from xpc.grammar.nearest import letters, misspelt_file, nearest
from xpc.grammar.record import evolve
from xpc.grammar.source import Span
from xpc.grammar.tree import Call, Clause, Name, Number, Ref, Setting, String, Value

SOURCE_WORDS = {
    word: name
    for name, words in {
        "format": "shape type format formatting kind style schema promptstyle rowformat",
        "columns": "column columns field fields keys columnmap cols colnames columnnames names",
        "chat": "conversational turns asturns chatty",
        "limit": "first firstn firstrows head top nhead firstnrows",
        "share": (
            "share weight weights ratio proportion probability prob mix part percent percentage samplingweight "
            "samplingratio mixingratio mixratio mixtureweight datasetweight interleaveprob p probs mixweight "
            "mixingweight sampleweight samplingprob samplingprobability blend blendratio"
        ),
        "take": (
            "take fraction samples nsamples numsamples rows nrows numrows amount count n limit maxsamples maxrows "
            "maxexamples size sample samplesize subsample use subsetsize numexamples nexamples "
            "maxnumsamples maxtrainsamples"
        ),
    }.items()
    for word in words.split()
}
"""Maps other tools' names for the settings of a data source, in small letters without separators, to xpc's names."""
SETTINGS = tuple(path[5:] for path in schema.BY_PATH if path.startswith("data."))
"""The names of the settings of a `data` block."""


def read_data(evaluated: frozenset[str], clauses: Clauses, name: Name, body: list[Operand | Clause]) -> None:
    """Read a `data` block: the training data, or an evaluation set that `eval` names. `evaluated` lists the titles of
    the blocks for evaluation.
    """
    _DataBlock(clauses, evaluated).read(name, body)


class _DataBlock:
    """Reads one `data` block. This class reads the sources of the block, and `Clauses` reads its settings."""

    def __init__(self, clauses: Clauses, evaluated: frozenset[str]) -> None:
        self.clauses, self.evaluated = clauses, evaluated
        self.weights: list[float | None] = []

    def read(self, name: Name, body: list[Operand | Clause]) -> None:
        call = body[0] if body and not self.clauses.file.source.text.startswith("(", name.span.end) else None
        if isinstance(call, Call) and f"data.{call.name.text}" not in schema.BY_PATH:
            body = [
                Ref(call.name.span, call.name.text),
                *call.args,
                *body[1:],
            ]  # `data chat(k=v)` has the same meaning as `data chat { k = v }`
        title = body[0] if body and isinstance(body[0], Ref | String) else None
        # the name in parentheses may be a misspelt setting, as in `data(streming)`
        if isinstance(title, Ref) and title.is_name and not self.is_named(title.name, body[1:]):
            self.clauses.unknown(Name(title.span, title.name), "data")
            return
        row = schema.BY_PATH.get(f"data.{title.name}") if isinstance(title, Ref) and title.is_name else None
        if row is not None and row.kind is FLAG:
            title = None  # the name in parentheses is a setting: `data(shuffle)` means `data { shuffle }`
        if isinstance(title, Ref) and title.name in self.evaluated:
            self.evaluation_set(title, body[1:])
            return
        before = self.clauses.out.data_name
        if title is not None and before is not None and self.clauses.typed(before.span) != "data":
            message = "a spec trains on one `data` block"
            help = (
                "put all sources into one block; "
                f"`eval(data={self.clauses.typed(title.span)})` makes this one a set to evaluate on"
            )
            self.clauses.problem("XP103", message, name.span, "again here", help=help, related=(before,))
            return
        if title is not None or before is None:
            self.clauses.out.data_name = self.clauses.label(name.span if title is None else title.span)
        self.sources(body if title is None else body[1:])

    def is_named(self, name: str, others: list[Operand | Clause]) -> bool:
        """Whether the first name after `data` is legal: a setting, a registered dataset, or the title by which the
        header or `eval` names the block. Any other name is probably a misspelling, except in two cases: the rest of the
        block (`others`) has sources, or a base, which is not read here, may have the header that names the block.
        """
        if f"data.{name}" in schema.BY_PATH or name in self.evaluated or registry.find_dataset(name) is not None:
            return True
        train = self.clauses.file.train
        data = None if train is None else train.data
        if isinstance(data, Ref) and data.name == name:
            return True
        typo = nearest(name, SETTINGS) is not None
        if others:  # a base (`extends`), which is not read here, may have the header that names this block
            return train is None or not typo or not all(map(_is_setting, others))
        elsewhere = name in self.clauses.outer or name in schema.CLAUSES or name in schema.bare_choices()
        # a setting in parentheses, such as `packing` in `data(packing)`, is not a title
        return not isinstance(data, Ref) and not typo and not elsewhere

    def evaluation_set(self, title: Ref, body: list[Operand | Clause]) -> None:
        """Read a `data` block that is used for evaluation: its sources, and the format of its rows."""
        outer, first = self.clauses.out, self.clauses.out.blocks.get(title.name)
        if first is not None:
            again = f"the data block `{title.name}` is written twice"
            self.clauses.problem(
                "XP103", again, title.span, help="put its sources into one block", related=(first.label,)
            )
            return
        self.clauses.out = ParsedFile(self.clauses.file.source, problems=outer.problems)
        self.sources(body)
        block, self.clauses.out = self.clauses.out, outer
        for path, item in block.items.items():
            if path not in schema.OF_A_BLOCK:
                message = f"`{path[5:]}` belongs to the data that is trained on"
                help = "data for evaluation takes only `format`, `columns`, `prompt` and `context`; leave this out"
                self.clauses.problem("XP102", message, item.label.span, f"`{title.name}` is evaluated on", help=help)
        outer.blocks[title.name] = EvaluationBlock(self.clauses.label(title.span), tuple(block.rows), block.items)

    def sources(self, body: list[Operand | Clause]) -> None:
        """Read everything in a `data` block: its sources and its settings."""
        self.weights = [_weight(node) for node in body if isinstance(node, Clause | Ref | Call | String)]
        for node in body:
            if isinstance(node, Setting):
                self.clauses.setting(node, "data")
            elif isinstance(node, Clause):
                self.row(node.head, [*node.body], node)
            elif isinstance(node, Ref | Call | String):
                self.row(node, [], Clause(node.span, node))
            else:
                self.clauses.operand(node, "data")

    def row(self, head: Call | Ref | String, body: list[Operand | Clause], node: Clause) -> None:
        """Read one item of a `data` block: a source with its settings, or a setting of the block."""
        if isinstance(head, Call):
            body = [*head.args, *body]
            head = Ref(head.name.span, head.name.text)
        if isinstance(head, Ref) and head.is_name:
            if f"data.{head.name}" in schema.BY_PATH:
                self.clauses.statement(node, "data")
                return
            if registry.find_dataset(head.name) is None and (
                head.name in self.clauses.outer
                or head.name in schema.CLAUSES
                or (not body and misspelt_file(head.name, SETTINGS) is not None)
            ):
                self.clauses.unknown(Name(head.span, head.name), "data")
                return
        items: list[Item] = []
        for part in self.with_equals(body):
            if isinstance(part, Setting) and part.name.text in schema.SOURCE_SETTINGS:
                items.append(Item(part.name.text, part.value, self.clauses.label(part.span)))
            elif (flag := _flag(part)) is not None:
                items.append(Item(flag, None, self.clauses.label(part.span)))
            else:
                name = part.name if isinstance(part, Setting) else None
                text = name.text if name else self.clauses.typed(part.span)
                near = SOURCE_WORDS.get(letters(text)) or misspelt_file(text, schema.SOURCE_SETTINGS)
                of_block, own = f"data.{text}" in schema.BY_PATH, f"train.{text}" not in schema.BY_PATH
                if near is None and isinstance(part, Setting) and own and not of_block:
                    self.clauses.unknown(part.name, "data", part.value)
                    found = self.clauses.problems[-1]
                    if found.edits and found.edits[0].text.split()[0] not in schema.SOURCE_SETTINGS:
                        right = found.edits[0].text
                        right += "" if "=" in right else f" = {self.clauses.typed(part.value.span)}"
                        help = f"write `{right}` below the sources, because it belongs to the block"
                        self.clauses.problems[-1] = evolve(found, help=help, edits=())
                    continue
                location, form = part.span if name is None else name.span, near
                more, example = "", False
                if near == "take" and isinstance(part, Setting):
                    location, form = part.span, self.taken(part.value)
                    more = ": a share of the rows of this source" if form.endswith("%") else ""
                elif near == "share" and isinstance(part, Setting):
                    location, form = part.span, self.share(part)
                    more = ": the shares of all sources add up to 100%"
                    example = (_number(part) or 0) <= 0
                self.clauses.problem(
                    "XP101",
                    f"`{text}` is not a setting of a source",
                    location,
                    f"did you mean `{near}`?" if near else "",
                    help=f"write `{form}`{more}"
                    if form is not None
                    else f"`{text}` belongs to the block: write it below the sources"
                    if of_block
                    else "a source has " + ", ".join(f"`{one}`" for one in schema.SOURCE_SETTINGS),
                    edit=None if example else form,
                )
        self.clauses.out.rows.append(Row(head, self.clauses.label(head.span), tuple(items)))

    def with_equals(self, body: list[Operand | Clause]) -> list[Operand | Clause]:
        """Report the settings of a source that lack their `=`, as in `smoltalk take 1000`. Returns the other parts."""
        out, at = list[Operand | Clause](), 0
        while at < len(body):
            part, value = body[at], body[at + 1] if at + 1 < len(body) else None
            name = part.name if isinstance(part, Ref) else ""
            name = name if name in schema.SOURCE_SETTINGS else SOURCE_WORDS.get(letters(name), "")
            row = schema.SOURCE_SETTINGS.get(name)
            at += 1
            if row is None or row.kind is FLAG or not isinstance(value, Number):
                out.append(part)
                continue
            at += 1
            typed = self.clauses.typed(value.span)
            if name == "share" and value.unit != "%":
                typed = f"{float(value.value) * (1 if value.value > 1 else 100):g}%"
            span, form = Span(part.span.start, value.span.end), f"{name}={typed}"
            message = f"`{self.clauses.typed(part.span)}` takes its value after `=`"
            self.clauses.problem("XP104", message, span, help=f"write `{form}`", edit=form)
        return out

    def share(self, part: Setting) -> str:
        """Suggest `share = 30%` for a source whose weight has a name from another tool. Weights that do not sum to 1
        over all sources are divided by their sum.
        """
        weight, known = _number(part), [one for one in self.weights if one is not None]
        if weight is None or weight <= 0:
            return "share = 50%"
        if isinstance(part.value, Number) and part.value.unit == "%":
            return f"share = {self.clauses.typed(part.value.span)}"
        total = sum(known) or 1
        complete = 1 < len(known) == len(self.weights) and abs(total - 1) > 0.0005
        percent = round(100 * weight / (total if complete or weight > 1 else 1), 2)
        return f"share = {percent:g}%"

    def taken(self, value: Value) -> str:
        """Suggest `take = 20%` for a source whose fraction of rows has a name from another tool, such as
        `fraction=0.2`.
        """
        typed = self.clauses.typed(value.span)
        name = "ratio" if "." in typed else ""
        return f"take = {self.clauses.advisor().share_of_rows(name, value, typed) or typed}"


def _weight(node: Operand | Clause) -> float | None:
    """The weight of a source in the mixture, if the spec states it under another tool's name, such as `weight=0.3`.
    Otherwise None.
    """
    body = node.body if isinstance(node, Clause) else ()
    head = node.head if isinstance(node, Clause) else node
    parts = (*body, *(head.args if isinstance(head, Call) else ()))
    found = (one for one in parts if isinstance(one, Setting) and SOURCE_WORDS.get(letters(one.name.text)) == "share")
    return next(map(_number, found), None)


def _number(part: Setting) -> float | None:
    value = part.value
    if not isinstance(value, Number):
        return None
    return value.value / 100 if value.unit == "%" else float(value.value)


def _is_setting(part: Operand | Clause) -> bool:
    """Whether an item of a `data` block is a setting, and not a source."""
    return isinstance(part, Setting) or (isinstance(part, Ref) and f"data.{part.name}" in schema.BY_PATH)


def _flag(part: Operand | Clause) -> str | None:
    """The name of a source's flag, such as `chat`, if an item of a `data` block consists only of this flag. Otherwise
    None.
    """
    node = part.head if isinstance(part, Clause) and not part.body else part
    name = node.name if isinstance(node, Ref) and node.is_name else ""
    row = schema.SOURCE_SETTINGS.get(name)
    return name if row is not None and row.kind is FLAG else None
