"""Rewrite options from command lines, YAML and JSON that were pasted into a spec.

The parser stops at the dash in `--learning_rate 1e-5`, or at the colon in `learning_rate: 1e-5`. The parser's finding
is replaced by a finding about the complete option. This module is imported only for such a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xpc.compiler import registry
from xpc.compiler.language import schema
from xpc.compiler.suggest.flag_values import NAMED
from xpc.compiler.suggest.lines.leaving import LEAVE
from xpc.compiler.suggest.lines.machines import hardware_of
from xpc.compiler.suggest.lines.nested import members
from xpc.compiler.suggest.lines.rewriting import HEADER, Rewritten, body, rewritten_in
from xpc.compiler.suggest.lines.shell import COMMAND, SHELL, command_help
from xpc.compiler.suggest.meaning import is_known, meaning
from xpc.compiler.suggest.pasted_blocks import EVERYTHING, PastedBlock, block_at, heads, joined
from xpc.compiler.suggest.pasted_values import NAMES, as_value
from xpc.compiler.suggest.registry_names import YOUR_GPUS
from xpc.compiler.suggest.sentence import method_of
from xpc.compiler.suggest.similar_choices import choice
from xpc.compiler.suggest.tables import words_of
from xpc.compiler.suggest.unknown_names.case import REFERENCE
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.nearest import letters
from xpc.grammar.record import evolve, record
from xpc.grammar.scan import line_bounds
from xpc.grammar.source import Span

CODES = ("XP014", "XP020", "XP021", "XP025")
VALUE = r"\"[^\"\n]*\"|'[^'\n]*'|\{[^{}\n]*\}|\[[^\]\n]*\]|(?!--?[A-Za-z])[^\s#\\]+"
FLAG = re.compile(rf"--?(?P<name>[A-Za-z][\w.-]*)(?:=(?P<one>{VALUE})|(?P<many>(?:[ \t]+(?:{VALUE}))*))")
ROWS = r"\"[^\"\n]+\.(?:jsonl?|csv|parquet|arrow|txt)\""
YAML = re.compile(
    rf"[ \t]*(?:- )?(?P<name>[A-Za-z_][\w.-]*(?:/[\w.-]+)?|{ROWS}):[ \t]*"
    rf"(?P<one>\d+ ?x ?[A-Za-z][\w.-]*|{VALUE})?[ \t]*(?:(?:#|//).*)?$",
    re.M,
)
KWARG = re.compile(rf"[ \t]*(?P<name>[A-Za-z][\w.-]*)[ \t]*=[ \t]*(?P<one>{VALUE}),?[ \t]*(?:#.*)?")
"""A pattern for `name = value` of Python, TOML or Hydra: with a final comma, single quotes or an unquoted path."""
AFTER_NAME = re.compile(
    r"[ \t]*(?P<name>[A-Za-z][\w.-]*)[ \t]+(?P<one>\[[^\]\n]*\]|[\w.-]+(?:,[\w.-]+)+),?[ \t]*(?:#.*)?"
)
"""A pattern for a list without `=`: `targets [q_proj, v_proj]`, `lora_target q_proj,v_proj`."""
SPACED = re.compile(
    rf"[ \t]*(?P<name>[A-Za-z][\w.-]*(?:[ \t]+\w[\w.-]*){{1,5}})[ \t]*[=:][ \t]*(?P<one>{VALUE}),?[ \t]*(?:#.*)?"
)
NAMES_OF = ("XP014", "XP023", "XP025", "XP030", "XP032", "XP101", "XP102", "XP103", "XP104")
ARGUMENT = re.compile(rf"(?<=[ \t])--(?P<name>[A-Za-z][\w-]*)(?:(?:=|[ \t]+)(?P<one>{VALUE}))?")
"""A pattern for an option of a command, with one value at most."""
BELOW = re.compile(r"\s*\n[ \t]*(?:-|[ \t]\S)")
"""A pattern for the text after the colon of a YAML key if a list or a block is below the key."""
JSON = r"\"[^\"\n]*\"|'[^'\n]*'|\[[^\]\n]*\]|[^\s,{}\"']+"
LINE = re.compile(
    rf"[ \t]*(?P<quote>[\"'])(?P<name>\w+)(?P=quote):[ \t]*(?P<one>\{{[^{{}}\n]*\}}|{JSON}),?[ \t]*(?:#.*)?$", re.M
)
QUOTES = "\"'"
WITH_A_NAME = ("data", "extra", "sweep", "launch", "hardware", "save")
"""Clauses that may have any word after their name, such as `data mix`."""
MOST, GUESSED = 200, 40
"""At most MOST options on a line are rewritten, and only the first GUESSED findings get a guess for a name."""


@record
class Option:
    """An option that was pasted: its position in the text, its name, and its value in xpc's notation."""

    span: Span
    name: str
    value: str | None


def rewrite_options(problems: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Replace the parser's findings about pasted options by findings that say which settings to write instead."""
    out: list[Diagnostic] = []
    end = 0  # findings before this position are about a text that an earlier finding replaces
    named: dict[str, Span] = {}  # in each source, the location of the last name of several words (`learning rate`)
    for one in problems:
        at = one.primary
        if at is None or one.code not in (*CODES, *NAMES_OF):
            out.append(one)
        elif (name := named.get(at.source.name)) is not None and name.start <= at.span.start < name.end:
            continue
        elif at.span.start >= end or one.code not in (*CODES, "XP023"):
            joined = _in_several_words(one, len(out) < GUESSED) if one.code in NAMES_OF else None
            new = joined or (_rewritten(one) if one.code in CODES else one)
            out.append(new)
            places = (block_at(at.source.text, at.span.start, nested) for nested in (True, False))
            blocks = [] if new is one or joined is not None else [block for block in places if block is not None]
            whole = [b.end for b in blocks if b.items or (b.inside and new.primary == Label(at.source, b.first))]
            end = max([end, *whole])
            if joined is not None and joined.primary is not None:
                end = joined.primary.span.end
                named[at.source.name] = joined.primary.span
    return out


def _in_several_words(found: Diagnostic, guess: bool) -> Diagnostic | None:
    """The finding about a setting whose name has several words: `learning rate = 1e-5`. None for any other finding.
    Without `guess`, also None for a name that only resembles a known name, because guessing takes time.
    """
    assert found.primary is not None
    source = found.primary.source
    start, end = line_bounds(source.text, found.primary.span.start, found.primary.span.start)
    match = None if COMMAND.match(source.text, start, end) else SPACED.fullmatch(source.text, start, end)
    top = body(method_of(source.text)) if match is not None else ""
    before = top + heads(source.text, start) if match is not None else ""
    sentence = match is not None and re.match(r"train[ \t]+\S+[ \t]+on[ \t]", match["name"])  # the first line of a spec
    words = match["name"].split() if match is not None else []
    if match is None or sentence or (before == top and _is_clause(words)):
        return None
    name = "_".join(match["name"].split())
    clause = before[len(top) :].split(" ")[0] or None
    known = is_known(name) or meaning(name, clause, exact=True) is not None
    first, _, others = name.partition("_")
    row = schema.BY_PATH.get(f"{clause or ''}.{match['name'].split()[0]}".lstrip("."))
    two = (is_known(first) and is_known(others)) or (row is not None and row.kind.name == "flag")
    if not known and (not guess or two):
        return None  # `rslora rank = 32` and `packing maen = global_tokens` are two settings
    advised = rewritten_in(before, f"{name}={as_value(match['one'])}")
    if not known and advised.form is None and not advised.help.startswith("write "):
        return None
    label = Label(source, Span(match.start("name"), match.end("one")))
    edits = () if advised.form is None else (Edit(label.span, advised.form),)
    message = f"the name of a setting is one word, and `{match['name'][:60]}` is several"
    return evolve(found, message=message, primary=label, help=advised.help, edits=edits)


def _is_clause(words: Sequence[str]) -> bool:
    """Whether words begin a clause on one line, such as `optimizer adamw lr = 1e-5`, or `optim adamw lr = 1e-5` with
    another tool's name. In `eval batch size = 2`, they are the beginning of a name.
    """
    first, second, *rest = words
    if rest and second in schema.bare_choices() and is_known(first):
        return True
    own = second in schema.bare_choices() or f"{first}.{second}" in schema.BY_PATH
    return first in schema.CLAUSES and first != "train" and (own or first in WITH_A_NAME)


def _rewritten(found: Diagnostic) -> Diagnostic:
    assert found.primary is not None
    source, at = found.primary.source, found.primary.span.start
    text = source.text
    start, end = line_bounds(text, at, at)
    command = COMMAND.match(text, start, end)
    if command is not None:
        options = [_option(one, one["one"]) for one in ARGUMENT.finditer(text, start, end)]
        advised = [option_rewritten(one, body(method_of(text))) for one in options[:9]]
        helps = dict.fromkeys([command_help(command), *(one.help for one in advised if one.help.startswith("write "))])
        return evolve(found, message=SHELL, help="; ".join(helps)[:600], edits=())
    block = block_at(text, at, nested=True)
    if block is not None:
        whole = of_members(block.head, block.inside, body(method_of(text)) + heads(text, at))
        label = Label(source, block.first)
        if whole.form is not None:
            message, whole_block = "in a spec, blocks of YAML and JSON become settings", Edit(block.first, whole.form)
            return evolve(found, message=message, primary=label, help=whole.help, edits=(whole_block,))
        if text[at : at + 1] == ":":
            message = f"`{block.head[:60]}:` is not a block of the language"
            return evolve(found, message=message, primary=label, help=whole.help[:600], edits=())
    block = block_at(text, at)
    if block is not None:
        return _block_rewritten(found, block, body(method_of(text)) + heads(text, at))
    top = body(method_of(text))
    before = top + heads(text, at)
    if text[at : at + 2] == "- " and before.startswith(f"{top}data") and text[start:at].strip() == "":
        return evolve(found, message="a source has no dash", help="leave `-` out", edits=(Edit(Span(at, at + 2), ""),))
    if text[at : at + 1] == "-":
        options = flags_of(text, at, end)
        message = "in a spec, options of a command line become settings without dashes"
    elif found.code == "XP021" or text[at : at + 1] == "[":
        mapping = KWARG.fullmatch(text, start, end) or AFTER_NAME.fullmatch(text, start, end)
        options = [_option(mapping, mapping["one"])] if mapping and mapping["one"][:1] in "[{" else []
        options = [one for one in options if (one.value or "")[:1] == "[" or ":" in (one.value or "")]
        message = "a setting is written `name = value`, and a block without `=`"
    elif (keyword := _keyword(text, at, start, end)) is not None:
        options = [_option(keyword, keyword["one"].rstrip(","))]
        message = f"unexpected `{text[at]}`"
    else:
        colon = text[at : at + 1] in (":", "'")
        match = (YAML.fullmatch(text, start, end) or LINE.fullmatch(text, start, end)) if colon else None
        options = [] if match is None else [_option(match, match["one"] and match["one"].rstrip(","))]
        message = f"in a spec, lines of {'JSON' if match and match.re is LINE else 'YAML'} become settings with `=`"
    if not options:
        return found
    header = "train" in text[start:at].split()
    before = HEADER if header else before
    rewrites = [option_rewritten(one, before) for one in options]
    shown = [one.help + ", without a comma" * (text[at] == "," and one.form is not None) for one in rewrites]
    edits = tuple(Edit(one.span, rewrite.form) for one, rewrite in zip(options, rewrites) if rewrite.form is not None)
    span = Span(options[0].span.start, options[-1].span.end)
    return evolve(
        found,
        message=message if len(edits) == len(options) or len(options) > 1 else f"{message}: `{options[0].name[:60]}`",
        primary=Label(source, span),
        help="; ".join(dict.fromkeys(shown))[:600],
        edits=edits if len(edits) == len(options) < MOST and (header or len(options) == 1) else (),
    )


def no_block(name: str) -> str:
    """The message about a clause with a block, although it takes a single value."""
    return f"`{name}` takes its value on the same line, not in a block of settings"


def _block_rewritten(found: Diagnostic, block: PastedBlock, before: str) -> Diagnostic:
    """The finding about the first line of a pasted block, or about a list of YAML."""
    assert found.primary is not None
    label = Label(found.primary.source, block.first)
    if not block.head:
        line = found.primary.source.text[block.first.start : block.first.end].strip()
        message = f"`{line}` is not a block of the language"
        return evolve(found, message=message, primary=label, help="leave the line out", edits=block.edits)
    if block.head == "hardware":
        text = found.primary.source.text[block.first.start : block.first.end]
        pairs = re.findall(r"^[ \t]+([A-Za-z]\w*)[ \t]*:[ \t]*[\"']?([\w.-]+)", text, re.MULTILINE)
        machines = hardware_of(pairs, False) if pairs else []
        if machines and all(form is not None for form, _ in machines):
            lines = "\n".join(form for form, _ in machines if form is not None)
            help = f"write `{lines}`".replace("\n", "`, `")
            made = (Edit(block.first, lines),)
            return evolve(found, message=no_block("hardware"), primary=label, help=help, edits=made)
        return evolve(found, message=no_block("hardware"), primary=label, help=YOUR_GPUS, edits=())
    whole = None if block.items or block.brace is None else _of_pairs(found.primary.source.text, block, before)
    if whole is not None and block.brace is not None:
        span = Span(block.first.start, block.brace.end)
        message = "in a spec, blocks of JSON become settings"
        return evolve(found, message=message, primary=label, help=whole.help, edits=(Edit(span, whole.form or ""),))
    if not block.items:
        message = "a block of xpc begins with its name and `{`, and ends with `}`"
        return evolve(found, message=message, primary=label, help=f"write `{block.head} {{`", edits=block.edits)
    value = f"[{', '.join(as_value(one) for one in block.items)}]"
    advised = rewritten_in(before, f"{block.head.replace('-', '_')}={value}")
    edits = () if advised.form is None else (Edit(block.first, advised.form),)
    message = "in a spec, lists of YAML become settings with `=`"
    return evolve(found, message=message, primary=label, help=advised.help, edits=edits)


def _of_pairs(text: str, block: PastedBlock, before: str) -> Rewritten | None:
    """Rewrite a JSON block that is not a clause, such as `"bf16": { "enabled": true }`, as a setting. None if no
    setting corresponds.
    """
    inside = text[block.first.end : block.brace.start if block.brace is not None else block.end]
    if block.head in schema.CLAUSES or members(f"{{{inside}}}") is None:
        return None
    found = _mapping(Option(block.first, block.head.rpartition(" ")[2], f"{{{inside}}}"), before)
    return None if found.form is None else found


def _keyword(text: str, at: int, start: int, end: int) -> re.Match[str] | None:
    """Match `name = value` around the position `at`, if the character there is a comma, a quote or a slash. The match
    is the text from `start` to `end` or, if this text does not match, the word around `at`.
    """
    listed = AFTER_NAME.fullmatch(text, start, end)
    if listed is not None and listed["one"][:1] != "[" and is_known(listed["name"]):
        return listed
    if text[at : at + 1] not in ("'", "/", ",", "$"):
        return None
    first = max(text.rfind(blank, start, at) for blank in " \t\n") + 1
    clause = text[start:first].strip() and not re.match(r"\s*train\b", text[start:first])
    if text[at] == "," and clause and re.match(r",[ \t]*[\w.-]+[ \t]*=", text[at:end]):
        return None  # a clause whose settings have commas between them: `lora rank=16, alpha=32`
    run = re.compile(r"\S+").match(text, first, end)
    for one, other in ((start, end), (first, end if run is None else run.end())):
        found = KWARG.fullmatch(text, one, other)
        if found is not None and NAMES.fullmatch(found["one"]):
            return found  # the value of the option contains commas, as in `lora_target_modules=q_proj,v_proj`
        if found is not None and not re.fullmatch(
            r"[^\"'\[{].*[,=].*[^,]", found["one"]
        ):  # this condition excludes numbers such as `4,096`
            return found
    return None


def flags_of(text: str, at: int, end: int) -> list[Option]:
    """The options on a line, beginning at the first dash."""
    out: list[Option] = []
    while at < end and len(out) < MOST:
        match = FLAG.match(text, at, end)
        if match is None:
            break
        many = re.findall(VALUE, match["many"] or "")
        out.append(
            _option(match, match["one"] or (many[0] if len(many) == 1 else f"[{', '.join(many)}]" if many else None))
        )
        at = match.end()
        while at < end and text[at] in " \t":
            at += 1
    return out


def _option(match: re.Match[str], value: str | None) -> Option:
    text = match.string
    start = match.start("name")
    while start and text[start - 1] in "-\"'":
        start -= 1
    end = (
        match.end("one") + (match.re is KWARG and text[match.end("one") : match.end("one") + 1] == ",")
        if match["one"] is not None and match.re is not LINE
        else match.end()
        if "many" in match.re.groupindex or match.re is LINE
        else match.end("name") + 1
    )
    typed = match["name"]
    legal = typed in schema.CLAUSES
    if value is None and match.re is YAML and not legal and not BELOW.match(text, match.end()):
        value = "null"  # a name of YAML without a value
    name = typed.replace("-", "_") if typed[:1] != '"' and "/" not in typed else typed
    return Option(Span(start, end), name, None if value is None else as_value(value))


def option_rewritten(option: Option, before: str) -> Rewritten:
    """Rewrite an option as a setting that may follow the text `before`. An option `no_NAME` becomes the opposite of
    `NAME`.
    """
    if option.value is None and option.name.startswith("no_"):
        opposite = rewritten_in(before, f"{option.name[3:]}=false")
        if opposite.form is not None:
            return opposite
    if option.value is not None and option.value.startswith("{"):
        return _mapping(option, before)
    if option.value is not None and option.value.strip('"').startswith("$"):
        help, named = "a spec has no variables, and reads no environment", rewritten_in(before, option.name).help
        write = f"{named}, with your value" if named.startswith("write ") else "write the value itself"
        return Rewritten(None, named if named.startswith("leave ") else f"{write}: {help}")
    weight = re.fullmatch(r"0?\.\d+|\d+(?:\.\d+)?%", option.value or "")
    # a dataset with its share in a `data` block, such as `alpaca: 0.7`
    if weight is not None and registry.find_dataset(option.name) is not None:
        share = weight[0] if weight[0].endswith("%") else f"{100 * float(weight[0]):.4g}%"
        form = f"{option.name} {{ share = {share} }}"
        return Rewritten(form, f"write `{form}`")
    return rewritten_in(before, option.name if option.value is None else f"{option.name}={option.value}")


def _mapping(option: Option, before: str) -> Rewritten:
    """Rewrite a mapping of JSON as settings. The name of a setting is looked up by the name of the mapping together
    with a key in it: `lora` and `r` give `lora_r`.
    """
    inside = members(option.value or "") or []
    row = schema.BY_PATH.get(option.name)
    chosen = [one for one in inside if row is not None and row.head and row.choices and one[0] in NAMED]
    called = None if row is None or len(chosen) != 1 else choice(row, chosen[0][1].strip(QUOTES))
    if called is not None:  # the mapping contains a choice, as in `optimizer: {name: adamw, lr: 2e-5}`
        rest = ", ".join(f"{name}={as_value(value)}" for name, value in inside if name != chosen[0][0])
        return rewritten_in(before, f"{option.name} {called}({rest})" if rest else f"{option.name} {called}")
    settings = ", ".join(f"{name}={as_value(value)}" for name, value in inside)
    whole = rewritten_in(before, f"{option.name}({settings})")
    if inside and whole.form is not None:
        return whole
    pairs = ", ".join(f'"{name}={value.strip(QUOTES)}"' for name, value in inside)
    texts = rewritten_in(before, f"{option.name}=[{pairs}]") if option.name in ("env", "environment") else whole
    if inside and texts.form is not None:
        return texts
    return of_members(option.name, inside, before)


def of_members(head: str, inside: Sequence[tuple[str, str]], before: str) -> Rewritten:
    """Rewrite the members of a mapping that has the name `head`. Each member is read next to the settings of the
    members before it. This matters for settings such as `offload`, which are legal only in some strategies.
    """
    header = before.startswith(HEADER)
    forms: list[str] = []
    helps: list[str] = []
    complete = True
    for name, value in inside:
        names = _names(f"{head}.{name}")
        lines = "" if header or before.count("{\n") else "".join(f"{one}\n" for one in joined(forms))
        places = [before, before + lines] if lines else [before]
        ways = [rewritten_in(place, f"{one}={as_value(value)}") for place in places for one in names]
        helpful = [one for one in ways if REFERENCE not in one.help] or ways
        certain = next((one for one in helpful if one.help.startswith("write ")), helpful[0])
        alone = head in schema.outer_names() and letters(head) not in EVERYTHING and name[:1].isalpha()
        strange = alone and not (is_known(f"{head}_{name}") or is_known(name) or name in words_of("general"))
        found = next((one for one in ways if one.form is not None), certain)
        if strange:  # `lr: {foo: 1}` states no rate
            found = Rewritten(None, f"`{head}` has no `{name}`")
        idle = found.form is None and LEAVE.fullmatch(found.help) is not None
        forms += [] if found.form is None else [found.form]
        complete = complete and (found.form is not None or idle)
        helps.append(found.help)
    if not inside:
        named = rewritten_in(before, head).help
        return Rewritten(None, named if named.startswith("leave ") else f"a setting is written `{head} = value`")
    form = (" " if header else "\n").join(joined(forms)) if complete and forms else None
    return Rewritten(form, "; ".join(dict.fromkeys(helps)) if form is None else f"write `{form}`".replace("\n", "`, `"))


def _names(dotted: str) -> list[str]:
    """The names to try for a nested name: `offload_param_device` for `zero_optimization.offload_param.device`. The
    names do not contain the names of general blocks such as `zero_optimization`.
    """
    parts = dotted.split(".")
    parts = [one for one in parts[:-1] if letters(one) not in (*EVERYTHING, "kwargs", "")] + parts[-1:]
    return ["_".join(parts), ".".join(parts), *(["_".join(parts[1:])] if len(parts) > 2 else [])]
