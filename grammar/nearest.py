"""Find the name whose letters are most similar to those of a misspelt name. Names with the same meaning are found
elsewhere, in `xpc.compiler.suggest.meaning`.
"""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `name` most likely misspells, or None."""
    # imported here, because only a misspelt spec needs it and the import takes 5 ms
    from difflib import SequenceMatcher

    name = name[:80]
    plain = _plain(name)
    best, best_score = None, 0.0
    for candidate in candidates:
        other = _plain(candidate)
        matcher = SequenceMatcher(None, plain, other)
        if matcher.real_quick_ratio() < 0.6:
            continue
        score = matcher.ratio()
        if sorted(plain) == sorted(other):
            # if two candidates are equally similar, prefer the one that has the letters of the name in another order
            score += 0.2
        if other.startswith(plain) or plain.startswith(other):
            score += 0.1
        if score > best_score:
            best, best_score = candidate, score
    return best if best_score >= 0.6 else None


FILES = (
    ("xp",), ("py",), ("sh",), ("jinja", "jinja2", "j2", "tmpl", "template"), ("yaml", "yml"),
    ("jsonl", "json", "csv", "parquet", "arrow", "txt", "gz", "zst", "ndjson", "tsv"),
)  # fmt: skip
"""Groups of file endings. A file name is compared only with names whose ending is in the same group. A name with an
ending of no group counts as a folder.
"""
SPECS = 0
"""`FILES[SPECS]` are the endings of specs. If the short names of two specs differ in one letter, such as `a1.xp` and
`b1.xp`, they are two experiments, and neither name is a misspelling of the other.
"""


def misspelt_file(name: str, names: Iterable[str]) -> str | None:
    """Return the one of `names` that a file's name probably misspells. None if there is no such name, or if there are
    several. Names that differ in digits or in short words stand for different files: `rows-1.jsonl`, `rows-2.jsonl`.
    """
    stem, kind = _stem_and_kind(name)
    found = [
        one
        for one in names
        if _stem_and_kind(one)[1] == kind and _is_typo(stem, _stem_and_kind(one)[0], 6 if kind == SPECS else 4)
    ]
    same = [one for one in found if _stem_and_kind(one)[0] == stem]
    found = same or found
    return found[0] if len(found) == 1 else None


def _stem_and_kind(name: str) -> tuple[str, int]:
    """Return a pair: a file's name in lower case without its endings, and the index of its group in FILES."""
    stem, kind = name.lower(), len(FILES)
    while "." in stem.strip("."):
        rest, _, ending = stem.rpartition(".")
        of = next((number for number, endings in enumerate(FILES) if ending in endings), None)
        if of is None:
            break
        stem, kind = rest, of
    return stem, kind


def _is_typo(one: str, other: str, least: int) -> bool:
    """Whether two stems differ only by a typing error: other separators, letters in another order, one additional
    letter, or one wrong letter. One wrong letter counts only if the names have at least `least` letters.
    """
    first, second = letters(one), letters(other)
    if first == second:
        return True
    if [c for c in first if c.isdecimal()] != [c for c in second if c.isdecimal()]:
        return False
    if sorted(first) == sorted(second):
        return len(first) > 3
    short, long = sorted((first, second), key=len)
    if len(long) - len(short) > 1 or len(short) < 3:
        return False
    start = next((at for at, (a, b) in enumerate(zip(short, long)) if a != b), len(short))
    if len(short) == len(long):
        return len(short) >= least and short[start + 1 :] == long[start + 1 :] and _in_a_word(one, other, 4)
    return short[start:] == long[start + 1 :] and _in_a_word(one, other, 3)


def _in_a_word(one: str, other: str, least: int) -> bool:
    """Whether two names differ only in words with at least `least` letters. False for `base-a` and `base-b`, which
    differ in a word of one letter.
    """
    first, second = ("".join(c if c.isalnum() else " " for c in name).split() for name in (one, other))
    return len(first) != len(second) or all(a == b or min(len(a), len(b)) >= least for a, b in zip(first, second))


def nearest_version(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate with the version nearest to the version in `name`: for `trl-2.0`, the newest. None if `name`
    contains no version.
    """

    def version(text: str) -> tuple[int, ...]:
        return tuple(int(part[:9]) for part in "".join(c if c.isdecimal() else " " for c in text).split()[:2])

    wanted = version(name)
    known = [(one, version(one)) for one in candidates]
    return min(known, key=lambda one: [abs(a - b) for a, b in zip(one[1], wanted, strict=False)])[0] if wanted else None


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(".", "")


def letters(name: str) -> str:
    """The lower-case letters and digits of a name."""
    return "".join(c for c in name.lower() if c.isalnum())


def another_number(one: str, other: str) -> bool:
    """Whether two words contain different numbers, as `adamw16bit` and `adamw8bit` do. If so, neither word is a
    misspelling of the other.
    """
    first, second = ([c for c in word if c.isdecimal()] for word in (one, other))
    return bool(first and second) and sorted(first) != sorted(second)
