"""Suggest what to write instead of a name that is not legal at its place in the spec. If the name is misspelt
(`learning_raet`), the suggestion is made for the corrected name (`learning_rate`).
"""

from __future__ import annotations

import re

from xpc.compiler.language import schema
from xpc.compiler.language.advisor import Suggestion, UnknownName
from xpc.compiler.suggest.converted_values import NO, YES
from xpc.compiler.suggest.extra_form import extra_argument
from xpc.compiler.suggest.flag_values import head_choice
from xpc.compiler.suggest.likeness import one_mistake, parts, typo_of
from xpc.compiler.suggest.meaning import is_known, meaning
from xpc.compiler.suggest.no_equivalent import advice
from xpc.compiler.suggest.sentence import named_outside
from xpc.compiler.suggest.typed_form import near_settings
from xpc.compiler.suggest.unknown_names.case import REFERENCE, Case, denied, settings_of
from xpc.compiler.suggest.unknown_names.inside import inside
from xpc.compiler.suggest.unknown_names.misspelt import mistyped
from xpc.compiler.suggest.unknown_names.outside import outside
from xpc.compiler.suggest.unknown_names.plain_words import asks, in_plain_words, is_a_phrase, without_question
from xpc.grammar.record import evolve
from xpc.grammar.tree import Number

MAX_SUGGESTED = 50
"""At most this many unknown names in a file get suggestions. Further names are reported without suggestions, because
these take time.
"""


UNSET = ("null", "None", "Null", "NULL", "nil", "~")
"""Values that leave an argument unset in YAML, JSON and Python."""
WRITTEN = re.compile(rf"^(?:train\b.*\bwith\b.*)?[ \t]*\b({'|'.join(schema.ADAPTERS)})\b(?![ \t]+false)", re.MULTILINE)
"""A pattern for the adapter of a spec, in the first line or on a line of its own."""
TRAILING = re.compile(r"[ \t]*(?:seconds|minutes|hours|days|epochs|mins?|hrs?|secs?)\b")
"""A pattern for a unit after a number, as a word of its own: `save_every = 3 epochs`."""
OF_HYDRA = re.compile(
    r"(?:[\w-]+\.)*_(?:target|recursive|convert|partial|args)_"
    r"|(?:[\w-]+\.)*(?:dataset|checkpointer|loss|model|quantizer|tokenizer|profiler)\._component_"
)
"""A pattern for keys that name a class, in Hydra and torchtune: `actor._target_`, `loss._component_`."""


def unknown_name(unknown: UnknownName, count: int = 0) -> Suggestion:
    """The suggestion for an unknown name; `count` is the number of earlier unknown names in the file."""
    if count >= MAX_SUGGESTED:
        return Suggestion("XP101", f"`{unknown.name[:60]}` is not a setting", help=REFERENCE)
    chosen = head_choice(unknown.clause or "", unknown.name, unknown.node, unknown.typed)
    of_hydra = OF_HYDRA.fullmatch(unknown.name) or (unknown.name == "_component_" and unknown.clause is None)
    if of_hydra and chosen is None:
        help = f"leave `{unknown.name[:60]}` out: a spec names no class of Python"
        return Suggestion("XP101", f"`{unknown.name[:60]}` is not a setting", help=help)
    near = _known_name(unknown)
    if near is not None:
        return _as(near, unknown, count)
    if asks(unknown.name) and not _known(unknown) and not is_known(f"{unknown.clause or ''} {unknown.name}"):
        short = without_question(unknown.name) if unknown.clause else ""
        found = inside(evolve(unknown, name=short)) if short not in ("", unknown.name) else None
        help = settings_of(unknown.clause or "") if found is None or found.elsewhere else found.help
        return Case(unknown).says(help)
    found = outside(unknown) if unknown.clause is None else inside(unknown)
    plain = _in_plain_words(unknown) if found.help == settings_of(unknown.clause or "") else None
    if plain is not None and plain != unknown.name:
        return _as(plain, unknown, count)
    rest = denied(unknown.name)
    guess = meaning(rest, unknown.clause, exact=True) if found.edit and rest else None
    counted = isinstance(unknown.node, Number)  # a number has no opposite: `drop_prob = 0.1`
    kept = unknown.node is not None and (unknown.typed or "").lower() not in (*YES, *NO)  # `skip_modules = [lm_head]`
    opposite = not counted and (kept or guess is None or guess.path not in found.intended)
    if found.edit and rest and opposite and not _known(unknown):
        found = evolve(found, help=f"{found.help} for the opposite of `{unknown.name[:60]}`", edit=None)
    if found.edit and unknown.node and TRAILING.match(unknown.label.source.text, unknown.node.span.end):
        found = evolve(found, help="write one word as the value, as in `every = 100`", edit=None)
    off = found.edit is not None and re.search(r"=[ ]?(?:0|none|false|never)\)*$|\bfalse\b", found.edit)
    text = (unknown.typed or "").strip('"')
    legal = any("none" in schema.BY_PATH[path].choices for path in found.intended if path in schema.BY_PATH)
    names = (unknown.name, *(schema.BY_PATH[path].name for path in found.intended if path in schema.BY_PATH))
    stated = "none" in found.help or any(advice(f"{one} none", "") for one in names)  # `lr_scheduler = none`
    unwritten = found.edit or (found.help.startswith("write ") and not stated)
    empty = text in UNSET or (unknown.typed == '""' and found.edit is None and unknown.clause is None)
    if (empty or (text == "none" and unwritten and not legal)) and not off:
        help = f"leave `{unknown.name[:60]}` out: `{unknown.typed}` sets nothing"
        return Suggestion("XP101", found.message, help=help)
    if unknown.clause is None:
        return _of_the_adapter(unknown, found)
    return found if found.intended else evolve(found, intended=_written_in(found.help, unknown.clause))


def _as(name: str, unknown: UnknownName, count: int) -> Suggestion:
    """The suggestion for the unknown name, if it stands for the known name `name`."""
    found = unknown_name(evolve(unknown, name=name), count)
    message = found.message.replace(f"`{name[:60]}`", f"`{unknown.name[:60]}`", 1)
    near = "" if found.help == settings_of(unknown.clause or "") else f"did you mean `{name}`?"
    return evolve(found, message=message, text=found.text or near)


def _of_the_adapter(unknown: UnknownName, found: Suggestion) -> Suggestion:
    """If a name begins with an adapter, or the spec has one, replace `lora(...)` in the suggestion by this adapter:
    `vera_rank` is `vera(rank=...)`.
    """
    adapter, old = parts(unknown.name[:80] + " lora")[0], re.compile(r"\blora\(")
    if adapter not in schema.ADAPTERS or adapter == "lora":
        written = WRITTEN.search(unknown.label.source.text)
        own = "qlora" if "double_quant" in found.help else "lora"  # only a base of 4 bits has scales to quantize
        adapter = written[1] if written is not None and (written[1] == "qlora" or adapter != "lora") else own
    edit = found.edit and old.sub(f"{adapter}(", found.edit)
    text, help = (old.sub(f"{adapter}(", one) for one in (found.text, found.help))
    return evolve(found, text=text, help=help, edit=edit)


def _known_name(unknown: UnknownName) -> str | None:
    """If the unknown name misspells the name of a setting in xpc or in another tool, return the correct name. None if
    the unknown name may also be a misspelt setting of its clause.
    """
    name, clause = unknown.name, unknown.clause
    known = _known(unknown) or near_settings(unknown, clause) or is_known(denied(name))
    if known or (clause is not None and named_outside(unknown, clause) is not None):
        return None
    joined = clause is not None and is_known(f"{clause} {name}")
    if not joined and is_a_phrase(name) and (plain := _in_plain_words(unknown)) is not None:
        return plain
    names = [one.name for one in schema.children(clause)] if clause else [*schema.CLAUSES, *schema.bare_choices()]
    own = typo_of(name, names) is not None or any(one_mistake(name, one) for one in names)
    near = None if joined or own else mistyped(name)
    # a choice of another clause takes no value: `rewarm = 10` in `schedule` is no misspelt `reward`
    return None if clause is not None and unknown.node is not None and near in schema.bare_choices() else near


def _in_plain_words(unknown: UnknownName) -> str | None:
    """The known name that has the same words as a phrase: `save_every` for `how_often_to_save`."""
    advised = advice(unknown.name, unknown.typed or "") is not None
    plain = None if advised else in_plain_words(unknown.name, unknown.clause or "")
    return plain if plain is not None and _known(evolve(unknown, name=plain)) else None


def _known(unknown: UnknownName) -> bool:
    """Whether the name is a name of another tool, or an argument for `extra`."""
    return is_known(unknown.name) or extra_argument(unknown.name, None, None, False) is not None


def _written_in(help: str, clause: str) -> tuple[str, ...]:
    """The settings of a clause that a help suggests (`every = 100`). The checks then treat these settings as written,
    so that no rule reports their defaults.
    """
    forms = " ".join(re.findall(r"`([^`]*)`", help))
    return tuple(path for name in re.findall(r"(\w+) ?=", forms) if (path := f"{clause}.{name}") in schema.BY_PATH)
