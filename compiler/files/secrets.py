"""Find texts that look like secrets: tokens of services, keys, passwords in URLs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from xpc.grammar.diagnostic import Diagnostic, Label
from xpc.grammar.record import evolve
from xpc.grammar.source import Source

MARKS = (
    "hf_", "sk-", "AKIA", "ASIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "AIza",
    "PRIVATE KEY", "wandb_v1_",
)  # fmt: skip
"""Texts for a fast first test: every secret that a pattern in TOKENS matches contains one of them, except a password in
a URL.
"""
TOKENS = {
    "a token of the Hugging Face hub": r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,}",
    "an API key": r"(?<![A-Za-z0-9])sk-(?:[A-Za-z0-9]{32,}|(?:ant|proj|or|svcacct)-[A-Za-z0-9_-]{20,})",
    "an access key of AWS": r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])",
    "a token of GitHub": r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{40,})",
    "a token of GitLab": r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20}",
    "a token of Slack": r"(?<![A-Za-z0-9])xox[abeprs]-[A-Za-z0-9-]{10,}",
    "a key of Google": r"(?<![A-Za-z0-9])AIza[0-9A-Za-z_-]{35}",
    "a private key": r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----",
    "a key of Weights & Biases": r"(?<![A-Za-z0-9])wandb_v1_[A-Za-z0-9_]{20,}",
    "a password in a URL": r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s/@:\"'<>]*:[^\s/@\"'<>${}]+@",
}
"""Maps each kind of secret to a pattern, taken from the issuer's documentation or from secret scanners. No pattern
matches a hexadecimal digest.
"""
NAMES = ("hub_token", "hf_token", "api_key", "access_token", "auth_token", "secret_key", "password", "secret")
"""Endings of keys whose values are always treated as secrets, whatever the values look like."""

HEX = frozenset("0123456789abcdef")


def pinned(revision: str | None) -> bool:
    """Whether a revision is a full commit hash. Only a commit hash always means the same files: branches and tags can
    move. The hub does not accept abbreviated hashes.
    """
    return revision is not None and len(revision) == 40 and set(revision) <= HEX


def suspect(text: str) -> bool:
    """Whether a text may contain a secret. Most texts do not, so this fast test saves calls of the slower `find`."""
    if any(mark in text for mark in (*MARKS, *NAMES)):
        return True
    return "://" in text and any(
        "@" in part[:400].partition("/")[0].partition("\n")[0] for part in text.split("://")[1:]
    )


def find(text: str) -> list[tuple[int, int, str]]:
    """The start, end and kind of each part of a text that looks like a secret, in the order of the text."""
    if not suspect(text):
        return []

    found = [(one.start(), one.end(), kind) for kind, shape in TOKENS.items() for one in re.finditer(shape, text)]
    return sorted(found)


NAMED = r"(?i)[A-Z0-9_-]*(?:TOKEN|[_-]KEY|PASSWORD|SECRET)[A-Z0-9_]*\s*=\s*\"?([^\s\",)\]}]+)"
"""Matches an assignment to a variable or an option whose name suggests a secret, such as `API_KEY=...`. The group is
the value. The rule XP911 reports such values.
"""
CALLED = rf"(?:{'|'.join(NAMES)})\s*[=:(]?\s*\"?([^\s\",)\]}}]{{8,}})"
"""Matches a setting with one of the names in NAMES, such as `api_key`, and its value. Any finding about this setting
would print the value.
"""
KEY = r"(?:name|project)\s*=\s*\"?([0-9a-f]{40})(?![0-9a-f])"
"""Matches a run's or project's name that looks like an old API key of Weights & Biases (40 hexadecimal digits). The
rule XP791 reports such names.
"""

WORD = r"[^\s\"`',()\[\]{}]{7,}[^\s\"`',()\[\]{}.:;]"
"""Matches a word of at least eight characters in a message; the word may be a value that the message quotes."""
QUOTED = (40, 60, 80, 100, None)
"""The lengths to which messages cut a long value that they quote. None stands for the full length."""


def masked(text: str, codes: Iterable[str] = ()) -> str:
    """Replace each secret in a text by stars, so that the text keeps its length.

    `codes` are the codes of the findings that are printed. The pattern KEY is used only with XP791, and the pattern
    NAMED only with XP911, because no other rule reports such secrets.
    """
    letters = list(text)
    for start, end in _spans(text, codes):
        letters[start:end] = "*" * (end - start)
    return "".join(letters)


def _spans(text: str, codes: Iterable[str]) -> Iterator[tuple[int, int]]:
    """The start and end of each secret in a text; see `masked`."""
    yield from ((start, end) for start, end, _ in find(text))
    called = any(name in text for name in NAMES)
    for pattern, applies in ((CALLED, called), (KEY, "XP791" in codes), (NAMED, "XP911" in codes)):
        if applies:
            yield from (one.span(1) for one in re.finditer(pattern, text))


def without_secrets(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Replace the secrets in findings by stars. This is necessary because findings are printed into logs of CI."""
    found = list(found)
    codes = {one.code for one in found}
    shown: dict[int, Source] = {}  # several findings may be in the same source, so each source is searched once
    values = set[str]()

    def label(one: Label) -> Label:
        source = shown.get(id(one.source))
        if source is None:
            text = one.source.text
            values.update(text[start:end][:most] for start, end in _spans(text, codes) for most in QUOTED)
            source = shown[id(one.source)] = Source(one.source.name, masked(text, codes))
        return evolve(one, source=source)

    def words(text: str) -> str:
        """Replace the secrets in a message or a help. `values` has the secrets of the sources: some can be recognized
        only there, as `x7Kq93Lm` in `api_key = x7Kq93Lm`.
        """
        if values:
            # search once for all words, because to search each message for each value would take too long
            text = re.sub(WORD, lambda one: "*" * len(one[0]) if one[0] in values else one[0], text)
        return masked(text)

    placed = [evolve(one, primary=one.primary and label(one.primary), related=tuple(map(label, one.related)))
              for one in found]  # fmt: skip
    return [
        evolve(
            one,
            message=words(one.message),
            primary=one.primary and evolve(one.primary, text=words(one.primary.text)),
            related=tuple(evolve(each, text=words(each.text)) for each in one.related),
            help=one.help and words(one.help),
            edits=tuple(evolve(edit, text=words(edit.text)) for edit in one.edits),
        )
        for one in placed
    ]


def is_secret(key: str, value: str) -> bool:
    """Whether the value of a key in an imported file must not be printed."""
    name = key.lower().rpartition(".")[2].lstrip("$").replace("-", "_")
    return bool(value) and (name == "token" or name.endswith(NAMES) or bool(find(value)))
