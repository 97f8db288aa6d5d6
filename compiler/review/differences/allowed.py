"""Find the permissions that a spec newly gives: comments that silence warnings, and settings that turn off a check of
the run or let foreign code run.

A reviewer must see these permissions, even if the run itself does not change: the comment `# xpc: allow XP410 the
reason` only removes a warning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from xpc.compiler.language.setting import Path
from xpc.compiler.spec.checked import CheckedSpec
from xpc.grammar.diagnostic import WARNING, Label
from xpc.grammar.record import record

SETTINGS: tuple[tuple[Path, object, str, str], ...] = (
    ("precision.nan", "allow", "losses of nan", "a loss of nan or infinity does not stop the run"),
    ("precision.idle", "allow", "learning nothing", "a run that learns nothing is neither stopped nor reported"),
    *(
        ("data.omit", part, f"rows without their {name}", f"the chat template may drop {name} of the rows")
        for part, name in (
            ("content", "turns"), ("tool_calls", "tool calls"), ("reasoning", "reasoning"), ("tools", "tools"),
        )
    ),
    ("model.trust_remote_code", True, "the model repository's code", "Python of the model's repository runs"),
    ("model.pickle", True, "pickled weights", "weights are read with torch's unpickler"),
    ("eval.allow_code_execution", True, "programs of the model", "the evaluation runs programs that the model writes"),
)  # fmt: skip
"""Settings that give a permission. A row has four parts: the setting; the value that gives the permission (for a
setting with a list, an item of the list); a short phrase about the permission, for the first line of a comparison; and
a complete sentence about the permission.
"""


@record
class Allowed:
    """One thing that a spec allows. `name` is for the first line of a comparison, such as `XP410 fsdp1-deprecated` or
    `losses of nan`; empty for a silenced note. `text` is the complete sentence. `label` is the comment that silences a
    finding.
    """

    name: str
    text: str
    label: Label | None = None


def newly_allowed(before: Iterable[CheckedSpec], after: Iterable[CheckedSpec]) -> tuple[Allowed, ...]:
    """The permissions that a spec in `after` gives, and that no spec in `before` gives equally often. For a sweep,
    `before` and `after` have the specs of several members.
    """
    was, now = _counts(before), _counts(after)
    return tuple(one for key, (count, one) in now.items() if count > was.get(key, (0, None))[0])


def first_line(found: Iterable[Allowed]) -> str:
    """The phrase for the first line of a comparison: `newly allowed: XP410 fsdp1-deprecated, losses of nan`."""
    names = dict.fromkeys(one.name for one in found if one.name)
    return f"newly allowed: {', '.join(names)}" if names else ""


def _counts(specs: Iterable[CheckedSpec]) -> dict[str, tuple[int, Allowed]]:
    """Map each code or setting to a pair: the number of times that a spec allows it (the largest number in any of the
    specs), and the permission. The messages of findings are not compared, because they contain numbers that change with
    other settings.
    """
    found: dict[str, tuple[int, Allowed]] = {}
    for spec in specs:
        listed = list(_of(spec))
        counts = Counter(key for key, _ in listed)
        for key, one in listed:
            if key not in found or found[key][0] < counts[key]:
                found[key] = counts[key], one
    return found


def _of(spec: CheckedSpec) -> Iterator[tuple[str, Allowed]]:
    for one in spec.silenced:
        finding = one.finding
        name = f"{finding.code} {finding.slug}" if finding.severity == WARNING else ""
        text = f"{finding.severity} {finding.code} {finding.slug}: {finding.message}  (silenced: {one.reason})"
        yield finding.code, Allowed(name, text, one.location)
    for path, allowing, words, meaning in SETTINGS:
        value = spec.get(path)
        if value is not None and (allowing in value if isinstance(value, list | tuple) else value == allowing):
            written = f"[{allowing}]" if isinstance(value, list | tuple) else str(allowing).lower()
            yield f"{path} {written}", Allowed(words, f"{path} = {written}: {meaning}")
