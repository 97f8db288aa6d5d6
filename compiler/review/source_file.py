"""`xpc diff recipe.yaml recipe.xp`: show each line of another tool's file next to the setting of the spec that an
import makes from this line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from hashlib import sha256

from xpc.compiler.files.inputs import OTHER_TOOLS, UsageError
from xpc.compiler.files.workspace import bundle_name
from xpc.compiler.importing import cli as importing
from xpc.compiler.importing import options
from xpc.compiler.importing.draft import Draft, in_text
from xpc.compiler.importing.outcomes import KeyOutcome
from xpc.compiler.importing.text.entries import Unreadable
from xpc.compiler.language.schema import BY_PATH, path_of
from xpc.compiler.render.visible import visible
from xpc.compiler.spec import Spec
from xpc.compiler.spec.checked import CheckedSpec

WIDTH = 58
"""Width in characters of the column with the lines of the other tool's file."""


def is_source(name: str) -> bool:
    """Whether an argument of `xpc diff` is another tool's file, and not a spec or a bundle."""
    return name.endswith(OTHER_TOOLS) and os.path.isfile(name)


def compare(name: str, spec: CheckedSpec, title: str, imported: Sequence[str] = ()) -> tuple[str, bool]:
    """Return two values: the lines of the other tool's file, each next to its setting in the spec; and whether a new
    import of the file with the options `imported` would give other values than the spec has. Raises UsageError for a
    file that cannot be imported.
    """
    draft = _draft(name, spec, imported)
    lines, differs = [_row(name, title), _row("-" * len(name), "-" * len(title))], False
    mine = spec.model.id or spec.model.path or ""
    if draft.model and mine and draft.model.strip('"').rstrip("/") != mine.rstrip("/"):
        lines.append(_row("(the model)", f"! train {mine} (import: {draft.model})"))
        differs = True
    data = [one.id or one.path or "" for one in spec.data]
    theirs = [re.split(r"[:\[@]", one.ref.strip('"'))[0] for one in draft.sources]
    if theirs and [one.rstrip("/") for one in data] != [one.rstrip("/") for one in theirs]:
        lines.append(_row("(the data)", f"! {', '.join(data)} (import: {', '.join(theirs)})"))
        differs = True
    for outcome in sorted(draft.outcomes.values(), key=lambda one: (one.file, one.line, one.key)):
        text, other = _becomes(draft, outcome, spec)
        differs = differs or other
        location = f"{outcome.line}: " if outcome.file == name else f"{os.path.basename(outcome.file)}:{outcome.line}: "
        lines.append(_row(f"{location}{outcome.key}: {outcome.value}", text))
    for path, written in draft.settings.items():
        if written.entry is None:
            has = _value(spec, path, draft)
            differs = differs or has not in (None, written.text)
            lines.append(_row(f"({path}: {written.why or 'not set'})", _compared(path, written.text, has)))
    extra = [path for path, value in spec.values.items() if spec.written(path) and path not in draft.settings
             and value.origin.label is not None and path not in HEADER]  # fmt: skip
    lines += [_row("(nothing)", f"{path} = {_value(spec, path, draft)}") for path in extra]
    return "".join(f"{visible(line.rstrip())}\n" for line in lines), differs or bool(extra)


HEADER = ("method", "train.steps", "train.epochs", "target")
"""Settings that an import does not write as settings of a clause. It writes them into the `train` sentence, or as
statements such as `method sft`.
"""


def _draft(name: str, spec: Spec, imported: Sequence[str]) -> Draft:
    """Import the other tool's file again, for the spec's hardware."""
    chosen = options.parse([name, "--partial", "--hardware", str(spec.get("hardware")), *imported])
    source = importing.read(name)
    overrides = importing.overrides_of(chosen, source)
    try:
        return importing.convert(source, chosen, overrides)
    except Unreadable as error:
        raise UsageError(f"{name}: {error}") from error


def _becomes(draft: Draft, outcome: KeyOutcome, spec: Spec) -> tuple[str, bool]:
    """Return a pair: the settings that a key of the other tool's file became, with their values in the spec; and
    whether a new import would give another value for one of them.
    """
    paths = [path for path, written in draft.settings.items() if written.entry is not None
             and (written.entry.file, written.entry.key) == (outcome.file, outcome.key)]  # fmt: skip
    if not paths:
        why = (
            outcome.to if outcome.outcome in ("mapped", "extra") else f"{outcome.outcome}: {outcome.why or outcome.to}"
        )
        return why, False
    values = {path: _value(spec, path, draft) for path in paths}
    text = ", ".join(_compared(path, draft.settings[path].text, has) for path, has in values.items())
    return text, any(has != draft.settings[path].text for path, has in values.items())


def _compared(path: str, imported: str, has: str | None) -> str:
    if has is None:
        return f"! no {path} (import: {imported})"
    return f"{path} = {has}" if has == imported else f"! {path} = {has} (import: {imported})"


def _value(spec: Spec, path: str, draft: Draft) -> str | None:
    """The value of a setting, written as in a spec; None if the spec has no value. If the value is the name of a
    bundle's copy of a file (`files/...`), and `draft` has a file with the same contents, return the name of the draft's
    file instead.
    """
    value = spec.get(path_of(path))
    if value is None:
        return None
    typed = in_text(BY_PATH[path], value)
    for name, data in draft.files.items():
        typed = typed.replace("files/" + bundle_name(name, sha256(data).hexdigest()), name)
    return typed


def _row(left: str, right: str) -> str:
    left = left if len(left) <= WIDTH else left[: WIDTH - 3] + "..."
    return f"{left:{WIDTH}}  {right}"
