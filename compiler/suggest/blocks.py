"""Rewrite other tools' blocks as settings of xpc.

`early_stopping { patience = 3 }` becomes `eval(patience=3)`, `peft { r = 16 }` becomes `lora(rank=16)`, and `hardware {
count = 8 ... }` becomes `hardware 8 x GPU`. Imported only for a wrong spec.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from xpc.compiler.language import schema
from xpc.compiler.language.codes import CODES as SLUGS
from xpc.compiler.language.expand import expand
from xpc.compiler.language.kinds import FLAG
from xpc.compiler.suggest.extra_form import extra_argument
from xpc.compiler.suggest.flag_values import NAMED, choice_of_class
from xpc.compiler.suggest.joined_values import join_values
from xpc.compiler.suggest.likeness import typo_of, words
from xpc.compiler.suggest.lines.choices import move_choices
from xpc.compiler.suggest.lines.header import rewrite_header
from xpc.compiler.suggest.lines.leaving import LEAVE, leave_out
from xpc.compiler.suggest.lines.lists import rewrite_lists
from xpc.compiler.suggest.lines.machines import hardware_of, rewrite_machines
from xpc.compiler.suggest.lines.marks import rewrite_marked
from xpc.compiler.suggest.lines.moves import move_length, move_out
from xpc.compiler.suggest.lines.rewriting import BODY, rewritten, with_comments
from xpc.compiler.suggest.lines.sentences import of_one_sentence, rewrite_sentences
from xpc.compiler.suggest.lines.shell import SHELL
from xpc.compiler.suggest.lines.sources import SOURCES, rewrite_sources
from xpc.compiler.suggest.lines.twice import join_clauses, join_edits, join_machines
from xpc.compiler.suggest.lines.values import rewrite_values
from xpc.compiler.suggest.meaning import is_known, meaning
from xpc.compiler.suggest.no_equivalent import advice, own_reason
from xpc.compiler.suggest.numbers import rewrite_number
from xpc.compiler.suggest.pasted import no_block, rewrite_options
from xpc.compiler.suggest.pasted_blocks import EVERYTHING, clause_of, joined, of_one_clause
from xpc.compiler.suggest.pasted_values import as_value
from xpc.compiler.suggest.sentence import method_of
from xpc.compiler.suggest.similar_choices import choice
from xpc.compiler.suggest.tables import words_of
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.nearest import letters
from xpc.grammar.parse import parse
from xpc.grammar.record import evolve, record
from xpc.grammar.source import Source, Span
from xpc.grammar.tree import Call, Clause, Ref, Setting, String, Value

CODES = ("XP101", "XP102")
GENERAL = (*EVERYTHING, "train")
"""Names of blocks with settings of all kinds, such as `training { lr = 1e-5 }`."""
CALL = "a Python call is written as settings"


@record
class Block:
    """A block as the user wrote it. `settings` are its settings, each with its value as text. `header` is true if the
    block stands after `with` in the `train` line. `python` is true for a Python call such as
    `args = SFTConfig(packing=True)`. `method` is the spec's training method.
    """

    name: str
    span: Span
    location: Span
    settings: tuple[tuple[str, str], ...]
    header: bool
    python: bool = False
    method: str = ""


def rewrite_foreign_forms(problems: Sequence[Diagnostic]) -> tuple[list[Diagnostic], set[str]]:
    """Add a help to each finding about another tool's notation: what to write in xpc's notation. Returns a pair: the
    findings, and the paths of the settings that blocks of other tools stand for.

    The findings in a file with a very long line are returned as they are, because some patterns need a time that grows
    with the square of a line's length.
    """
    sources = {one.primary.source.name: one.primary.source for one in problems if one.primary is not None}
    long = {name for name, one in sources.items() if max(map(len, one.text.split("\n"))) > LONGEST_LINE}
    kept, others = list[Diagnostic](), list[Diagnostic]()
    for one in problems:
        (kept if one.primary is not None and one.primary.source.name in long else others).append(one)
    values = rewrite_values(others)
    kept += [one for one in values if one not in others]
    others = [one for one in values if one in others]
    found = [
        one if one.message == SHELL else rewrite_number(one)
        for one in rewrite_options(rewrite_lists(rewrite_sources(rewrite_sentences(others))))
    ]
    found = of_one_sentence(rewrite_marked(move_out(rewrite_header(found))))
    found, intended = rewrite_blocks(
        join_machines(
            join_edits(join_clauses(leave_out(move_length(move_choices(join_values(rewrite_machines(found)))))))
        )
    )
    return [with_comments(one) for one in (*kept, *found)], intended


LONGEST_LINE = 4000
"""A line with more characters than this is very long."""
MOST = 100
"""At most this many blocks get a help. A help takes 10 ms for a block, and a language server computes it again at each
key that the user types.
"""


def rewrite_blocks(found: Sequence[Diagnostic]) -> tuple[list[Diagnostic], set[str]]:
    """Replace the findings inside each unknown block by one finding about the block. Returns a pair: all findings, and
    the paths of the settings that the blocks stand for.
    """
    out: list[Diagnostic | None] = list(found)
    intended: set[str] = set()
    rewritten_blocks = 0
    sources: dict[str, tuple[Source, list[tuple[int, int]]]] = {}
    for at, one in enumerate(found):
        if one.primary is not None:
            label = one.primary
            sources.setdefault(label.source.name, (label.source, []))[1].append((label.span.start, at))
    for source, starts in sources.values():
        starts.sort()
        for block in _blocks(_of_python(source)):
            first, after = (bisect_left(starts, (bound, 0)) for bound in (block.span.start, block.span.end))
            inside = sorted(at for _, at in starts[first:after])
            known = all(found[at].code not in CODES for at in inside) and letters(block.name) not in GENERAL
            known = known or any(found[at].message == SOURCES for at in inside)
            if inside and rewritten_blocks < MOST and (block.python or (not known and _is_foreign(block))):
                rewritten_blocks += 1
                made = _rewritten(found[inside[0]], source, block)
                intended |= _paths(made, block)
                for at in inside:
                    out[at] = None
                out[inside[0]] = made
    return [one for one in out if one is not None], intended


def _paths(found: Diagnostic, block: Block) -> set[str]:
    """The paths of the settings that a block stands for. Rules treat these settings as written by the user, so no rule
    reports their default values.
    """
    forms = "\n".join(edit.text.replace(" ", "\n") if block.header else edit.text for edit in found.edits)
    paths = set(expand(parse(Source("block.xp", f"{BODY}{forms}\n"))[0]).items)
    return {path for path in paths if not path.startswith("train.")} or {block.name}


def _is_foreign(block: Block) -> bool:
    """Whether a block is written for another tool: xpc has no block of this name, and the name does not misspell the
    name of a block of xpc. `seed { ... }` also counts, because `seed` takes a single value in xpc.
    """
    if letters(block.name) in GENERAL:
        return True  # `config { lr = 1e-5 }` is another tool's block, although `model` has a setting `config`
    if block.name in schema.CLAUSES:
        return not any(schema.children(block.name)) and block.name not in ("sweep", "extra", "data", *schema.ADAPTERS)
    names = [*schema.CLAUSES, *schema.bare_choices(), *schema.outer_names()]
    clause = typo_of(block.name, [one for one in schema.CLAUSES if one != "train"])
    typo = meaning(block.name, exact=True) is None and typo_of(block.name, names) is not None
    if clause is not None and all(f"{clause}.{name}" in schema.BY_PATH for name, _ in block.settings):
        return False
    return block.name not in names and not typo


def _blocks(source: Source) -> Iterator[Block]:
    """The blocks and calls of a text whose contents are only settings."""
    file = parse(source)[0]
    for node in (*(file.train.options if file.train else ()), *file.statements):
        if isinstance(node, Setting):
            call = node.value
            block = (
                _call_of_python(node.name.text, node.name.span.start, call, source) if isinstance(call, Call) else None
            )
            yield from () if block is None else (block,)
            continue
        if isinstance(node, Clause) and node.operands:
            continue
        head = node.head if isinstance(node, Clause) else node
        body: tuple[Setting | Clause | Value, ...] = (
            node.block.statements if isinstance(node, Clause) and node.block else ()
        )
        if isinstance(head, Call):
            name, location, body = head.name.text, head.name.span, (*head.args, *body)
        elif isinstance(head, Ref) and head.is_name:
            name, location = head.name, head.span
        else:
            continue
        if body and all(isinstance(one, Setting) for one in body):
            yield Block(
                name,
                node.span,
                location,
                _settings(body, source),
                isinstance(node, Call),
                False,
                method_of(source.text),
            )


PYTHON = re.compile(r"(?P<name>[A-Z]\w*?)(?:Config|Arguments|Args)")
"""A pattern for the classes that contain a trainer's settings: `SFTConfig`, `TrainingArguments`, `LoraConfig`."""
LOADED = re.compile(r"(?P<name>[\w.]+)\.(?:from_pretrained|get_peft_model)")
"""A pattern for the functions that load a model: `FastLanguageModel.from_pretrained`."""
RESULTS = re.compile(
    r"^(?P<first>[ \t]*\w+)(?P<rest>(?:[ \t]*,[ \t]*\w+)+)(?=[ \t]*=[ \t]*[A-Za-z_][\w.]*\()", re.MULTILINE
)
"""A pattern for the beginning of a call whose results are assigned to several names: `model, tokenizer =
FastLanguageModel.from_pretrained(`.
"""
COLON = re.compile(r"^([ \t]*\w+):(?= [A-Za-z_][\w.]*\([^()\n]*\)[ \t]*$)", re.MULTILINE)
"""A pattern for a call after a colon: `peft_config: LoraConfig(r=16)`."""
TUPLE = re.compile(r"=\(([\d.eE, -]+)\)")
SINGLE = re.compile(r"=[']([^'\"\n\\]*)[']")
"""Patterns for a tuple of numbers, and for a text in single quotes: `betas=(0.9, 0.95)`, `output_dir='out'`."""
TRAIN = re.compile(r"^train(?=[ \t]*[({])", re.MULTILINE)
"""A pattern for `train` as the name of a block: `train { lr = 1e-5 }`. The parser keeps a block only if it has another
name.
"""


def _of_python(source: Source) -> Source:
    """The source, with Python calls written as settings. Each character stays at its position."""
    text = RESULTS.sub(lambda found: found["first"] + " " * len(found["rest"]), source.text)
    text = SINGLE.sub(r'="\1"', TUPLE.sub(r"=[\1]", text))
    text = TRAIN.sub("Train", COLON.sub(r"\1=", text))
    return source if text == source.text else Source(source.name, text)


def _call_of_python(name: str, start: int, call: Call, source: Source) -> Block | None:
    """Read a Python call that is assigned to a name as a block: `args = SFTConfig(packing=True)`, `peft_config =
    LoraConfig(r=16)` or `lora = dict(r=16)`. None for any other value.
    """
    # a trainer contains the call with the settings: `SFTTrainer(args=SFTConfig(...))`
    if call.name.text.endswith(("Trainer", "get_peft_model")):
        values = [one.value if isinstance(one, Setting) else one for one in call.args]
        inner = [one for one in values if isinstance(one, Call)]
        blocks = [_call_of_python(name, start, one, source) for one in inner]
        block = next((one for one in blocks if one is not None), None)
        span = Span(start, call.span.end)
        if block is None and not inner and call.name.text.endswith("Trainer"):
            return Block("trainer", span, span, (), False, True)  # no settings: `SFTTrainer(model=model)`
        if block is not None:
            return evolve(block, span=span, location=span)
    loaded = LOADED.fullmatch(call.name.text)
    first = call.args[0] if call.args else None
    named = (("model_name", source.slice(first.span)),) if loaded and isinstance(first, String) else ()
    # the first argument may be an object: `get_peft_model(model, r=16)`, `AdamW(model.parameters(), lr=1e-5)`
    settings = call.args[1:] if named or isinstance(first, Ref | Call) else call.args
    if not call.args or not all(isinstance(one, Setting) for one in settings):
        return None
    match = PYTHON.fullmatch(call.name.text) or loaded
    if match is not None:
        known = meaning(match["name"], exact=True)
        name = match["name"].lower() if known is not None and known.path in schema.ADAPTERS else "training"
        name = "quantization" if match["name"] == "BitsAndBytes" else name
    elif any(call.name.text in row.choices for row in schema.TABLE if row.name in (name, name.partition("_")[0])):
        return None  # a choice with an argument: `init = loftq(bits=4)`
    elif (chosen := choice_of_class(call.name.text)) is not None:
        name, named = "training", (chosen,)
    elif call.name.text != "dict":
        pairs = _settings(settings, source)
        if not all(is_known(one) and meaning(one, exact=True) is not None for one, _ in pairs):
            return None
        if not pairs:  # no settings: `trainer = train_on_responses_only(trainer)`
            return _function(call.name.text.rpartition(".")[2], Span(start, call.span.end), source)
        name = "training"
    span = Span(start, call.span.end)
    stated = named + tuple((one, as_value(typed)) for one, typed in _settings(settings, source))
    return Block(name, span, span, stated, False, True, method_of(source.text))


def _function(name: str, span: Span, source: Source) -> Block | None:
    """The block for a function whose name says what it sets, such as `train_on_responses_only`. None for any other
    function.
    """
    known = meaning(name, exact=True)
    if known is None and advice(name, "") is None and own_reason(name) is None:
        return None
    return Block("training", span, span, ((name, "true"),), False, True, method_of(source.text))


def rewrite_config(found: Diagnostic) -> Diagnostic:
    """Rewrite the finding about `config = LoraConfig(r=16)`, which is not the `config` of a model: the help has the
    settings of the call. Returns the finding unchanged for any other value of `config`.
    """
    label = found.primary
    for node in () if label is None else parse(label.source)[0].statements:
        if isinstance(node, Setting) and isinstance(node.value, Call) and label is not None:
            inside = node.span.start <= label.span.start < node.span.end
            block = _call_of_python("training", node.span.start, node.value, label.source) if inside else None
            if block is not None:
                return _rewritten(found, label.source, block)
    return found


def _settings(body: Sequence[Setting | Clause | Value], source: Source) -> tuple[tuple[str, str], ...]:
    return tuple(
        (one.name.text, source.slice(one.value.span))
        for one in body if isinstance(one, Setting)
    )  # fmt: skip


def _rewritten(found: Diagnostic, source: Source, block: Block) -> Diagnostic:
    if not block.settings:
        help = "leave it out: the bundle has its own trainer"
        return evolve(found, message=CALL, primary=Label(source, block.location), help=help, edits=())
    advised = hardware_of(block.settings, block.header) if block.name == "hardware" else []
    advised = advised or _one_clause(block) or _forms(block)
    advised = of_one_clause(advised)
    advised = [one for one in advised if one[0] is not None or not LEAVE.fullmatch(one[1])] or advised
    complete = all(form is not None for form, _ in advised)
    forms = joined([form for form, _ in advised if form is not None])
    text = (" " if block.header else "\n").join(forms)
    help = ", ".join(f"`{form}`" for form in forms)
    rest = "; ".join(dict.fromkeys(help for form, help in advised if form is None))
    known, name = block.name in schema.CLAUSES, "train" if block.name == "Train" else block.name[:60]
    message = no_block(name) if known else f"`{name}` is not a block of the language"
    message = CALL if block.python else message
    code = "XP102" if known else "XP101"
    return evolve(
        found,
        code=code,
        slug=SLUGS[code][0],
        message=message,
        primary=Label(source, block.location),
        help="; ".join(filter(None, (f"write {help}" if forms else "", rest)))[:600],
        edits=(Edit(block.span, text),) if complete else (),
    )


def _one_clause(block: Block) -> list[tuple[str | None, str]]:
    """The clause for a Python call that names its choice: `optimizer adamw(lr=1e-5)` for `optim = AdamW(lr=1e-5)`.
    Empty if some of the settings belong to other clauses.
    """
    (head, chosen), *rest = block.settings
    if not rest or not block.python or head not in schema.BY_PATH or not schema.BY_PATH[head].head:
        return []
    settings = ", ".join(f"{name}={typed}" for name, typed in rest)
    advised = rewritten(f"{head} {chosen}({settings})", block.header, block.method)
    return [(advised.form, "")] if advised.form is not None else []


def _forms(block: Block) -> list[tuple[str | None, str]]:
    """Rewrite each setting of a block as a setting of xpc. Returns pairs of the text to type and a help. The text is
    None if no setting of xpc corresponds. Settings of the same clause are joined.
    """
    out: list[tuple[str | None, str]] = []
    clause = None if letters(block.name) in GENERAL else _clause(block.name)
    # suggest nothing in `launch`: most of its settings are legal with one scheduler only, and another tool's block does
    # not name the scheduler
    clause = None if clause == "launch" else clause
    intended = meaning(block.name, exact=True) if clause is None else None
    switch = None if intended is None else schema.BY_PATH.get(intended.path)
    alone = switch is not None and switch.kind is FLAG and switch.path.count(".") == 1
    if switch is not None and alone and not any(schema.children(switch.path)):
        clause = switch.path.partition(".")[0]  # `dora(rank=16)` is `lora(dora, rank=16)`
        out.append((f"{clause}({switch.name})", ""))
    remaining: list[tuple[str, str]] = []
    for name, typed in block.settings:
        row = schema.BY_PATH.get(clause or "")
        chosen = choice(row, typed.strip('"')) if row is not None and row.choices and name in NAMED else None
        general = letters(block.name) in GENERAL and is_known(name)
        # `checkpoint { enable_checkpoint = true }`: the name has the block's words
        both = name if general or {*words(block.name)} < {*words(name)} else f"{block.name}_{name}"
        own = clause is not None and f"{clause}.{name}" in schema.BY_PATH
        if chosen is not None:
            out.append((f"{clause}={chosen}", ""))
        elif not own and (is_known(both) or extra_argument(both, None, None, False) is not None):
            advised = rewritten(f"{both}={as_value(typed)}", block.header, block.method)
            out.append((advised.form, advised.help))
        elif clause is None:
            # a name such as `mode` says nothing without the block
            known_as = both if name in words_of("general") and letters(block.name) not in GENERAL else name
            advised = rewritten(f"{known_as}={typed}", block.header, block.method)
            # an unknown block does not turn on an adapter: `neftun(alpha=5)` is not `lora(alpha=5)`
            home = clause_of(advised.form or "") if letters(block.name) not in GENERAL else ""
            adapter = home in schema.ADAPTERS and f"{home}.{name}" in schema.BY_PATH
            out.append((None if adapter else advised.form, advised.help))
        else:
            remaining.append((name, typed))
    if remaining:
        advised = rewritten(
            f"{clause}({', '.join(f'{name}={typed}' for name, typed in remaining)})", block.header, block.method
        )
        out.append((advised.form, advised.help))
    return out


def _clause(name: str) -> str | None:
    """The clause for a block that another tool names, such as `lora` for the block `peft`. None if no clause
    corresponds to the block.
    """
    intended = meaning(name, exact=True)
    if intended is None:
        intended = meaning(name)
        return intended.path if intended is not None and intended.own and intended.path in schema.CLAUSES else None
    return (
        intended.path if intended.path in schema.CLAUSES and intended.path not in ("train", "extra", "sweep") else None
    )
