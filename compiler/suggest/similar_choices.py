"""Find the choice of a setting that a text spells in another way, such as `flash2` for `flash_attention_2`. Imported
only for a wrong spec.
"""

from __future__ import annotations

import re

from xpc.compiler.language import schema
from xpc.compiler.language.kinds import FLAG
from xpc.compiler.suggest.converted_values import YES
from xpc.compiler.suggest.known_names import known_choice, spellings
from xpc.compiler.suggest.likeness import has_another_word, letter_likeness, parts, weight, words
from xpc.compiler.suggest.meaning import ENOUGH, SAME, one_letter, word_likeness
from xpc.compiler.suggest.no_equivalent import advice, own_reason
from xpc.grammar.nearest import another_number, letters


def open_setting(row: schema.Setting, text: str, chosen: str, spec: str) -> str:
    """The number that the name of a choice mentions and the spec states nowhere: `momentum` for `sgd_momentum`. "" if
    there is none.
    """
    rest = {*parts(text)} - {*parts(chosen)}
    real = [one for one in schema.children(row.path) if one.kind.name.startswith("real") and chosen in one.doc]
    return next((one.name for one in real if {*parts(one.name)} <= rest and spec.count(one.name) < 2), "")


def choice(row: schema.Setting, text: str) -> str | None:
    """The choice of a setting that is written in another spelling: `flash2` for `flash_attention_2`. None if it is
    unclear which choice is meant.
    """
    text = text[:80]
    if row.path == "method":
        # the name may be the class of a method, such as `DPOTrainer`
        text = re.sub(r"(?<=\w)(?:Trainer|Config)$", "", text)
    if (same := known_choice(row, text)) is not None:
        return same  # only separators differ, so `llama-3.1` stands for `llama3.1`, and not for `llama3`
    found = _similar_choice(row, text)
    return None if found is None or _states_more(row, text, found) else found


def _states_more(row: schema.Setting, text: str, found: str) -> bool:
    """Whether a text has a number or a word that its choice lacks: `cosine_0.1` states more than `cosine`, and
    `length_penalty` more than `len`.
    """
    own = {part for name, phrase in spellings(row) if name == found for part in (*parts(phrase), *words(phrase))}
    rest = {*parts(text)} - own
    others = {part for name in row.choices for part in parts(name)} - own
    typos = {one for one in rest if any(letter_likeness(one, part) >= 0.7 for part in own)}
    rest = {one for one in rest - typos if weight(one) == 1 and one not in YES}
    if row.path == "strategy":  # the words may be the name of a file: `ds_config_zero2.json`
        return any(re.fullmatch(r"\d+(?:pct|percent)?", one) or one in others for one in rest)
    return bool(rest)


def _similar_choice(row: schema.Setting, text: str) -> str | None:
    typed, own = letters(text), words(text)
    named, other = f"{row.name} {text}", schema.bare_choices().get(text, row.path)
    if own_reason(named) is not None or advice(named, "") is not None or text.lower() in ("true", "false"):
        return None
    if other != row.path and not row.head:
        return None  # `sft` is no misspelt loss `dft`
    if re.search(r"\w[(=]", text):
        return None  # `"adamw(lr=1e-5)"` states more than a choice
    if row.path == "strategy" and re.search("offload|cpu|nvme", typed) and typed != "offload":
        return None  # `deepspeed_stage_2_offload` does not mean `zero2`, because `zero2` would lose the offload
    inside = {name for name in row.choices if len(name) > 3 and any(c.isdecimal() for c in name) and name in typed}
    if any(row.kind is FLAG and row.name in parts(text) and row.name not in inside for row in schema.TABLE):
        return None  # `fp32-tf32` states more than `fp32`
    staged = re.search(r"(?:^|[_.-])(?:z(?:ero)?|stage)_?([123])(?![0-9])", text.lower())
    stage = staged if row.path == "strategy" else None
    # the name may contain the stage alone, as `ds_z3_config.json` does
    inside = inside or ({f"zero{stage[1]}"} if stage is not None else set())
    if len(inside) == 1:
        # the text contains one of the choices, as the file name `ds_config_zero3.json` contains `zero3`
        return inside.pop()
    enough = len(typed) > 2 - any(map(str.isdigit, typed))
    begun = [name for name in row.choices if enough and letters(name).startswith(typed)]
    if len(begun) == 1:
        return begun[0]  # the name may abbreviate a reward, as `acc` abbreviates `accuracy`
    if len(near := [name for name in row.choices if one_letter(text, name)]) == 1:
        return near[0]
    best, rank = None, 0.0
    stated = tuple(one for one in parts(text) if weight(one) == 1 and one not in YES)
    for name, phrase in spellings(row):
        if another_number(typed, letters(phrase)) or another_number(typed, letters(name)):
            continue
        if typed == letters(phrase):
            like = 1.0
        else:  # `local_state_dict` is no misspelt `full_state_dict`
            typo = 0.0 if has_another_word(stated, parts(phrase)) else letter_likeness(typed, letters(phrase))
            like = max(word_likeness(own, words(phrase)), typo)
        like += 0.04 * (name == phrase)
        if like >= ENOUGH and like >= rank:
            # of two equally similar choices, return the first if it has the words of the text, and otherwise none
            tie = like == rank and best != name
            best, rank = (best if like >= SAME else None) if tie else name, like
    return best
