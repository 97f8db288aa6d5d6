"""`xpc explain` for names that are not settings: models, GPUs, datasets, rewards, and the libraries' arguments.

Imported only if a name is not a setting, code or file.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from xpc.compiler import registry, stacks
from xpc.compiler.language import extras
from xpc.compiler.language.codes import first_sentence
from xpc.compiler.language.kinds import EVERY
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.rewards import REWARDS
from xpc.compiler.language.schema import BY_PATH, Setting, bare_choices, owner_of
from xpc.compiler.language.strategies import OLD_STRATEGIES, SPREADS
from xpc.compiler.suggest.meaning import SAME, meaning
from xpc.compiler.suggest.no_equivalent import advice, loose_reason, own_reason, reason
from xpc.grammar.nearest import nearest

WORDS = {
    "train": "the line with which a spec begins: `train qwen2.5-3b on infinity-instruct for 3 epochs with zero2 bf16`",
    "on": "stands before the data in the `train` line: `train qwen2.5-3b on infinity-instruct`",
    "for": "stands before the length of the run in the `train` line: `for 3 epochs`, `for 1000 steps`",
    "with": "stands before choices and settings in the `train` line: `with zero2 gbs=528 bf16`",
    "x": "stands between a number and a GPU: `hardware 8 x h100-80gb`",
    "xpc": "the edition of the language, on the first line: `xpc 1`",
    "extends": '`extends "base.xp"` before all other lines takes the settings of base.xp; later lines override them',
    "zip": "in a `sweep`, lists that vary together: `zip { gbs = [128, 256], micro = [16, 8] }`",
    "file": 'a file next to the spec: `chat_template = file("mine.jinja")`',
}
"""Maps each word of the language that is not a setting to its explanation."""
AMOUNTS = {"epoch": "once after every epoch", "never": "not at all"}
"""Some settings accept a word instead of a number, as in `every = epoch`. Maps each such word to its explanation."""


def explain_name(name: str) -> str | None:
    """Everything known about a name as text, or None if it is unknown."""
    parts = [
        *(_word(name), _stack(name), _model(name), _gpu(name), _dataset(name), _reward(name), _choices(name)),
        _arguments(name),
    ]
    found = [part for part in parts if part] or [part for part in (_extra_target(name), _foreign(name)) if part]
    return "\n".join(found) or None


def _model(name: str) -> str:
    facts = registry.find_model(name)
    if facts is None:
        return ""
    kind = "with a chat template" if facts.chat else "without a chat template"
    gated = ", gated: the Hub asks for a licence and a token" if facts.gated else ""
    active = f", {facts.active_params:,} of them active for one token" if facts.active_params else ""
    return (
        f"{facts.alias}: a model, {facts.id} on the Hub, {kind}{gated}\n"
        f"  family   {facts.model_type}, {facts.params:,} parameters{active}\n"
        f"  layers   {facts.layers}, hidden {facts.hidden}, {facts.heads} heads, vocabulary {facts.vocab:,}\n"
        f"  context  {facts.context:,} tokens, weights in {facts.dtype}\n"
    )


def _gpu(name: str) -> str:
    gpu = registry.find_gpu(name)
    if gpu is None:
        return ""
    halves = "bf16 and fp16" if gpu.capability >= (8, 0) else "fp16, no bf16"
    return f"{gpu.name}: a GPU of {gpu.memory_gib:g} GiB, compute capability {gpu.compute_capability}: {halves}\n"


def _dataset(name: str) -> str:
    facts = registry.find_dataset(name)
    if facts is None:
        return ""
    config = f", configuration {facts.config}" if facts.config else ""
    return (
        f"{facts.alias}: a dataset, {facts.id} on the Hub{config}, split {facts.split}\n"
        f"  rows     {facts.rows or 'not counted'}, {facts.shape}: {', '.join(facts.columns)}\n"
    )


def also(name: str, rows: Sequence[Setting]) -> str:
    """Text about the meanings of a name that are not settings: a keyword, a choice, a reward, or an argument of a
    library. `rows` are the settings with this name.
    """
    chosen = bare_choices().get(name)
    output = f"{name}: a choice of `{chosen}`{_of_choice(name)}\n" if chosen is not None else ""
    own = owner_of(name)  # `max_length`, a setting of vLLM, is also TRL's name for `batch.seq`
    return _word(name) + output + _reward(name) + ("" if own is None or own in rows else _arguments(name))


def _word(name: str) -> str:
    return f"{name}: {WORDS[name]}\n" if name in WORDS else ""


def _stack(name: str) -> str:
    stack = stacks.load(name) if name in stacks.names() else None
    if stack is None:
        return ""
    versions = ", ".join(f"{one} {stack.pins[one]}" for one in ("trl", "transformers", "torch") if one in stack.pins)
    return f"{name}: a stack that bundles are written for, `target {name}`: {versions}\n"


def _of_choice(name: str) -> str:
    """A phrase that describes a choice, to be printed after its name. "" if the choice needs no description."""
    if name in METHODS:
        return f": {METHODS[name].doc}"
    if name in OLD_STRATEGIES:
        strategy, settings = OLD_STRATEGIES[name]
        inner = ", ".join(f"{path.rpartition('.')[2]}={str(value).lower()}" for path, value in settings.items())
        return f", the same as `strategy {strategy}{f'({inner})' if inner else ''}`"
    if name in SPREADS:
        parts = ("optimizer states", "gradients", "weights")[: SPREADS[name]]
        return f", spread over the processes: {', '.join(parts) or 'nothing'}"
    own = stacks.default().optimizers.get(name)
    return f", `optim={own}` of transformers" if own else ""


def _reward(name: str) -> str:
    if name not in REWARDS:
        return ""
    return f"{name}: a reward function of grpo and rloo, `method grpo(rewards=[{name}])`: {REWARDS[name]}\n"


def _choices(name: str) -> str:
    """A line for each setting that has the name as a choice, and for each method that has a loss with this name. A
    choice that can stand in a spec without its setting, such as `bf16`, gets no line.
    """
    lines = [f"{name}: a choice of `{row.path}`, {row.doc}\n" for row in BY_PATH.values() if name in row.choices]
    if name in AMOUNTS:
        every = ", ".join(f"`{row.path}`" for row in BY_PATH.values() if row.kind is EVERY)
        lines.insert(0, f"{name}: {AMOUNTS[name]}, in {every}\n")
    for target in stacks.every():
        for method in METHODS:
            if target.refused(method) is None and name in target.losses(method):
                lines.append(f"{name}: a loss of {method} for {target.name}: `method {method}(loss={name})`\n")
    return "".join(dict.fromkeys(lines))


def _arguments(name: str) -> str:
    """Explain an argument of a library for each target: which setting decides it, or that `extra` can set it, or why
    bundles do not contain it.
    """
    lines: list[str] = []
    for target in stacks.every():
        reported: dict[str, list[str]] = {}
        for method in METHODS:
            if target.refused(method) is None:
                reported.setdefault(_trainer(target, name, method), []).append(method)
        for text, methods in reported.items():
            if text:
                every = len(methods) == sum(target.refused(one) is None for one in METHODS)
                lines.append(f"  {target.name}{'' if every else ' ' + ', '.join(methods)}: {text}\n")
        for library in ("accelerate", "deepspeed"):
            text = _file(target, library, name)
            if text:
                lines.append(f"  {target.name} {library}: {text}\n")
        if target.removed.get(name) and not any(reported):
            lines.append(f"  {target.name}: not available ({target.removed[name]})\n")
    if any("`extra " in line for line in lines):
        lines += _rules_about(name)
    return f"{name}: a library's own name\n" + "".join(lines) if lines else ""


def _rules_about(name: str) -> list[str]:
    """A line for each rule whose first sentence contains the argument `name` of a library: the code of the rule, and
    the sentence.
    """
    from xpc.compiler.rules import every

    naming = [rule for rule in every() if f"`{name}`" in rule.explanation]
    summaries = {rule.code: " ".join(rule.text.partition("\n\n")[0].split()) for rule in naming}
    first = {code: first_sentence(text).removesuffix(".") for code, text in sorted(summaries.items())}
    return [
        fill(f"{code}: {text}", 100, initial_indent="  ", subsequent_indent=" " * 9) + "\n"
        for code, text in first.items()
        if f"`{name}`" in text
    ]


def _trainer(stack: stacks.Stack, name: str, method: str) -> str:
    """For an argument of a method's trainer on this target, say which setting decides it, or whether `extra` can set
    it. "" if the trainer has no such argument.
    """
    fields = stack.fields(stack.config(method))
    new = name if name in fields else stack.rename(name) or name
    today = "" if new == name else f"`{new}` today, "
    path = extras.owner("trl", new, method)
    if path is not None and (new in fields or name in fields or today):
        return today + _decided(path)
    why = stack.omitted(stack.config(method)).get(new)
    if why is not None:
        return f"{today}not stated: {why}"
    if new in extras.legal_names(stack, "trl", method):
        return f"{today}`extra trl({new}=...)`, {fields[new].type}, default {fields[new].effective}"
    return ""


def _file(stack: stacks.Stack, library: str, name: str) -> str:
    """For a key of accelerate.yaml or deepspeed.json on this target, say which setting decides it, or whether `extra`
    can set it. `name` is the full name of the key, or only its last part.
    """
    legal, keys = extras.legal_names(stack, library), stack.launch_keys(library)
    owned = extras.owned_names(stack, library, "sft")
    whole = sorted(one for one in {*legal, *owned, *keys} if name in (one, one.rpartition(".")[2]))
    out = []
    for one in whole:
        path = extras.owner(library, one)
        kind = keys[one]["type"] if one in keys else "a mapping"
        mapping = extras.wrong_value(stack, library, one, None) == extras.MAPPING
        has = (
            f"a mapping, which `extra {library}` cannot write" if mapping else f"`extra {library}` has `{one}`, {kind}"
        )
        out.append(_decided(path) if path is not None else has)
    return "; ".join(dict.fromkeys(out))


def _decided(path: str) -> str:
    row: Setting = BY_PATH[path]
    return f"`{path}` decides it: {row.doc}"


def _extra_target(name: str) -> str:
    if name not in ("extra", "trl", "accelerate", "deepspeed"):
        return ""
    return (
        "extra: `extra trl { }`, `extra accelerate { }`, `extra deepspeed { }` pass on checked arguments of a library\n"
    )


def _foreign(name: str) -> str:
    """Explain a name of another tool: what a spec says instead, or why xpc has no equivalent."""
    why = own_reason(name)
    instead = advice(name, "VALUE")
    if why is None and instead is not None:
        return f"{name}: {instead}\n"
    intended = None if why is not None else meaning(name, exact=True)
    if intended is not None and intended.likeness >= SAME and intended.path in BY_PATH:
        value = f" ({intended.value})" if intended.value in bare_choices() else ""
        return f"{name}: {_decided(intended.path)}{value}\n"
    why = why or loose_reason(name) or reason(name)
    return "" if why is None else f"{name}: no equivalent, because {why}\n"


def unknown(what: str) -> str:
    """The answer for an unknown name: a similar name or, if none is similar, the kinds of names that `xpc explain`
    knows.
    """
    if what.upper().startswith("XP"):
        return f"there is no code `{what}`; `xpc list codes` prints them all"
    intended = meaning(what)
    models, gpus, datasets = registry.model_names(), registry.gpu_names(), registry.dataset_names()
    near = (
        intended.path
        if intended is not None and intended.path in BY_PATH
        else nearest(what, [*models, *gpus, *datasets])
    )
    if near:
        return f"nothing is called `{what}`: did you mean `xpc explain {near}`?"
    return (
        f"nothing is called `{what}`. You can ask for a code (XP301), a setting (batch.gbs), a model, a GPU, a "
        "dataset, a library's argument (learning_rate), a spec, or FILE:SETTING"
    )
