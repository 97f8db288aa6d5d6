"""Write the setting that is suggested for an unknown name, with the value that the user wrote after this name."""

from __future__ import annotations

import re

from xpc.compiler import registry
from xpc.compiler.language import schema
from xpc.compiler.language.advisor import UnknownName
from xpc.compiler.language.convert import convert
from xpc.compiler.language.items import Item
from xpc.compiler.language.kinds import BLOCK, FLAG
from xpc.compiler.language.schema import Setting
from xpc.compiler.language.values import InvalidValue
from xpc.compiler.suggest.converted_values import NUMBER, SWITCHES, YES, converted
from xpc.compiler.suggest.known_names import NEVER_LEGAL, known_choice
from xpc.compiler.suggest.legal import AUTO, ONE, answer, example
from xpc.compiler.suggest.likeness import one_mistake, parts
from xpc.compiler.suggest.lines.notations import notation
from xpc.compiler.suggest.meaning import SAME, Meaning, is_known
from xpc.compiler.suggest.no_equivalent import advice, own_reason
from xpc.compiler.suggest.similar_choices import choice
from xpc.compiler.suggest.tables import unset, words_of
from xpc.grammar.record import evolve
from xpc.grammar.tree import Call, Count, List, Number, String, Value


def near_settings(unknown: UnknownName, clause: str | None) -> list[Meaning]:
    """The settings whose names differ from an unknown name by one typing mistake, and that accept the written value.
    With `clause`, they are settings of this clause; without it, settings and choices that are legal outside of clauses.
    Empty for a name of one or two letters, and for a name of three letters without a value.
    """
    name, alone = unknown.name.lower(), unknown.node is None
    if len(name) < 3 or (clause is None and unknown.label.source.text[unknown.label.span.end :][:1] in ("(", "{")):
        return []
    paths = {row.name: row.path for row in schema.children(clause)} if clause else dict(schema.outer_names())
    rows = [(own, schema.BY_PATH[path]) for own, path in paths.items() if path not in NEVER_LEGAL]
    near = [(own, row) for own, row in rows if len(own) > 2 and one_mistake(name, own)]
    found = [Meaning(row.path, likeness=SAME - 0.01, own=True) for own, row in near if _takes(row, unknown)]
    if alone and clause is None:
        bare = [(own, path) for own, path in schema.bare_choices().items() if len(own) > 2 and one_mistake(name, own)]
        found += [Meaning(path, own, SAME - 0.01, True) for own, path in bare if own not in paths]
    return found if len(name) > 3 or not alone else []


def by_word_or_value(unknown: UnknownName, clause: str) -> Meaning | None:
    """Find the setting of a clause by a word of the unknown name, or by its value.

    First, look for a setting whose name contains the unknown name as a word, and that accepts the value: `gpu_memory`
    for `gpu=50%` in `vllm`. Otherwise, if xpc does not know the name, look for a setting that has the value as a
    choice: `strategy` for `packing(mode=bfd)`. None if no setting or several are found, or if a setting of another
    clause has exactly this name and accepts the value.
    """
    name, value = unknown.name.lower(), unknown.typed or ""
    elsewhere = [row for row in schema.TABLE if row.name == name]
    if unknown.node is None or any(_takes(row, unknown) for row in elsewhere):
        return None
    if any(advice(one, value) is not None for one in (name, f"{clause} {name}")):
        return None
    rows = [row for row in schema.children(clause) if row.path not in NEVER_LEGAL and _takes(row, unknown)]
    found = [row for row in rows if name in parts(row.name) and name not in words_of("general")]
    known = not elsewhere and (is_known(name) or is_known(f"{clause} {name}"))
    if not found and not known and not near_settings(unknown, clause):  # `evry = never` in `save` is not `resume`
        found = [row for row in rows if value in row.choices]
    return Meaning(found[0].path, likeness=SAME - 0.01, own=True) if len(found) == 1 else None


def _takes(row: Setting, unknown: UnknownName) -> bool:
    """Whether a setting accepts the value that the user wrote, unchanged. If the user wrote no value: whether the
    setting can be written without a value.
    """
    if unknown.node is None:
        return row.kind in (FLAG, BLOCK) or row.head
    return row.kind is not BLOCK and not isinstance(
        convert(row, Item(row.path, unknown.node, unknown.label)), InvalidValue
    )


CONSOLE = ("console", "stdout", "terminal", "file", "csv", "disk")
"""Values of other tools for metrics that are only printed or written to a file, which every run does."""


def value_of(row: Setting, unknown: UnknownName) -> str:
    """A legal value of a setting. It is the value that the user wrote after the unknown name, if it can be converted;
    otherwise an example.
    """
    return intended_value(row, unknown) or example(row)


def intended_value(row: Setting, unknown: UnknownName) -> str | None:
    """The value that the user probably intends for a setting, in xpc's notation: `2048` for `seq = [2048]`. None if the
    user wrote no value, or if the setting cannot have the value.
    """
    node, text = unknown.node, (unknown.typed or "").strip('"')
    if node is None or row.kind is BLOCK or text.lower() in unset().get(row.path, [])[1:]:
        return None
    if row.path == "hardware":
        return _machines(node, text)
    if isinstance(node, List) and len(node.items) == 1 and row.kind.name in ONE:  # `seq = [2048]`
        typed = unknown.label.source.slice(node.items[0].span)
        return intended_value(row, evolve(unknown, node=node.items[0], typed=typed))
    if row.kind.name == "text_or_file" and isinstance(node, String) and {"file", "path"} & {*parts(unknown.name)}:
        return f"file({unknown.typed})"  # `system_prompt_file = "system.txt"`
    value = converted(row, unknown.name, node, unknown.typed or "")
    if row.path == "optimizer.betas" and not isinstance(node, List):
        value = _betas(unknown.name, text, unknown.label.source.text)
    switch = row.kind.name in ("sources", "names", "tasks", "name") and text.lower() in SWITCHES
    if value is not None or switch or row.kind.name in ("weighted", "every"):
        return value  # no rows are called `true`
    found = convert(row, Item(row.path, node, unknown.label))
    if not isinstance(found, InvalidValue):
        return unknown.typed
    # the value may list several choices, as in `report_to = ["wandb", "tensorboard"]`
    if row.choices and (isinstance(node, List) or "," in text):
        items = node.items if isinstance(node, List) else ()
        if any(isinstance(one, Call) for one in items):
            return None  # `[accuracy(weight=1)]` is more than choices
        listed = [one.value if isinstance(one, String) else getattr(one, "name", "") for one in items]
        listed = listed or text.split(",")
        listed = [one for one in listed if row.path != "track" or one not in CONSOLE] or listed
        names = [choice(row, one) for one in listed]
        one_each = row.kind.name == "choices" and all(names) and len(set(names)) == len(names)
        return f"[{', '.join(filter(None, names))}]" if names and one_each else None
    if row.choices:
        if isinstance(node, Call):
            return None  # `adamw(1e-5)` also has an argument
        if NUMBER.fullmatch(text) and not text.isdecimal():
            return None
        yes = text.lower() in ("true", "1", "yes")
        if yes and row.alone:
            return row.alone
        # a number such as 2 may stand for a choice only together with the name, as in `zero_stage=2`
        alone = known_choice(row, text) if yes else None if text.isdecimal() else choice(row, text)
        # do not suggest `stable_adamw` for `optim = nadam`, although the letters of `optim nadam` are similar to it
        refused = own_reason(f"{row.name} {text}") is not None
        return alone or (None if refused else choice(row, f"{unknown.name} {text}")) or notation(row, text)
    edits = answer(found).edits
    # use only an edit that changes the value, and not one that writes another setting, such as `lora(rank=5)`
    return edits[0].text if edits and not edits[0].text.startswith(row.name) else None


def _machines(node: Value, text: str) -> str | None:
    """The value of `hardware` that the user's value stands for: a GPU with or without a count, or `cpu`. None for
    any other value.
    """
    known = isinstance(node, Count) or text == "cpu" or registry.find_gpu(text) is not None
    return text if known else None


def written(row: Setting, unknown: UnknownName) -> str:
    """A setting with the user's value or an example, in the form that is legal outside of its clause: `gbs=528`."""
    return typed(row, None if unknown.node is None and row.kind is FLAG else value_of(row, unknown))


def clause_line(name: str, unknown: UnknownName) -> str:
    """A line with a clause and the user's value: if a user writes `save=5` in `eval`, the line is `save(every=5)`."""
    row, times = schema.BY_PATH.get(name), schema.BY_PATH.get(f"{name}.every")
    regular = unknown.clause != "batch"  # `eval = 8` in `batch` is no number of steps
    if times is not None and regular and _takes(times, unknown) and (row is None or not _takes(row, unknown)):
        return f"{name}(every={unknown.typed})"
    return f"{name} {value_of(row, unknown)}" if row is not None and unknown.typed and row.kind is not FLAG else name


def typed(row: Setting, value: str | None) -> str:
    """Write a setting and its value in the form that is legal outside of its clause: `gbs=528`, `save(every=100)`."""
    if row.kind is BLOCK:
        return f"{row.name} {{"
    form = row.name if row.kind is FLAG and value in (None, "true") else f"{row.name}={value or example(row)}"
    if row.path.startswith("launch."):
        return f"launch {row.engines[0]}({form})" if row.engines else f"launch({form})"
    if not row.inner:
        return form
    outer = row.path.rpartition(".")[0].split(".")
    for part in reversed(outer):
        form = f"{part}({form})"
    return form.partition("(")[2][:-1] if len(outer) > 1 else form


def with_tracker(form: str, unknown: UnknownName) -> str:
    """Write the tracker that an unknown name begins with, if the spec does not name it: `wandb_project = x` is `track
    wandb(project="x")`.
    """
    tracker, text = parts(unknown.name)[0], unknown.label.source.text
    named = re.search(rf"(?<!\w){tracker}(?!\w)|\btrack\b", text) or tracker not in schema.BY_PATH["track"].choices
    return form if named else re.sub(r"^track\(", f"track {tracker}(", form)


def decided_value(row: Setting, unknown: UnknownName, guess: Meaning) -> str | None:
    """The value to write for a setting that is suggested. It is the value that the unknown name implies, or the user's
    value in xpc's notation.

    If the user wrote no value, the result is an example value (None for a flag). If the setting cannot have the user's
    value, the result is None.
    """
    if row.kind is FLAG and isinstance(unknown.node, Number) and unknown.node.value not in (0, 1):
        return None  # `loss_on_prompt = 0.1` is no switch
    if guess.value == "!":
        return "true" if (unknown.typed or "").lower() in ("false", "no", "off") else "false"
    text = (unknown.typed or "").strip('"').lower()
    if text == "auto" and row.path not in AUTO and unknown.node is not None:
        return None  # `auto` leaves the choice to the library, as in `flash_attn: auto`, so no value is suggested
    # the name implies the value, as `offload_optimizer_device = cpu` implies the optimizer
    count = unknown.node if isinstance(unknown.node, Number) and unknown.node.unit is None else None
    if guess.value and not row.choices and count is not None and count.value not in (0, 1):
        return None  # `keep_only_last = 2` is no switch, but `quantization = 4bit` is one
    device = row.path == "strategy.offload" and text == "cpu"
    if guess.value and (unknown.node is None or not row.choices or device or text in (*YES, "auto")):
        return guess.value
    # the value that the user wrote takes precedence over the value that the name implies
    if guess.value and row.kind is not FLAG:
        if row.path == "track":  # `use_tensorboard = "logs"` names a folder
            return known_choice(row, text)
        # a number may state a choice together with the name, as in `deepspeed_zero = 2`
        return choice(row, f"{unknown.name} {text}" if text.isdecimal() else text) or notation(row, text)
    if guess.value:
        return guess.value
    if unknown.node is None:
        named = next((one for one in row.choices if one in parts(unknown.name)), None)
        return None if row.kind is FLAG else named or example(row)
    return intended_value(row, unknown)


def _betas(name: str, text: str, spec: str) -> str | None:
    """Both betas of Adam as a list, if the name is that of one: `adam_beta2 = 0.95` becomes `[0.9, 0.95]`. The other
    one is that of the spec, or the default.
    """
    number = re.search(r"b(?:eta)?_?s?_?([12]|one|two)", name.lower())
    if number is None or not NUMBER.fullmatch(text) or not 0 <= float(text) < 1:
        return None
    first = number[1] in ("1", "one")
    other = other_beta(first, spec) or ("0.999" if first else "0.9")
    return f"[{text}, {other}]" if first else f"[{other}, {text}]"


def other_beta(first: bool, spec: str) -> str | None:
    """The second beta that a spec states as a setting of its own, or the first one."""
    found = re.search(rf"\b(?:adam\w?_?)?b(?:eta)?s?_?{2 if first else 1}\s*=\s*(0?\.\d+)", spec)
    return None if found is None else found[1]


def weighted_rewards(unknown: UnknownName) -> str:
    """Write the weights of a separate list into the spec's `rewards`: `reward_weights = [1, 0.2]` next to `rewards =
    [accuracy, format]` gives `rewards = [accuracy(weight=1), format(weight=0.2)]`. A file without a function gets a
    place for its name. "" for any other value, also if the numbers of weights and rewards differ.
    """
    file = re.fullmatch(r'"?([^":]+\.py)"?', unknown.typed or "")
    if file is not None:
        return f'rewards = ["{file[1]}:FUNCTION"]'
    names = re.search(r"\brewards\s*=\s*\[([\w, ]+)\]", unknown.label.source.text)
    weights = re.fullmatch(r"\[([\d., ]+)\]", unknown.typed or "")
    if names is None or weights is None or names[1].count(",") != weights[1].count(","):
        return ""
    each = zip(names[1].split(","), weights[1].split(","), strict=True)
    return f"rewards = [{', '.join(f'{name.strip()}(weight={weight.strip()})' for name, weight in each)}]"
