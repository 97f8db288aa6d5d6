"""Report names that are not settings at the place where they are written, with suggestions. Imported only for such a
name.
"""

from __future__ import annotations

import re

from xpc.compiler import stacks
from xpc.compiler.language import schema
from xpc.compiler.language.advisor import Suggestion, UnknownName
from xpc.compiler.language.kinds import BLOCK, FLAG
from xpc.compiler.suggest.components import (
    after_component,
    by_last_part,
    by_parent,
    head_word,
    misspelt_clause,
    of_evaluation,
    with_shared_word,
)
from xpc.compiler.suggest.converted_values import NO, methods_with
from xpc.compiler.suggest.data_names import data_advice
from xpc.compiler.suggest.extra_form import extra_argument, extra_suggestion
from xpc.compiler.suggest.first_line import sentence_with_verb
from xpc.compiler.suggest.flag_values import head_choice, setting_of_choice
from xpc.compiler.suggest.guessed import NAMED_THERE, is_in, of_guess, suggested, wrong_value
from xpc.compiler.suggest.known_names import NEVER_LEGAL
from xpc.compiler.suggest.legal import ALREADY
from xpc.compiler.suggest.likeness import one_mistake, typo_of
from xpc.compiler.suggest.meaning import (
    SAME,
    Meaning,
    is_known,
    meaning,
    mistyped,
    name_of_four,
    nearest_other_name,
    shares_word,
)
from xpc.compiler.suggest.no_equivalent import advice, excluded, without_equivalent
from xpc.compiler.suggest.registry_names import either
from xpc.compiler.suggest.sentence import holdout_share, named_by_value, named_outside
from xpc.compiler.suggest.tables import general_words
from xpc.compiler.suggest.typed_form import (
    by_word_or_value,
    clause_line,
    intended_value,
    near_settings,
    value_of,
    written,
)
from xpc.grammar.record import evolve

MAX_SUGGESTED = 50
"""The largest number of unknown names in a file that get suggestions. Further names are reported without one, because
suggestions take time.
"""
REFERENCE = "`xpc list settings` prints them all"
HEADER = "it is the first line of a spec: `train MODEL on DATA for 3 epochs`"
FILES = ("fsdp_", "zero_", "stage3_")
"""Beginnings of keys that exist only in the configuration files of accelerate and DeepSpeed."""
TYPO = 0.9
"""Minimum similarity (0 to 1) for a name to count as a typo of a known name."""


def unknown_name(unknown: UnknownName, count: int = 0) -> Suggestion:
    """The suggestion for an unknown name; `count` is the number of earlier unknown names in the file."""
    if count >= MAX_SUGGESTED:
        return Suggestion("XP101", f"`{unknown.name[:60]}` is not a setting", help=REFERENCE)
    near = _known_name(unknown)
    if near is not None:
        found = unknown_name(evolve(unknown, name=near), count)
        message = found.message.replace(f"`{near[:60]}`", f"`{unknown.name[:60]}`", 1)
        return evolve(found, message=message, text=found.text or f"did you mean `{near}`?")
    if unknown.clause is None:
        return _outside(unknown)
    found = _inside(unknown, unknown.clause)
    return found if found.intended else evolve(found, intended=_written_in(found.help, unknown.clause))


def _known_name(unknown: UnknownName) -> str | None:
    """If the unknown name misspells a name that any tool uses, return that name. None if it may also misspell a setting
    of the clause.
    """
    name, clause = unknown.name, unknown.clause
    known = is_known(name) or extra_argument(name, None, None, False) is not None or near_settings(unknown, clause)
    if known or (clause is not None and named_outside(unknown, clause) is not None):
        return None
    names = [one.name for one in schema.children(clause)] if clause else [*schema.CLAUSES, *schema.bare_choices()]
    joined = clause is not None and is_known(f"{clause} {name}")
    own = typo_of(name, names) is not None or any(one_mistake(name, one) for one in names)
    return None if joined or own else mistyped(name)


def _written_in(help: str, clause: str) -> tuple[str, ...]:
    """The settings of a clause that the text of a help contains. They count as written, so that no rule reports their
    defaults.
    """
    forms = " ".join(re.findall(r"`([^`]*)`", help))
    return tuple(path for name in re.findall(r"(\w+) ?=", forms) if (path := f"{clause}.{name}") in schema.BY_PATH)


def _outside(unknown: UnknownName) -> Suggestion:
    name = unknown.name
    if name == "train":
        return Suggestion("XP101", "`train` is not a setting", help=HEADER)
    line = unknown.label.source.text[unknown.label.span.end :].partition("\n")[0].split()
    # a first line whose verb is misspelt: `trian qwen2.5-3b on alpaca`
    if typo_of(name, ["train"]) and (not line or line[1:2] == ["on"]):
        edit = "train" if line else None
        return Suggestion("XP101", f"`{name}` is not a setting of the language", "did you mean `train`?", HEADER, edit)
    # a first line with another verb: `finetune qwen2.5-3b using "rows.jsonl"`
    if (sentence := sentence_with_verb(unknown)) is not None:
        return Suggestion("XP101", f"`{name[:60]}` is not a setting of the language", help=f"write `{sentence}`")
    head = misspelt_clause(unknown)
    if head is not None:
        message = f"`{name[:60]}` is not a setting of the language"
        return evolve(suggested(unknown, message, head, head, replaces_value=False), intended=(head,))
    if name in schema.SOURCE_SETTINGS and f"data.{name}" not in schema.BY_PATH:
        return _source_setting(unknown)
    if (share := holdout_share(unknown)) is not None:
        return suggested(unknown, f"`{name[:60]}` is not a setting of the language", share, share)
    rows = sorted((row for row in schema.TABLE if row.name == name), key=lambda row: row.path.count("."))
    exact = meaning(name, exact=True)
    special = bool(rows) and all(row.methods for row in rows)
    if rows and not (exact is not None and (special or exact.path.startswith("train"))):
        if len(rows) == 1 and unknown.node is not None and rows[0].kind not in (FLAG, BLOCK):
            value = intended_value(rows[0], unknown)
            if (rows[0].path, value) in ALREADY:
                return Suggestion("XP102", f"`{name}` belongs inside a clause", help=ALREADY[rows[0].path, value or ""])
            if value is None:
                return evolve(wrong_value(rows[0], unknown, f"`{name[:60]}` belongs inside a clause"), code="XP102")
        ways = [written(row, unknown) for row in rows]
        alone = ways[0] if len(ways) == 1 else None
        return Suggestion(
            "XP102",
            f"`{name[:60]}` belongs inside a clause",
            help="write " + either(ways),
            edit=alone,
            replaces_value=True,
        )
    if name in ("bf16.enabled", "fp16.enabled"):  # keys of deepspeed.json
        name = name.removesuffix(".enabled")
    path = schema.bare_choices().get(name)
    if path is not None and (unknown.typed or "").strip('"').lower() in NO:
        message = f"`{name[:60]}` is a choice of `{path}`, and takes no value"
        return Suggestion("XP104", message, help=f"leave `{name}` out: `{path}` names the only choice that is used")
    if path is not None:
        return Suggestion(
            "XP104",
            f"`{name[:60]}` is a choice of `{path}`, and takes no value",
            help=f"write `{name}` alone, or `{path.rpartition('.')[2]} = {name}`",
            edit=name,
            replaces_value=True,
        )
    return _unknown(unknown, None)


def _inside(unknown: UnknownName, clause: str) -> Suggestion:
    name = unknown.name
    message = f"`{name[:60]}` is not a setting of `{clause}`"
    if name == "train":
        return Suggestion("XP102", message, help=HEADER)
    instead = data_advice(unknown) if clause == "data" else None
    if instead is not None:
        return Suggestion("XP101", message, help=instead)
    form = named_outside(unknown, clause)
    if form is not None:
        return Suggestion("XP102", message, help=form)
    chosen = head_choice(clause, name, unknown.node, unknown.typed)
    if chosen is not None:
        return Suggestion("XP102", message, help=f"write `{clause} {chosen}`")
    alone = setting_of_choice(clause, name) if unknown.typed in (None, "true") else None
    if alone is not None:
        return suggested(unknown, message, alone, alone, True, unknown.node is not None)
    if (part := by_word_or_value(unknown, clause)) is not None:
        return of_guess(unknown, clause, message, part)
    together, plain, head = None, meaning(name, clause, exact=True), head_word(unknown, clause)
    for before in filter(None, (head, clause.rpartition(".")[2])):
        # the clause may be a part of the name: `tp_size` in `vllm` is `vllm_tp_size`, and `alpha` in `method cpo` is
        # `cpo_alpha`
        joined = f"{before} {name}"
        advised = advice(joined, unknown.typed or "")
        if advised is not None:
            return Suggestion("XP101", message, help=advised)
        # `limit` in `save` stands for `save_limit`, and not for `limit` of a data source
        together = meaning(joined, exact=True)
        if before == head and plain and is_in(plain.path, clause) and together and together.likeness < 1.0:
            continue  # `learning_rate` in `optimizer adamw` stands for `lr`, and not for `adamw_lr` of muon
        if (
            together is not None
            and is_in(together.path, clause)
            and (name not in schema.CLAUSES or (unknown.node is not None and name not in schema.BY_PATH))
        ):
            return of_guess(unknown, clause, message, together)
        no_equivalent = without_equivalent(message, joined, loosely=False)
        if no_equivalent is not None:
            return no_equivalent
    if name in schema.SOURCE_SETTINGS and (clause == "data" or f"data.{name}" not in schema.BY_PATH):
        if together is None or not is_in(together.path, clause):
            return _source_setting(unknown)
        return of_guess(unknown, clause, message, together)
    rows = [row for row in schema.TABLE if row.name == name and row.path not in NEVER_LEGAL]
    no_equivalent = without_equivalent(message, f"{clause} {name}")
    if no_equivalent is not None and not rows:
        return no_equivalent
    # the name of a setting elsewhere may be a name of this clause: `size` in `eval` is `eval_size`
    if together is not None and not rows and together.path in schema.BY_PATH:
        return of_guess(unknown, clause, message, together)
    argument = evolve(unknown, name=f"{clause.rpartition('.')[2]}_{name}")  # `delay` in `eval` is `eval_delay`
    if not rows and name not in schema.CLAUSES and (found := extra_suggestion(argument, message)) is not None:
        return found
    if name in general_words() and name not in schema.CLAUSES and meaning(name, clause, exact=True) is None:
        return Suggestion("XP101", message, help=_children(clause))
    if unknown.node is not None and f"{clause}.{name}s" in schema.BY_PATH and f"{clause}.{name}" not in schema.BY_PATH:
        return of_guess(unknown, clause, message, Meaning(f"{clause}.{name}s", own=True))
    path = schema.bare_choices().get(name)
    if not (rows or path or name in schema.CLAUSES):
        return _unknown(unknown, clause)
    guess = meaning(name, clause)
    # the name is nearly one of the clause's settings: `optimizer` has no `beta`, but `betas`
    plural = guess is not None and guess.path == f"{clause}.{name}s"
    if guess is not None and is_in(guess.path, clause) and (plural or guess.likeness >= SAME):
        # the name is another tool's name for a setting of this clause: `block_size` in `batch`
        return _unknown(unknown, clause)
    exact = meaning(name, exact=True)
    deep = bool(rows) and all(row.inner and row.path.count(".") > 1 for row in rows)
    if deep and exact is not None and exact.path not in [row.path for row in rows]:
        # `max_length` is an argument of vLLM, and also of the trainers
        return of_guess(unknown, clause, message, exact)
    if name in schema.CLAUSES:
        return Suggestion(
            "XP102", message, help=f"write `{clause_line(name, unknown)}` on a line of its own, outside of `{clause}`"
        )
    if path is not None:
        home = path.partition(".")[0]
        return Suggestion("XP102", message, help=f"it belongs to `{home}`: write `{name}` outside of `{clause}`")
    if rows[0].path.startswith("train."):
        return Suggestion("XP102", message, help=f"write `for {value_of(rows[0], unknown)} {name}` in the first line")
    if len(rows) == 1 and unknown.node is not None and intended_value(rows[0], unknown) is None:
        return evolve(wrong_value(rows[0], unknown, message), code="XP102")
    home, forms = rows[0].path.partition(".")[0], [written(row, unknown) for row in rows]
    if home == clause and len(rows) == 1:  # the setting must be written in a block inside of this clause
        return suggested(unknown, message, written(rows[0], unknown), inside=True)
    where = f"it belongs to `{home}`: " if len(rows) == 1 else ""
    intended = (rows[0].path,) if len(rows) == 1 else ()
    return Suggestion("XP102", message, help=f"{where}write {either(forms)} outside of `{clause}`", intended=intended)


def _source_setting(unknown: UnknownName) -> Suggestion:
    """The suggestion for a name that is a setting of a single source in the `data` block."""
    where = " for each source" if unknown.clause == "data" else " in the `data` block, for each source"
    help = f"write `SOURCE({unknown.name}={unknown.typed or '...'})`{where}"
    return Suggestion("XP102", f"`{unknown.name}` belongs to a source", help=help)


def _unknown(unknown: UnknownName, clause: str | None) -> Suggestion:
    name = unknown.name
    message = f"`{name[:60]}` is not a setting " + (f"of `{clause}`" if clause else "of the language")
    if clause is None and name in stacks.names():
        return Suggestion("XP101", f"`{name}` is a target", help=f"write `target={name}`", edit=f"target={name}")
    lower = name.lower()
    if lower != name and clause is None and lower in _bare():
        return Suggestion("XP101", message, f"did you mean `{lower}`?", f"write `{lower}`", lower)
    # another tool's word for `extends`: `import "base.xp"`, `include "base.xp"`
    if clause is None and (unknown.typed or "").endswith('.xp"'):
        return Suggestion("XP101", message, help=f"write `extends {unknown.typed}`, above the sentence and all clauses")
    # name and value may only have a meaning together, as in `offload_optimizer_device=nvme`
    named = f"{name} {unknown.typed or ''}"
    advised = advice(named, "") or advice(name, unknown.typed or "")
    if advised is not None:
        return Suggestion("XP101", message, help=advised)
    if unknown.typed and (found := without_equivalent(message, named, loosely=False)) is not None:
        return found
    guess = _of_method(name) or meaning(name, clause, valued=unknown.node is not None)
    if clause is None and (guess is None or guess.likeness < SAME):
        guess = after_component(name) or guess
    if clause is not None and guess is not None and guess.path.count(".") > 1 and not is_in(guess.path, clause):
        # prefer a setting with the identical name: `max_len` in `method grpo` is not the `max_len` of vLLM
        guess = meaning(name, exact=True) or guess
    if clause is not None and guess is not None and guess.likeness < TYPO and not is_in(guess.path, clause):
        guess = guess if shares_word(name, guess.path) else None  # `notes` in `track` is no misspelling of `nodes`
    if clause is not None and (guess is None or guess.likeness < SAME):
        children = [row.name for row in schema.children(clause) if row.path not in NEVER_LEGAL]
        begun = [one for one in children if one.startswith(name)]
        near = (
            typo_of(name, children)
            or name_of_four(name, children)
            or (begun[0] if len(begun) == 1 and len(name) > 2 else None)
        )
        inner = {
            row.name: row.path for row in schema.TABLE if row.path.startswith(f"{clause}.") and row.path.count(".") > 1
        }
        deep = typo_of(name, inner) if near is None and guess is None else None
        if near is not None:
            guess = Meaning(f"{clause}.{near}", "", SAME - 0.01, own=True)  # `drop` in `lora` stands for `dropout`
        elif deep is not None:
            guess = Meaning(inner[deep], "", SAME - 0.01, own=True)  # `privat` in `save` is `hub(private)`
    fitting = near_settings(unknown, clause) if guess is None or guess.likeness < SAME - 0.01 else []
    if len(fitting) > 1:
        names = [one.value or one.path.rpartition(".")[2] for one in fitting]
        return Suggestion("XP101", message, help=f"write {either(names)}", intended=tuple(one.path for one in fitting))
    guess = fitting[0] if fitting else guess
    exact = guess is not None and guess.likeness >= SAME
    # below 1, a word of the name is a synonym: `eval_iters` has the synonym `iters` of `steps` in `eval_steps`
    if exact and guess is not None and guess.likeness < 1.0:
        found = without_equivalent(message, name, loosely=False)
        if found is not None:
            return found
    if guess is None or not exact or not guess.own:
        own = name.startswith(FILES) and (guess is None or guess.path == "strategy")
        # a name that misspells a known name needs no suggestion from names that merely begin in the same way
        loosely = guess is None or guess.likeness < TYPO
        found = without_equivalent(message, name, loosely=False)
        found = found or (extra_suggestion(unknown, message) if own or not exact else None)
        found = found or (without_equivalent(message, name) if loosely else None)
        found = found or (None if exact else excluded(message, name))
        if found is not None:
            return found
    tracker, dot, _ = name.partition(".")
    if dot and not exact and (inside := by_parent(name)) is not None:
        return of_guess(unknown, clause, message, inside)
    if dot and not exact and tracker in schema.BY_PATH["track"].choices:
        # a key in a block of deepspeed.json, such as `wandb.enabled`
        return suggested(unknown, message, f"track={tracker}")
    if dot and not exact and name.endswith((".enabled", ".enable")):
        return evolve(_unknown(evolve(unknown, name=name.rpartition(".")[0]), clause), message=message)
    if dot and not exact and of_evaluation(name):
        return Suggestion("XP101", message, help=_children("eval"))
    if dot and not exact:
        part = by_last_part(unknown) or _by_last_word(unknown, clause)
        if part is not None:
            return evolve(_unknown(part, clause), message=message)
        # `name` alone is too general: `rollout.name` does not stand for `rollouts`
        guess = None if name.rpartition(".")[2] in general_words() else guess
    if not exact:
        form = named_by_value(unknown)
        if form is not None:
            return Suggestion("XP101", message, help=f"write `{form}`: {NAMED_THERE}")
    if guess is None or not exact:
        other, likeness = nearest_other_name(name)
        nearer = guess is None or likeness > guess.likeness
        if other is not None and (
            nearer or (guess is not None and guess.path == "strategy" and name.startswith(FILES))
        ):
            return _near_other_name(unknown, message, other)
    methods = methods_with(name)
    # the value is a loss of another method: `dapo` is a loss of grpo
    if methods and (not exact or (guess is not None and guess.path == "method")):
        form = f"loss={name}"
        return Suggestion("XP101", message, help=f"write `{form}`, which `method` {', '.join(methods[:3])} reads")
    if guess is None:
        shared = with_shared_word(name, clause)
        return Suggestion("XP101", message, help=f"write {either(shared)}" if shared else _children(clause))
    return of_guess(unknown, clause, message, guess)


def _children(clause: str | None) -> str:
    """A phrase that lists the settings of a clause. If there are many, it says how to list them."""
    names = [row.name for row in schema.children(clause)] if clause else []
    return f"`{clause}` has {', '.join(names[:12])}" if names else REFERENCE


def _of_method(name: str) -> Meaning | None:
    """The setting for a name that begins with the name of a method, such as `grpo_epsilon`. None for any other name."""
    method, _, rest = name.partition("_")
    row = schema.BY_PATH.get(f"method.{rest}")
    known = (
        row is not None and method in schema.BY_PATH["method"].choices and (not row.methods or method in row.methods)
    )
    return Meaning(f"method.{rest}", own=True) if known and meaning(name, exact=True) is None else None


def _by_last_word(unknown: UnknownName, clause: str | None) -> UnknownName | None:
    """The last part of a dotted name such as `model.enable_checkpointing`, if it is similar to a setting. Otherwise
    None.
    """
    last = evolve(unknown, name=unknown.name.rpartition(".")[2])
    return last if last.name not in general_words() and _unknown(last, clause).help != REFERENCE else None


def _near_other_name(unknown: UnknownName, message: str, near: str) -> Suggestion:
    """The suggestion for a name that misspells `near`. `near` is an argument for `extra`, or a name without an
    equivalent.
    """
    advised = advice(near, unknown.typed or "")
    if advised is not None:
        return Suggestion("XP101", message, help=advised)
    found = extra_suggestion(evolve(unknown, name=near), message) or excluded(message, near)
    if found is None:  # the suggestion for `near` needs a number, and the user wrote none
        return Suggestion("XP101", message, help=_children(unknown.clause))
    return evolve(found, text=f"did you mean `{near}`?")


def _bare() -> list[str]:
    """Names that are legal without a clause, as a statement or after `with`."""
    return [*(one for one in schema.CLAUSES if one != "train"), *schema.outer_names(), *schema.bare_choices()]
