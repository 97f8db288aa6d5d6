"""Suggest what to write instead of a wrong value: the value that the user probably meant, or a description of the legal
values. This module is imported only for a wrong spec.
"""

from __future__ import annotations

import re
from functools import partial

from xpc.compiler import stacks
from xpc.compiler.language.codes import report
from xpc.compiler.language.convert import convert
from xpc.compiler.language.items import Item
from xpc.compiler.language.schema import ADAPTERS, BY_PATH, CLAUSES, Setting, bare_choices, children
from xpc.compiler.language.values import InvalidValue
from xpc.compiler.suggest.converted_values import NO, SWITCHES, bounds, converted, expected, methods_with
from xpc.compiler.suggest.converted_values import legal as in_words
from xpc.compiler.suggest.known_names import known_choice
from xpc.compiler.suggest.lines.notations import holdout_help, is_legal, notation
from xpc.compiler.suggest.meaning import is_known, meaning
from xpc.compiler.suggest.no_equivalent import NO_EQUIVALENT, advice, no_such_choice, own_reason, pair_advice
from xpc.compiler.suggest.numbers import fraction
from xpc.compiler.suggest.similar_choices import choice, open_setting
from xpc.compiler.suggest.tables import examples, mapped, words_of
from xpc.compiler.suggest.unset_values import ALREADY, SWITCHED_OFF, leave_out, null_value, unset_advice
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.record import evolve
from xpc.grammar.scan import line_bounds
from xpc.grammar.source import Span
from xpc.grammar.tree import Call, Count, List, Number, Ref, String, Value
from xpc.grammar.tree import Setting as Assigned

ONE = (
    "int", "tokens", "real", "choice", "duration", "every", "share", "steps_or_share", "real_or_share", "rows_or_share",
)  # fmt: skip
"""Kinds of settings that take a single value."""
TYPES = ("int", "float", "str", "bool")
"""Types of Python, as in `seed = int(7)`."""
AUTO = ("model.dtype",)
"""Settings for which `auto` in another tool's configuration means bf16 on a GPU that has bf16."""
STAGE = re.compile(r"[ \t]*[({]\s*(?:zero_)?stage\s*=\s*(?P<stage>[123])\b(?P<end>\s*[)}])?")
ZEROS = ("zero1", "zero2", "zero3")
ARGUMENT = re.compile(r"write `\w+ (?P<choice>\w+)\((?P<setting>\w+)=\.\.\.\)`|")
"""A pattern for a choice that needs a setting: `schedule cosine(min_lr=...)`."""
FURTHER = re.compile(r"[ \t]*,[ \t]*([A-Za-z_]\w*)(?=[ \t]*[,)}])")
"""A pattern for a further item of a list without brackets."""
LOST_SIGN = re.compile(r"(\d+(?:\.\d+)?)[eE]\+?(\d+)")
Help = tuple[str, *tuple[Edit, ...]]
"""The text of a help, and the edits with which an editor applies the help."""
EXAMPLE = r"(\d+ x \S+|\[[^\]]*\]|\"[^\"]*\"|file\([^)]*\)|[^\s,(){]+)"
"""A pattern for a value in a line of the examples file (examples.toml)."""


def answer(wrong: InvalidValue) -> Diagnostic:
    """The finding for a wrong value. It says what to write instead."""
    row, item, node, text = wrong.row, wrong.item, wrong.node, wrong.text
    at = Label(item.label.source, item.label.span if node is None else node.span, text)
    other = _of_another_clause(row, item)
    if other is not None:
        return report(wrong.code, wrong.message, at, help=other[0], edits=other[1:])
    if wrong.kind == "explained":
        return report(wrong.code, wrong.message, at, help=wrong.help)
    null = null_value(row, item, node, at)
    if null is not None:
        return report(wrong.code, wrong.message, at, help=null[0], edits=null[1])
    if wrong.kind == "choice" and isinstance(node, Ref):
        return _choice(wrong, row, item, node, at)
    if wrong.kind == "fraction" and isinstance(node, Number):
        return fraction(row, node, at)
    if wrong.kind == "bounds":
        large = isinstance(node, Number) and abs(node.value) >= 2**63  # no setting accepts a number of this size
        limits = "" if large else bounds(row)
        at = Label(at.source, at.span, f"a number{limits or ' that is finite and below 2^63'}")
    typed = "" if node is None else item.label.source.slice(node.span).strip('"').lower()
    steps = (
        _call_of_python, _unset_value, _plain_form, _setting_of_a_flag, _setting_of_save, _several_runs,
    )  # fmt: skip
    for step in steps:
        found = step(row, item, node, typed)
        if found is not None:
            return report(wrong.code, wrong.message, at, help=found[0], edits=found[1:])
    if row.kind.name == "choices" and isinstance(item.node, List):
        node, value = item.node, None
    else:
        complete = (
            item.node if row.kind.name in ("reals", "weighted", "choices") else node if node is item.node else None
        )
        source = item.label.source
        whole = None if complete is None else notation(row, source.slice(complete.span), source.text)
        # the number without its unit means something else: `2kb` is not 2
        value = whole or (None if isinstance(node, Number) and node.unit else wrong.value)
    value = value or intended(row, item, node)
    if row.kind.name in ("names", "targets", "tasks") and isinstance(node, Ref) and node is item.node:
        end, text = node.span.end, item.label.source.text  # the list may have no brackets: `columns=instruction,output`
        while (more := FURTHER.match(text, end)) and f"{row.clause}.{more[1]}" not in BY_PATH:
            if "_" in more[1] and is_known(more[1], loosely=False):
                break  # a setting of another tool
            end = more.end()
        if end > node.span.end:
            value, node = f"[{text[node.span.start : end]}]", evolve(node, span=Span(node.span.start, end))
            item = evolve(item, node=node)
    value = None if row.kind.name == "tasks" and value and not is_legal(row, value) else value
    # in a list of numbers, the edit replaces the complete list, even if only one number is wrong
    part = item.node if row.kind.name == "reals" else node
    edits = (Edit(part.span, value),) if value and wrong.edit and part is not None and part is item.node else ()
    if edits and row.head and "(" in edits[0].text and "=" in item.label.source.slice(item.label.span):
        edits = (Edit(item.label.span, _form(row, edits[0].text)),)
    help = f"write `{_form(row, value)}`" if value else legal(row, item, node)
    return report(wrong.code, wrong.message, at, help=wrong.help or help, edits=edits)


def _of_another_clause(row: Setting, item: Item) -> Help | None:
    """The help for a choice of another clause together with settings: `loss = dpo(beta=0.1)`."""
    node, source = item.node, item.label.source
    if not isinstance(node, Call) or not node.args or row.head or node.name.text in row.choices:
        return None
    path = bare_choices().get(node.name.text)
    if path is None or not BY_PATH[path].head:
        return None
    form, line = f"{path} {source.slice(node.span)}", line_bounds(source.text, item.label.span.start, node.span.end)
    alone = source.text[slice(*line)].strip() == source.slice(item.label.span) or item.label.span == node.span
    return f"write `{form}`", *((Edit(item.label.span, form),) if alone else ())


def _unset_value(row: Setting, item: Item, node: Value | None, typed: str) -> Help | None:
    """The help for a value that means an absent setting, such as `keep = all`, or for which no_equivalent.txt says what
    to write instead.
    """
    unset = unset_advice(row, typed) or (typed and advice(f"{row.name} {typed}", "")) or pair_advice(row.name, typed)
    unset = unset or (holdout_help(typed) if row.path in ("eval.split", "eval.data") else "")
    if row.path == "model.config" and typed.endswith((".yaml", ".yml", ".toml")):
        unset = "`config` is the config.json of a model; `xpc import FILE` reads another tool's configuration"
    counts = row.kind.name == "flag" and isinstance(node, Number) and not node.unit and typed not in ("0", "1")
    help = unset or (advice(row.name, typed) if counts else None)  # `shuffle = 42`
    return (help,) if help else None


def _plain_form(row: Setting, item: Item, node: Value | None, typed: str) -> Help | None:
    """The help for a clause that is written as a setting, such as `optimizer = adamw(lr=1e-5)`, and for a word that
    means 0, as in `clip = none`.
    """
    if isinstance(node, Call) and row.head and node.name.text in row.choices:
        form = f"{row.name} {item.label.source.slice(node.span)}"
        return f"write `{form}`", Edit(item.label.span, form)
    siblings = [one.name for one in children(row.clause) if typed in one.choices] if isinstance(node, Ref) else []
    named = typed not in bare_choices() or "".join(siblings).startswith(row.name)  # `decay = cosine` is `decay_type`
    if len(siblings) == 1 and typed not in NO and not row.choices and row.kind.name in ONE and named:
        return (f"write `{siblings[0]} = {typed}`",)
    off = mapped("off").get(row.path)
    if off is not None and off != typed in SWITCHED_OFF and node is not None and node is item.node:
        return f"write `{_form(row, off)}`", Edit(node.span, off)
    return None


def _setting_of_a_flag(row: Setting, item: Item, node: Value | None, typed: str) -> Help | None:
    """The help for a flag with a value: `lora(rank=16)` for `lora = 16`, and `memory(liger)` for `memory = liger`."""
    if row.kind.name != "flag":
        return None
    from xpc.compiler.suggest.flag_values import BITS_OR_RANK, flag_setting

    form = None if node is None else flag_setting(row, node, typed)
    if row.path == "qlora" and typed in BITS_OR_RANK:
        return (BITS_OR_RANK[typed],)
    if form is not None:
        return f"write `{form}`", Edit(item.label.span, form)
    inner = BY_PATH.get(f"{row.path}.{typed}")
    return (f"write `{row.name}({typed})`",) if inner is not None and inner.kind.name == "flag" else None


def _setting_of_save(row: Setting, item: Item, node: Value | None, typed: str) -> Help | None:
    """The help for `save = epoch` and `save safetensors`, where a setting is written in the place of the folder."""
    if row.path != "save" or not isinstance(node, Ref):
        return None
    from xpc.compiler.language.expand.missing_equals import implied_setting

    known, why = meaning(typed, "save", exact=True), own_reason(f"save {typed}") or own_reason(typed)
    inner = None if known is None or not known.path.startswith("save.") else BY_PATH[known.path]
    value = "" if known is None or inner is None else {"!": "=false", "": ""}.get(known.value, f"={known.value}")
    stated = inner is not None and (inner.kind.name == "flag" or value)
    flag = f"{inner.path.removeprefix('save.')}{value.removesuffix('=true')}" if inner is not None and stated else ""
    if not flag and why is not None:
        return (NO_EQUIVALENT + why,)
    form = implied_setting("save", typed) or (flag.replace(".", "(") + ")" * flag.count("."))
    return (f"write `save({form})`, or a path in double quotes",) if form else None


def _several_runs(row: Setting, item: Item, node: Value | None, typed: str) -> Help | None:
    """The help for several values of a setting that takes one: `lr = [1e-5, 2e-5]` becomes a sweep, and `partition =
    [a, b]` the text `"a,b"` of sbatch.
    """
    if row.path == "launch.partition" and isinstance(node, List):
        form = '"' + ",".join(re.findall(r"[^\s,\[\]\"]+", typed)) + '"'
        return f"write `partition = {form}`", Edit(node.span, form)
    if not isinstance(node, List) or len(node.items) < 2 or row.kind.name not in ONE or "-" in typed.replace("e-", ""):
        return None
    parts = [float(one) for one in re.findall(r"\d*\.\d+", typed)] if row.path == "data.holdout" else []
    if sum(parts) == 1:  # `holdout = [0.95, 0.05]`: shares of training and evaluation
        return f"write `holdout = {min(parts) * 100:g}%`", Edit(node.span, f"{min(parts) * 100:g}%")
    form = f"sweep {{ {row.path if row.inner else row.name} = {item.label.source.slice(node.span)} }}"
    return (f"several values make several runs: write `{form}`" + (" outside of its block" if "." in row.path else ""),)


def _choice(wrong: InvalidValue, row: Setting, item: Item, node: Ref, at: Label) -> Diagnostic:
    from xpc.compiler.suggest.flag_values import offloaded

    corrected = partial(report, wrong.code, wrong.message, at)
    file = ', or a file such as `file("chat_template.jinja")`' if row.kind.name == "template" else ""
    one_of = f"write one of {', '.join(row.choices)}{file}"
    if node.name in ("auto", "default") and row.path not in AUTO:
        return corrected(help=unset_advice(row, node.name) or f"{leave_out(row)}; or {one_of}")
    # offer no edit if arguments such as `(stage=3)` follow, because they may be illegal for the suggested value
    bare = not re.match(r"[ \t]*[({]", at.source.text[node.span.end :])
    lower = node.name.lower()
    if lower in row.choices:  # only the letters' case is wrong, as in `method SFT`
        return corrected(help=f"write `{lower}`", edits=(Edit(node.span, lower),))
    other = of_another_setting(row, node.name)
    stated = ARGUMENT.match(other)
    if stated is not None and re.match(rf"[^)}}\n]*\b{stated['setting']}\b", at.source.text[node.span.end :]):
        return corrected(help=f"write `{stated['choice']}`", edits=(Edit(node.span, stated["choice"]),))
    if other:
        # offer an edit only if the suggested value belongs to this setting
        form = re.match(rf"write `{row.name} ([^`]+)`(?!, and)", other) if row.head else None
        edits = (Edit(node.span, form[1]),) if form and bare and "..." not in form[1] else ()
        if edits and "(" in edits[0].text and "=" in at.source.slice(item.label.span):  # `strategy = zero3_offload`
            edits = (Edit(item.label.span, f"{row.name} {edits[0].text}"),)
        return corrected(help=other, edits=edits)
    if unset := unset_advice(row, lower):
        return corrected(help=unset)
    near = offloaded(at, choice(row, node.name)) if row.path == "strategy.offload" else choice(row, node.name)
    stage = STAGE.match(at.source.text[node.span.end :]) if row.path == "strategy" else None
    # the value may have arguments that decide the choice, as in `deepspeed(stage=3)`
    near = f"zero{stage['stage']}" if stage is not None and near in ZEROS else near
    if (row.path, near) in ALREADY:
        return corrected(help=ALREADY[row.path, near or ""])
    near = near or (notation(row, node.name, at.source.text) if bare else None)
    if not near:
        off = lower in NO and row.default is None
        begun = next((one for one in reversed(row.choices) if re.match(f"{re.escape(one)}[_-]", lower)), "")
        if begun and not file and len(row.choices) > 3:  # `adamw_amsgrad`
            one_of = f"`{begun}` is a choice, and no choice has `{lower[len(begun) + 1 :][:40]}`"
        help = f"leave `{row.name}` out, or {one_of}" if off else one_of
        return report(wrong.code, wrong.message, Label(at.source, at.span), help=help)
    if bare and (number := open_setting(row, node.name, near, at.source.text)):
        return corrected(help=f"write `{row.name} {near}({number}=...)`")
    label = Label(at.source, at.span, f"did you mean `{near}`?")
    alone = stage is not None and stage["end"] is not None  # `stage` is the only argument
    span = Span(node.span.start, node.span.end + stage.end()) if stage is not None and alone else node.span
    return report(wrong.code, wrong.message, label, help=f"write `{near}`", edits=(Edit(span, near),))


def of_another_setting(row: Setting, name: str) -> str:
    """The help for a value that belongs to another setting (`method lora`), or that has no equivalent (`method ppo`).
    "" for any other value.
    """
    advised = advice(f"{row.name} {name}", "")
    if advised is not None:
        return advised
    if row.path == "method" and (owners := methods_with(name.lower().replace("-", "_"))):
        forms = " or ".join(f"`method {one}(loss={name.lower().replace('-', '_')})`" for one in owners)
        return f"write {forms}: `{name}` is a loss, not a method"
    if why := no_such_choice(row.name, name):
        return f"{why}write one of {', '.join(row.choices)}"

    if known_choice(row, name) is not None:
        return ""
    path = name if name in BY_PATH and BY_PATH[name].kind.name == "flag" else bare_choices().get(name)
    if path is None or path == row.path or not (row.head or path in (*ADAPTERS, "method")):
        return ""  # `state_dict = local` is not about `launch`
    return f"write `{name}` on a line of its own: it is {'a clause' if path == name else f'a choice of `{path}`'}"


def _form(row: Setting, value: str) -> str:
    """A setting with a value, as it must be written at this place: `for 3 epochs`, `seed 1` or `lr = 2e-5`."""
    if row.path in ("train.epochs", "train.steps"):
        return f"for {value} {row.name}"
    return f"{row.name} {value}" if row.head else f"{row.name} = {value}"


def intended(row: Setting, item: Item, node: Value | None) -> str | None:
    """The written value, converted to the type of the setting. None if it cannot be converted."""
    if node is None:
        return None
    typed, kind = item.label.source.slice(node.span), row.kind.name
    if kind == "path" and typed in (*words_of("empty"), *words_of("between"), *CLAUSES, *bare_choices()):
        return None  # `save the best model` names no folder
    if isinstance(node, Number):
        return _from_number(row, typed)
    python = isinstance(node, Call) and node.name.text in TYPES
    alone = node.items if isinstance(node, List) else node.args if isinstance(node, Call) and python else ()
    if kind in ONE and len(alone) == 1 and isinstance(only := alone[0], Number | Ref | String):
        wrong = isinstance(convert(row, evolve(item, node=only)), InvalidValue)
        return intended(row, evolve(item, node=only), only) if wrong else item.label.source.slice(only.span)
    if kind in ("file", "template"):
        return _file(row, node, typed)
    if isinstance(node, String) and not node.value.strip():
        return None
    if kind in ("names", "tasks") and isinstance(node, Ref | String) and typed not in (*SWITCHES, "all"):
        return f"[{typed}]"
    if kind == "choices" and isinstance(node, List) and all(isinstance(one, String) for one in node.items):
        names = [choice(row, one.value) for one in node.items if isinstance(one, String)]
        return f"[{', '.join(filter(None, names))}]" if names and all(names) else None
    if kind in ("choice", "choices") and isinstance(node, String):
        return node.value if node.value in row.choices else choice(row, node.value)
    if kind == "repository":
        return None
    found = converted(row, row.name, node, typed)
    return None if found == typed else found


def _from_number(row: Setting, typed: str) -> str | None:
    """Convert a number that stands for a flag or a choice (`precision = 16`), or that lacks a `-`: `2e5` is `2e-5`."""
    if row.kind.name == "flag":
        return {"0": "false", "1": "true"}.get(typed)
    if row.kind.name == "choice":
        return known_choice(row, typed)
    sign = LOST_SIGN.fullmatch(typed)
    if sign is None or row.kind.name != "real" or row.low is None or row.high is None:
        return None
    small = f"{sign[1]}e-{sign[2]}"
    return small if float(small) <= row.high else None


def _file(row: Setting, node: Value, typed: str) -> str | None:
    """Write a file as a call: `"x.jinja"` and `fil("x.jinja")` become `file("x.jinja")`. None for any other value."""
    if isinstance(node, String) and re.search(r"\s|[{}]", node.value):
        return None  # a template or a command, and not the name of its file
    if isinstance(node, String):
        if row.kind.name == "file" and not re.search(r"\.[A-Za-z]\w*$", node.value):
            return None  # `model_config = "org/model"` names a repository
        # the text may name a built-in template, as `"llama-3"` does for `llama3`
        return known_choice(row, node.value) or f"file({typed})"
    kind = row.kind.name
    inner = node.args[0] if isinstance(node, Call) and len(node.args) == 1 else node if kind == "template" else None
    if isinstance(inner, String):
        return f'file("{inner.value}")'
    return f'file("{inner.name}")' if isinstance(inner, Ref) else None


def legal(row: Setting, item: Item, node: Value | None) -> str:
    """A phrase that describes the legal values of a setting. If the written value is of another type, the phrase
    contains an example.
    """
    typed = "" if node is None else item.label.source.slice(node.span)
    if isinstance(node, Count) and row.path == "nodes":
        card = item.label.source.slice(node.what.span)
        return f"write `nodes {node.n.text}`, and `hardware N x {card}` for the GPUs of one node"
    if isinstance(node, Number) and node.unit == "%" and row.path == "optimizer.lr":
        share = f"{float(typed[:-1].replace('_', '')) / 100:g}".replace("e-0", "e-")
        return f"write `lr = {typed[:-1]}`, without a percent sign, or `lr = {share}` for {typed}"
    if isinstance(node, Number) and row.kind.name != "flag":
        words = expected(row, row.name, typed)
        if words.startswith("one of "):
            return f"write {words}"
        such = "" if ":" in words else f", such as `{_form(row, example(row))}`"
        words = words.partition(" such as ")[0] if such else words
        return f"write {words}{such}" if words.startswith(("a ", "an ")) else words
    if isinstance(node, Call) and node.name.text in row.choices:
        return f"write `{_form(row, node.name.text)}`, which takes no arguments"
    if isinstance(node, String) and row.kind.name in ("file", "template"):
        file = example(row) if row.kind.name == "file" else f'file("{row.name}.jinja")'
        return f"write the text into a file, and its name here: `{_form(row, file)}`"
    return f"`{row.name}` takes {in_words(row)}, such as `{_form(row, example(row))}`"


def example(row: Setting) -> str:
    """A legal value of a setting, for help texts: from the table of settings, the examples file, its default, or its
    type.
    """
    default = row.default
    if row.path == "target":
        return stacks.DEFAULT
    shown = row.example or _listed_example(row.path)
    if shown:
        return shown
    if row.choices:
        return row.choices[0]
    if isinstance(default, int | float) and not isinstance(default, bool):
        return f"{default}s" if row.kind.name == "duration" else f"{default:g}"
    return row.kind.example


def _listed_example(path: str) -> str:
    """The value in the setting's line of the examples file, or ""."""
    clause, _, name = path.rpartition(".")
    form = rf"\bfor (\S+) {name}" if clause == "train" else rf"\b{name}={EXAMPLE}" if clause else rf"{name} {EXAMPLE}"
    match = re.search(form, examples().get(path, ""))
    return match[1] if match is not None else ""


def _call_of_python(row: Setting, item: Item, node: Value | None, typed: str) -> tuple[str] | None:
    """The help for `optimizer = AdamW(lr=1e-5)` and `lora = dict(rank=8)`: a clause with its settings."""
    if not isinstance(node, Call) or not row.head or not node.args:
        return None
    chosen = choice(row, node.name.text.rpartition(".")[2]) if row.choices else None
    if chosen == node.name.text or (chosen is None and node.name.text != "dict"):
        return None
    settings = [item.label.source.slice(one.span) for one in node.args if isinstance(one, Assigned)]
    arguments = f"({', '.join(settings)})" if settings else ""
    return (f"write `{row.name}{'' if chosen is None else f' {chosen}'}{arguments}`",)
