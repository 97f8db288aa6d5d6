"""Blocks that the language does not have: what their settings are here. Loaded only for a misspelt spec.

`early_stopping { patience = 3 }` is `eval(patience=3)`, `peft { r = 16 }` is `lora(rank=16)`, and `hardware` takes what
others write into a block of it on its own line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from xpc.compiler import registry
from xpc.compiler.language import schema
from xpc.compiler.language.codes import CODES as SLUGS
from xpc.compiler.language.expand import expand
from xpc.compiler.suggest.flag_values import NAMED
from xpc.compiler.suggest.meaning import NEVER, choice, meaning, spelt_like
from xpc.compiler.suggest.no_equivalent import advice, own_reason
from xpc.compiler.suggest.pasted import BODY, HEADER, doing_what_is_said, meaning_of, spelt
from xpc.compiler.suggest.registry_names import either
from xpc.compiler.suggest.registry_names import gpu as likely_gpus
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.nearest import letters
from xpc.grammar.parse import parse
from xpc.grammar.record import evolve, record
from xpc.grammar.source import Source, Span
from xpc.grammar.tree import Call, Clause, Ref, Setting, Value

CODES = ("XP101", "XP102")
EVERYTHING = (
    "training", "trainer", "trainingarguments", "trainingargs", "trainingconfig", "trainerconfig", "trainerargs",
    "args", "arguments", "config", "configuration", "hyperparameters", "hyperparams", "hparams", "params",
    "parameters", "settings", "run", "experiment", "general", "common", "sftconfig",
)  # fmt: skip
"""Blocks of other tools that hold settings of every kind, as letters."""
COUNTS = (
    "count",
    "n",
    "num",
    "number",
    "gpus",
    "numgpus",
    "devices",
    "gpuspernode",
    "nprocpernode",
    "processes",
    "value",
)
KINDS = ("type", "gpu", "gputype", "name", "kind", "model", "device", "accelerator", "card")
COUNTED = re.compile(r"(\d+)[ \t]*x[ \t]*([\w.-]+)")
NODES = ("nodes", "numnodes", "nnodes", "machines")


@record
class Written:
    """A block as it stands: its name, its settings with what was typed, and whether it stands after `with`."""

    name: str
    span: Span
    place: Span
    settings: tuple[tuple[str, str], ...]
    header: bool
    clause: str = ""

    @property
    def around(self) -> str:
        """The clause that the block stands in."""
        return self.clause.split()[0] if self.clause else ""


def told(found: Sequence[Diagnostic]) -> tuple[list[Diagnostic], set[str]]:
    """The findings; those of a block that is none, and of what stands in it, are one. And the paths that are meant."""
    out = list(found)
    meant: set[str] = set()
    for source in {one.primary.source.name: one.primary.source for one in found if one.primary is not None}.values():
        for block in _blocks(source):
            inside = [one for one in out if _is_in(one, source, block.span)]
            if any(one.code in CODES for one in inside) and _is_foreign(block):
                first = out.index(inside[0])
                out = [one for one in out if one not in inside]
                out.insert(first, _told(inside[0], source, block))
                meant |= _paths(out[first], block)
    return out, meant


def _paths(found: Diagnostic, block: Written) -> set[str]:
    """The settings that a block would set, as it is told: no rule speaks of what it assumes for them."""
    forms = "\n".join(edit.text.replace(" ", "\n") if block.header else edit.text for edit in found.edits)
    paths = set(expand(parse(Source("block.xp", f"{BODY}{forms}\n"))[0]).items)
    return {path for path in paths if not path.startswith("train.")} or {block.name}


def _is_in(one: Diagnostic, source: Source, span: Span) -> bool:
    return (
        one.primary is not None
        and one.primary.source.name == source.name
        and span.start <= one.primary.span.start < span.end
    )


def _is_foreign(block: Written) -> bool:
    """Whether a block is no clause of the language, or a clause that has no settings."""
    if block.clause:
        return f"{block.around}.{block.name}" not in schema.BY_PATH and block.name not in schema.bare_choices()
    if block.name in schema.CLAUSES:
        return not any(schema.children(block.name)) and block.name not in ("sweep", "extra", "data", *schema.ADAPTERS)
    return block.name not in schema.bare_choices() and block.name not in schema.outer_names()


def _blocks(source: Source) -> Iterator[Written]:
    """The blocks and calls of a text that hold nothing but settings."""
    file = parse(source)[0]
    for node in (*(file.train.options if file.train else ()), *file.statements):
        if isinstance(node, Clause) and node.block is not None:
            yield from _nested(node, source)
        if isinstance(node, Clause) and node.operands:
            continue
        head = node.head if isinstance(node, Clause) else node
        body: tuple[Setting | Clause | Value, ...] = (
            node.block.statements if isinstance(node, Clause) and node.block else ()
        )
        if isinstance(head, Call):
            name, place, body = head.name.text, head.name.span, (*head.args, *body)
        elif isinstance(head, Ref) and head.is_name:
            name, place = head.name, head.span
        else:
            continue
        if body and all(isinstance(one, Setting) for one in body):
            yield Written(name, node.span, place, _settings(body, source), isinstance(node, Call))


def _settings(body: Sequence[Setting | Clause | Value], source: Source) -> tuple[tuple[str, str], ...]:
    return tuple(
        (one.name.text, source.slice(one.value.span))
        for one in body if isinstance(one, Setting)
    )  # fmt: skip


def _nested(clause: Clause, source: Source) -> Iterator[Written]:
    """The blocks in a clause of the language that hold nothing but settings."""
    name = clause.head.name if isinstance(clause.head, Ref) else ""
    if clause.block is None or name not in schema.CLAUSES or name in ("sweep", "extra", "data"):
        return
    before = source.text[clause.span.start : clause.block.span.start]
    for node in clause.block.statements:
        if not isinstance(node, Clause) or not isinstance(node.head, Ref) or node.operands or node.block is None:
            continue
        body = node.block.statements
        if body and all(isinstance(one, Setting) for one in body):
            yield Written(node.head.name, node.span, node.head.span, _settings(body, source), False, before.strip())


def _told(found: Diagnostic, source: Source, block: Written) -> Diagnostic:
    if block.clause:
        return _told_within(found, source, block)
    if spelt_like(block.name, ["hardware"]) is not None:
        block = evolve(block, name="hardware")
    right = None if block.name == "hardware" else _misspelt(source, block)
    if right is not None:
        text, name = right
        help, edits = f"write `{name}`", (Edit(block.span, text),)
        label = Label(source, block.place, f"did you mean `{name}`?")
        return evolve(found, primary=label, help=help, edits=edits)
    said = _hardware(block) if block.name == "hardware" else _alone(block) or _forms(block)
    forms = [form for form, _ in said if form is not None]
    whole = len(forms) == len(said)
    joined = (" " if block.header else "\n").join(forms)
    help = ", ".join(f"`{form}`" for form in forms)
    rest = "; ".join(dict.fromkeys(help for form, help in said if form is None))
    known, name = block.name in schema.CLAUSES, block.name[:60]
    message = f"`{name}` takes its value on its line" if known else f"`{name}` is not a block of the language"
    code = "XP102" if known else "XP101"
    return evolve(
        found,
        code=code,
        slug=SLUGS[code][0],
        message=message,
        primary=Label(source, block.place),
        help="; ".join(filter(None, (f"write {help}" if forms else "", rest)))[:600],
        edits=(Edit(block.span, joined),) if whole else (),
    )


def _misspelt(source: Source, block: Written) -> tuple[str, str] | None:
    """A block under the name that its own is a typo of, with what is said of its settings done; and that name."""
    if meaning(block.name, exact=True) is not None:
        return None
    names = [*schema.CLAUSES, *schema.bare_choices(), *schema.outer_names()]
    near = spelt_like(block.name, [one for one in names if one not in ("train", "extra", "data", "sweep")])
    if near is None:
        return None
    inside = source.text[block.place.end : block.span.end]
    before = HEADER if block.header else BODY
    right = doing_what_is_said(f"{before}{near}{inside}")
    return None if right is None else (right.removeprefix(before), near)


def _told_within(found: Diagnostic, source: Source, block: Written) -> Diagnostic:
    """The finding for a block in a clause that has none of that name: its settings as those of the clause."""
    lines: list[str] = []
    for name, typed in block.settings:
        lines += _inner(block, f"{block.name}_{name} = {typed}") or _inner(block, f"{name} = {typed}") or [""]
    whole = all(lines)
    before = source.text[source.text.rfind("\n", 0, block.span.start) + 1 : block.span.start]
    between = ", " if before.strip() else f"\n{before}"
    help = "write " + ", ".join(f"`{one}`" for one in lines) if whole else found.help
    if not whole and block.name not in schema.CLAUSES:
        names = ", ".join(row.name for row in schema.children(block.around) if row.path not in NEVER)
        help = f"settings of `{block.around}` stand in it without another block: it has {names}"[:300]
    elif not whole and not help:
        help = f"write `{block.name}` outside of `{block.around}`, whose block ends with a `}}` before it"
    return evolve(
        found,
        code="XP101",
        slug=SLUGS["XP101"][0],
        message=f"`{block.name[:60]}` is not a block of `{block.around}`",
        primary=Label(source, block.place),
        help=help,
        edits=(Edit(block.span, between.join(lines)),) if whole else (),
    )


def _inner(block: Written, line: str) -> list[str]:
    """What a line in a clause means there, once all that is said of it is done; nothing where it is of no use."""
    before = f"{BODY}{block.clause} {{\n"
    right = doing_what_is_said(f"{before}{line}\n}}")
    if right is None or not right.startswith(before) or not right.endswith("\n}"):
        return []
    return right.removeprefix(before).removesuffix("\n}").split("\n")


def _hardware(block: Written) -> list[tuple[str | None, str]]:
    """`hardware { type = h100-80gb, count = 8 }`: the count and the GPU; without one of them nothing is typed."""
    count = gpu = ""
    out: list[tuple[str | None, str]] = []
    for name, typed in block.settings:
        text, said = typed.strip('"'), letters(name)
        if said in NODES:
            out.append((f"nodes{'=' if block.header else ' '}{text}", ""))
        elif text.isdigit() and said in COUNTS:
            count = text
        elif said in KINDS:
            gpu = text
        both = COUNTED.fullmatch(text)
        count, gpu = (both[1], both[2]) if both is not None else (count, gpu)
    gpu, others = _registered(gpu)
    form = f"hardware{'=' if block.header else ' '}"
    if gpu and gpu != "cpu" and registry.find_gpu(gpu) is None:
        return [(None, f"`{gpu[:40]}` is not a GPU of the registry: `xpc list gpus` prints them"), *out]
    if others:
        said = f"write `{form}{count or 8} x {gpu}`, {either(others)}: they are different cards"
        return [(None, said), *out]
    if gpu == "cpu" or (count and gpu):
        return [(form + (f"{count} x {gpu}" if count else gpu), ""), *out]
    if gpu or count:
        form += f"{count or 8} x {gpu or 'h100-80gb'}"
        return [(None, f"write `{form}`, with the {'GPU' if count else 'number'} that you have"), *out]
    return out or [(None, "write `hardware 8 x h100-80gb`: a count and a GPU")]


def _registered(gpu: str) -> tuple[str, tuple[str, ...]]:
    """The registry's name of a GPU, and the others that it may mean as well."""
    known = registry.find_gpu(gpu.lower()) if gpu and gpu != "cpu" else None
    if known is not None or gpu in ("", "cpu"):
        return (gpu if known is None else known.name), ()
    names = likely_gpus(gpu)[0].names
    return (names[0], names[1:]) if names else (gpu, ())


def _alone(block: Written) -> list[tuple[str | None, str]]:
    """`nodes { count = 2 }`, `seed { value = 1 }`: the value of a clause that has no settings."""
    if block.name not in schema.CLAUSES or len(block.settings) != 1:
        return []
    said = meaning_of(f"{block.name}={block.settings[0][1]}", block.header)
    return [(said.form, said.help)]


def _forms(block: Written) -> list[tuple[str | None, str]]:
    """What is written for each setting of a block, or why nothing is; those that one clause has are together."""
    out: list[tuple[str | None, str]] = []
    clause = None if letters(block.name) in EVERYTHING else _clause(block.name)
    clause = None if clause == "launch" else clause  # many of its settings are one engine's: the engine is written, too
    left: list[tuple[str, str]] = []
    bare = False
    for name, typed in block.settings:
        row = schema.BY_PATH.get(clause or "")
        chosen = choice(row, typed.strip('"')) if row is not None and row.choices and name in NAMED else None
        both = f"{block.name}_{name}"
        behind = meaning(both, exact=True) is not None or advice(both, "") or own_reason(both)
        own = clause is not None and f"{clause}.{name}" in schema.BY_PATH
        if typed.strip('"') == clause and name in NAMED:
            bare = True
        elif chosen is not None:
            out.append((f"{clause}={chosen}", ""))
        elif behind and not own:
            said = meaning_of(f"{both}={spelt(typed)}", block.header)
            out.append((said.form, said.help))
        elif clause is None:
            said = meaning_of(f"{name}={typed}", block.header)
            out.append((said.form, said.help))
        else:
            left.append((name, typed))
    if bare and not left:
        out.append((clause, ""))
    if left:
        said = meaning_of(f"{clause}({', '.join(f'{name}={typed}' for name, typed in left)})", block.header)
        out.append((said.form, said.help))
    return out


def _clause(name: str) -> str | None:
    """The clause that a block's name means, or None."""
    meant = meaning(name, exact=True)
    if meant is None:
        meant = meaning(name)
        return meant.path if meant is not None and meant.own and meant.path in schema.CLAUSES else None
    return meant.path if meant.path in schema.CLAUSES and meant.path not in ("train", "extra", "sweep") else None
