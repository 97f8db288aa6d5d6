"""Find the setting in dotted names, as in Hydra and nested files: `actor_rollout_ref.rollout.n`, `trainer.nnodes`.

Such a name ends with the setting, and the parts before it are the component. This module is imported only for an
unknown name.
"""

from __future__ import annotations

import re

from xpc.compiler.language import schema
from xpc.compiler.language.advisor import UnknownName
from xpc.compiler.suggest.extra_form import extra_argument
from xpc.compiler.suggest.known_names import known_choice
from xpc.compiler.suggest.likeness import parts, typo_of
from xpc.compiler.suggest.meaning import SAME, Meaning, is_known, meaning
from xpc.compiler.suggest.no_equivalent import advice
from xpc.compiler.suggest.tables import mapped, words_of
from xpc.grammar.record import evolve
from xpc.grammar.tree import Call, Ref

HEADS = ("optimizer", "schedule", "strategy")
"""Clauses whose choice may stand before the name of a setting: `sgd_momentum` is `momentum` of `optimizer`."""


def _by_class(unknown: UnknownName) -> UnknownName | None:
    """Shorten `optimizer._component_: torch.optim.AdamW` to `optimizer: AdamW`. None if the first part is not a setting
    with choices.
    """
    name, _, last = unknown.name.rpartition(".")
    guess = meaning(name) if last in words_of("class_keys") and name and unknown.node is not None else None
    row = schema.BY_PATH.get(guess.path) if guess is not None else None
    if unknown.node is None or row is None or not row.choices or row.path == "method":
        return None
    text = (unknown.typed or "").strip('"').rpartition(".")[2]
    return evolve(unknown, name=name, typed=text, node=Ref(unknown.node.span, text))


def after_component(name: str) -> Meaning | None:
    """The setting for a name that begins with a word for a component of another tool, such as `rollout`:
    `method.max_completion` for `rollout_max_tokens`. None if there is no such setting.
    """
    first, *rest = parts(name) or ("",)  # the name `_` has no parts
    choices = ((row.name, known_choice(row, first)) for row in schema.TABLE if row.path in HEADS)
    clause = mapped("components").get(first) or next((head for head, choice in choices if choice), None)
    # The rest of the name must be specific. In `generation_steps`, the rest `steps` is too general, because it may mean
    # many settings.
    specific = not words_of("general").issuperset(rest)
    after = " ".join(rest)
    guess = meaning(after, clause, exact=True) if clause and specific else None
    # the end of the name may be misspelt, as `label_smooth` in `dpo_label_smooth`
    if clause and specific and guess is None:
        near = typo_of(after, [one.name for one in schema.children(clause)])
        guess = None if near is None else Meaning(f"{clause}.{near}")
    inside = clause is not None and guess is not None and guess.path.startswith(f"{clause}.")
    return evolve(guess, likeness=SAME - 0.01) if inside and guess is not None else None


def by_parent(name: str) -> Meaning | None:
    """The setting for a dotted name. A part before the last, such as `validation_ds`, decides the clause, and the last
    part decides the setting: `eval.micro` for `validation_ds.micro_batch_size`. None if there is no such setting.
    """
    *before, last = name.split(".")
    if advice(last, "") is not None:
        return None
    for parent in reversed(before):
        clause = next((mapped("components")[one] for one in parts(parent) if one in mapped("components")), None)
        ways = () if clause is None else ((last, clause), (f"{clause.rpartition('.')[2]} {last}", None))
        for guess in (meaning(name, within, exact=True) for name, within in ways):  # `sequence_packing.algorithm`
            if guess is not None and guess.path.startswith(f"{clause}."):
                return guess
    return None


def of_evaluation(name: str) -> bool:
    """Whether a dotted name, such as `validation_ds.global_batch_size`, is about evaluation. Such a name is never taken
    for a setting of training.
    """
    return any(mapped("components").get(one) == "eval" for part in name.split(".")[:-1] for one in parts(part))


def by_last_part(unknown: UnknownName) -> UnknownName | None:
    """Drop the first parts of a dotted name until the rest is a known name: `trainer.nnodes` becomes `nnodes`. None if
    no rest is known.
    """
    component = _by_class(unknown)
    if component is not None:
        return component
    segments = unknown.name.split(".")
    if segments[-1] in ("enabled", "enable") and not is_known(unknown.name):
        segments = segments[:-1]  # drop the switch of `policy.sequence_packing.enabled`
    for first in range(min(1, len(segments) - 1), len(segments)):
        end = ".".join(segments[first:])
        if end in words_of("general") and not words_of("idle").issuperset(parts(segments[first - 1])):
            continue  # `name` in `rollout.name` is too general alone, but `steps` in `training.steps` is clear
        if is_known(end) or extra_argument(end, unknown.node, unknown.typed, unknown.header) is not None:
            return evolve(unknown, name=end)
    return None


def another_part(name: str) -> str:
    """The first part before the last of a dotted name that may be another object than the run: `teachers` in
    `teachers.optimizer.eps`, and `colocated` in `generation.colocated.num_nodes`. "" if all of them are about the run.
    """
    tables = ("around", "idle", "loose", "general", "everything", "setting_blocks")
    known = {word for table in tables for word in words_of(table)} | mapped("components").keys()
    known -= words_of("contrary") - {"eval"}
    own = (one for one in name.split(".")[:-1] if not known.issuperset(parts(one)) and "".join(parts(one)) not in known)
    return next(own, "")


def misspelt_clause(unknown: UnknownName) -> str | None:
    """The clause that a user misspelt before a block or a call: `eval` for `eva {`, `optimizer` for `optimiser
    adamw(lr=1e-5)`. None if the name resembles no clause.
    """
    plural = {"strategies": "strategy", "batches": "batch"}.get(unknown.name, unknown.name.removesuffix("s"))
    # a setting's exact name is not a typo: `targets` is a setting of `lora`, and not a misspelt `target`
    setting = any(row.name == unknown.name for row in schema.TABLE)
    if plural != unknown.name and plural in schema.CLAUSES and plural != "train" and not setting:
        return plural
    after = unknown.label.source.text[unknown.label.span.end :].lstrip(" ")[:1]
    if after not in ("{", "(") and not isinstance(unknown.node, Call):
        return None
    return typo_of(unknown.name, [one for one in schema.CLAUSES if one != "train"])


def head_word(unknown: UnknownName, clause: str) -> str:
    """The choice in the first line of the block that contains a name: `cpo` for `alpha` in `method cpo { alpha = 1 }`.
    "" if there is none.
    """
    text = unknown.label.source.text[: unknown.label.span.start]
    row = schema.BY_PATH.get(clause)
    found = re.findall(rf"\b{clause}[ \t]+([\w.-]+)(?=[ \t]*[({{]|[ \t]+[^=\n]*$)", text)
    return found[-1] if found and row is not None and row.choices else ""
