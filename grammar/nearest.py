"""Find the name that is nearest to another by its letters. Synonyms are in `xpc.compiler.suggest.meaning`."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The most likely candidate for `name`, or None."""
    from difflib import SequenceMatcher  # takes 5 ms; needed only for a misspelt spec

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
            score += 0.2  # swapped letters
        if other.startswith(plain) or plain.startswith(other):
            score += 0.1
        if score > best_score:
            best, best_score = candidate, score
    return best if best_score >= 0.6 else None


def nearest_version(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate with the version nearest to that of `name` (for `trl-2.0` the newest), or None."""

    def version(text: str) -> tuple[int, ...]:
        return tuple(int(part[:9]) for part in "".join(c if c.isdigit() else " " for c in text).split()[:2])

    wanted = version(name)
    known = [(one, version(one)) for one in candidates]
    return min(known, key=lambda one: [abs(a - b) for a, b in zip(one[1], wanted, strict=False)])[0] if wanted else None


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(".", "")


def letters(name: str) -> str:
    """The lower-case letters and digits of a name."""
    return "".join(c for c in name.lower() if c.isalnum())


def another_number(one: str, other: str) -> bool:
    """Whether two words have different numbers: `adamw16bit` is not a typo of `adamw8bit`."""
    first, second = ([c for c in word if c.isdigit()] for word in (one, other))
    return bool(first and second) and sorted(first) != sorted(second)
