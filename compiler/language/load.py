"""Merge a spec with its bases, setting by setting. A spec names its base with `extends` and a relative path. A base may
have a base of its own; such a chain has at most four bases and no cycle.
"""

from __future__ import annotations

from xpc.compiler.files.workspace import BASES, Unreadable, Workspace
from xpc.compiler.language.advisor import Advisor, GetAdvisor
from xpc.compiler.language.codes import Problems
from xpc.compiler.language.expand import expand
from xpc.compiler.language.items import BASE, SPEC, EvaluationBlock, Item, ParsedFile, Row, SweepBlock
from xpc.compiler.language.schema import ADAPTERS, OF_KIND, OF_ONE_KIND
from xpc.grammar.diagnostic import Label
from xpc.grammar.parse import parse
from xpc.grammar.read import decode
from xpc.grammar.record import field, mutable
from xpc.grammar.source import Source
from xpc.grammar.tree import Call, Clause, File, List, Ref, Setting, Train

MAX_DEPTH = 4


@mutable
class MergedSpec:
    """The merged contents of a spec and its bases (the files that it extends).

    - `kinds`: for each path of a setting, where its value comes from, "spec" or "base"
    - `files`: the spec and its bases, the spec first
    - `broken`: true if a part of these files could not be read; a setting that seems to be missing may be in this part
    - `intended`: settings that an unknown name probably means; they are not reported as missing
    - `sweep`: the sweep block of the first file that has one
    - `stated`: the other settings in the file of the sweep block
    - `over`: the paths of settings in files that extend the file of the sweep block
    - `member`, `model_source`: for a run of a sweep, the name of the run, and the text that names its model
    - `advisor`: gives suggestions
    """

    file: File
    train: Train | None = None
    train_source: Source | None = None
    items: dict[str, Item] = field(factory=dict)
    kinds: dict[str, str] = field(factory=dict)
    rows: list[Row] = field(factory=list)
    data_name: Label | None = None
    blocks: dict[str, EvaluationBlock] = field(factory=dict)
    extra: dict[str, dict[str, Item]] = field(factory=dict)
    problems: Problems = field(factory=Problems)
    broken: bool = False
    files: list[File] = field(factory=list)
    sweep: SweepBlock | None = None
    sweep_kind: str = SPEC
    stated: dict[str, Item] = field(factory=dict)
    over: set[str] = field(factory=set)
    member: str = ""
    intended: set[str] = field(factory=set)
    model_source: Source | None = None
    advisor: GetAdvisor = Advisor


def load(source: Source, workspace: Workspace, advisor: GetAdvisor = Advisor) -> MergedSpec:
    """Parse and merge a spec and its bases. A setting of the spec replaces the same setting of a base. If the spec has
    a list, or data sources, they replace those of the base completely; the two are not merged.
    """
    file, problems = parse(source)
    out = MergedSpec(file, problems=Problems(problems), broken=bool(problems), advisor=advisor)
    chain = [file]
    seen = [source.name]
    while chain[-1].extends is not None:
        last = chain[-1]
        assert last.extends is not None
        label = Label(last.source, last.extends.span)
        if len(chain) > MAX_DEPTH:
            out.problems.report(
                "XP115", f"`extends` is nested more than {MAX_DEPTH} levels deep", label, help="inline one of the bases"
            )
            break
        try:
            read = workspace.read_relative(last.extends.value, last.source.name, BASES)
        except Unreadable as error:
            help = workspace.help_for(last.extends.value, last.source.name, "the file that names it")
            out.problems.report("XP114", str(error), label, help=help)
            out.broken = True  # a base that cannot be read may state any setting, so no setting is reported as missing
            break
        if read.name in seen:
            out.problems.report("XP115", f"`{read.name}` extends itself", label, help="remove the cycle")
            break
        seen.append(read.name)
        base, decode_problems = decode(read.data, read.name)
        parsed, parse_problems = parse(base)
        out.problems += [*decode_problems, *parse_problems]
        out.broken = out.broken or bool(parse_problems)
        chain.append(parsed)
    out.files = chain
    evaluated = _evaluated(chain)
    for depth, one in reversed(list(enumerate(chain))):
        overlay(out, expand(one, evaluated, advisor), SPEC if depth == 0 else BASE)
    return out


def _evaluated(chain: list[File]) -> frozenset[str]:
    """The titles of the evaluation sets. These are the `data` blocks that `eval { data = ... }` names in a spec and its
    bases. The title of the block with the training data is left out.
    """
    names: set[str] = set()
    for file in chain:
        options = file.train.options if file.train is not None else ()
        for node in (*file.statements, *options):
            head = node.head if isinstance(node, Clause) else node
            if isinstance(head, Call) and head.name.text == "eval":
                parts: list[object] = list(head.args)
            elif isinstance(node, Clause) and isinstance(head, Ref) and head.name == "eval":
                parts = []
            else:
                continue
            if isinstance(node, Clause):
                parts += node.body
            for part in parts:
                if isinstance(part, Setting) and part.name.text == "data":
                    named = part.value.items if isinstance(part.value, List) else (part.value,)
                    names.update(one.name for one in named if isinstance(one, Ref) and one.is_name)
    train = next((file.train for file in chain if file.train is not None), None)
    return frozenset(names - ({train.data.name} if train is not None and isinstance(train.data, Ref) else set()))


def _replace_adapter(out: MergedSpec, written: ParsedFile) -> None:
    """Remove the adapter of the bases, and the settings that depend on its kind, if the file has another kind of
    adapter (`qlora` instead of `lora`).
    """
    for path in (one for one in ADAPTERS if one in written.items):
        for other in ADAPTERS:
            if other not in written.items and out.items.pop(other, None) is not None and OF_KIND.keys() & {path, other}:
                for setting in (*OF_ONE_KIND, *(("dropout",) if path == "loha" else ())):
                    out.items.pop(f"lora.{setting}", None)


def overlay(out: MergedSpec, written: ParsedFile, kind: str) -> None:
    """Merge the contents of a file into `out`, which has the contents of the file's bases. A setting of the file
    replaces the same setting of a base.
    """
    out.problems += written.problems
    out.intended |= written.intended
    written.items.pop("sweep", None)
    if written.sweep is not None:
        out.sweep, out.sweep_kind, out.stated, out.over = written.sweep, kind, dict(written.items), set()
    else:
        out.over |= {*written.items, *(("model",) if written.train is not None else ())}
    if written.train is not None:
        out.train, out.train_source = written.train, written.source
    _replace_adapter(out, written)
    for path, item in written.items.items():
        if path in ("train.epochs", "train.steps"):
            for other in ("train.epochs", "train.steps"):
                out.items.pop(other, None)
        out.items[path] = item
        out.kinds[path] = kind
    if written.rows:
        out.rows = written.rows
    if written.data_name is not None:
        out.data_name = written.data_name
    for name, block in written.blocks.items():
        below = out.blocks.get(name)
        if below is not None:
            block = EvaluationBlock(block.label, block.rows or below.rows, {**below.items, **block.items})
        out.blocks[name] = block
    for target, items in written.extra.items():
        out.extra.setdefault(target, {}).update(items)
