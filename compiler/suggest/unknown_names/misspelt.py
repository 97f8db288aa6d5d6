"""Find the known name that an unknown name misspells: `learning_rate` for `lerning_rate`."""

from __future__ import annotations

from functools import cache, lru_cache

from xpc.compiler.suggest.likeness import begins, one_mistake, parts
from xpc.compiler.suggest.meaning import by_letters, is_known, known_words, outcome
from xpc.grammar.nearest import letters


@lru_cache(maxsize=64)
def mistyped(name: str) -> str | None:
    """The known name, of xpc or of another tool, that differs from an unknown name by one typing mistake: `kl_coef` for
    `kl_ccoef`. None if there is no such name, or if several such names have different meanings.
    """
    typed = letters(name[:80])
    if len(typed) < 4 or known_words().issuperset(parts(name[:80])):
        return None  # all words are known, so the name is not misspelt: `gpu_count` does not mean `cpu_count`
    near = (one for length in range(len(typed) - 1, len(typed) + 2) for one in _by_length().get(length, ()))
    found = [by_letters()[one] for one in near if one_mistake(typed, one)]
    meanings = {outcome(one): one for one in reversed(found or _with_a_known_word(name[:80]))}
    return next(iter(meanings.values())) if len(meanings) == 1 else None


@cache
def _by_length() -> dict[int, list[str]]:
    out: dict[int, list[str]] = {}
    for one in by_letters():
        out.setdefault(len(one), []).append(one)
    return out


def _with_a_known_word(name: str) -> list[str]:
    """Correct a name if exactly one of its words is unknown, and one typing mistake explains this word: `lerning_rate`
    becomes `learning_rate`. Returns the corrected names that xpc knows. If xpc knows none of them, returns the
    corrected name if there is only one.
    """
    typed, legal = parts(name), known_words()
    strange = [
        number
        for number, word in enumerate(typed)
        if word not in legal and len(word) > 2 and not any(begins(word, one) for one in legal)
    ]  # an abbreviation such as `strat` is not a misspelling
    if len(strange) != 1 or len(typed[strange[0]]) < (6 if len(typed) == 1 else 3):
        return []
    (number,) = strange
    near = [word for word in legal if one_mistake(typed[number], word)]
    joined = ["_".join((*typed[:number], word, *typed[number + 1 :])) for word in sorted(near)]
    return [one for one in joined if is_known(one)] or (joined if len(joined) == 1 else [])
