"""`xpc upgrade FILE --target T`: change the target of a spec to another stack. If the new stack would change a value of
the run, the old value is written into the spec.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence

from xpc.compiler import stacks
from xpc.compiler.files.atomic import write_text
from xpc.compiler.files.inputs import UsageError, located, read_spec
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language.schema import ADAPTERS, BY_PATH, owner_of
from xpc.compiler.language.typed import plain, show
from xpc.compiler.lower.arguments import arguments as stated
from xpc.compiler.lower.drift import UNCOMPARED
from xpc.compiler.pipeline import check_text
from xpc.compiler.render import render
from xpc.compiler.render.argument_parser import ArgumentParser
from xpc.compiler.render.visible import visible
from xpc.compiler.review.compare import ABSENT, Difference, compare
from xpc.compiler.review.edit import with_value
from xpc.compiler.review.fmt import formatted
from xpc.compiler.review.operands import Run
from xpc.compiler.review.sources import UNSET
from xpc.compiler.rules.core.advisory_table import fixed_advisories
from xpc.compiler.spec.checked import CheckedSpec
from xpc.grammar.diagnostic import ERROR, Diagnostic, Edit, applied
from xpc.grammar.record import evolve, mutable, record

ARGUMENTS = "trainer_args.json arguments."
EPILOG = (
    "Where the other stack has another default, the spec gets the current value: as a setting if there is one, else "
    "under `extra trl`. Remaining differences are listed. Exit status: 0 it compiles for that stack, 1 it does not, 2 "
    "wrong usage."
)


@record
class Pin:
    """A setting that is written into the spec so that the new stack does not change its value: its path, the text that
    is written, and the value that the setting would have without this text.

    If the setting is written to keep the value of a trainer argument, `argument` is the argument's name, and `value`
    the value that the argument must keep.
    """

    path: str
    text: str
    otherwise: str
    argument: str = ""
    value: object = None


@mutable
class Upgrade:
    """A spec while its target is changed. `before` is the run before the change, `text` its current text, and `pins`
    the settings that were written into this text.
    """

    before: CheckedSpec
    text: str
    name: str
    workspace: Workspace
    pins: list[Pin]

    def spec(self, text: str) -> tuple[CheckedSpec | None, tuple[Diagnostic, ...]]:
        """Check a text as if it were this spec. Returns a pair: the checked spec (None if there are errors; for a
        sweep, its first member), and the findings.
        """
        checked = check_text(text.encode("utf-8", "surrogateescape"), self.name, self.workspace)
        return checked.spec, checked.problems

    def difference(self, after: CheckedSpec) -> Difference:
        """The differences between the run before the upgrade and the run `after` it."""
        return compare(Run("", self.before), Run("", after))

    def pin(self) -> Difference:
        """For each setting whose value the new stack changes, write the old value into the spec, if this reduces the
        number of differences. Returns the differences that remain.
        """
        after, _ = self.spec(self.text)
        assert after is not None
        left = self.difference(after)
        # settings are written first, because one setting may decide several trainer arguments; only the arguments that
        # no setting decides are then written one by one
        for candidates in (self._settings, self._arguments):
            done: set[str] = set()
            for one in list(candidates(left)):
                text = with_value(self.text, self.name, after, one.path, one.text)
                if one.argument in done:
                    continue
                found, _ = self.spec(text)
                if found is None or (one.argument and stated(found).get(one.argument) != one.value):
                    continue
                closer = self.difference(found)
                if _differing(closer) < _differing(left):  # keep a pin only if it reduces the number of differences
                    self.text, after, left = text, found, closer
                    self.pins.append(one)
                    done |= {one.argument} - {""}
        return left

    def _settings(self, found: Difference) -> Iterator[Pin]:
        for one in found.follows:
            value = self.before.values.get(one.name) if one.name in BY_PATH else None  # type: ignore[call-overload]
            if value is not None and one.after != UNSET:
                clause, dot, name = one.name.partition(".")
                clause = self.before.adapter if clause in ADAPTERS else clause
                yield Pin(clause + dot + name, show(BY_PATH[one.name], value.value), one.after)

    def _arguments(self, found: Difference) -> Iterator[Pin]:
        for one in found.arguments:
            name = one.name.removeprefix(ARGUMENTS)
            if name == one.name or "." in name or ABSENT in (one.before, one.after) or one.before == UNSET:
                continue
            if name in UNCOMPARED:
                continue
            try:
                value = json.loads(one.before)
            except ValueError:
                value = one.before
            owner = owner_of(name)
            if owner is None:
                yield Pin(f"extra trl.{name}", plain(value, exact=True), one.after, name, value)
            elif owner.choices:
                yield from (Pin(owner.path, choice, one.after, name, value) for choice in owner.choices)
            else:
                yield Pin(owner.path, plain(value), one.after, name, value)


def _differing(found: Difference) -> set[str]:
    return {one.name for one in (*found.arguments, *found.follows)}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options. Exits with status 2 if they are wrong, as argparse does."""
    parser = ArgumentParser(
        "xpc upgrade", description="Show what another stack changes for a spec, and move the spec to it.", epilog=EPILOG
    )
    parser.add_argument("file", metavar="FILE", help="a spec, or - for standard input")
    parser.add_argument("--target", choices=stacks.names(), default=stacks.DEFAULT, help="the stack to move to")
    help = "change the spec to that stack, and write into it the current values that would change"
    parser.add_argument("--write", action="store_true", help=help)
    return parser.parse_args(list(arguments))


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Return the printed text and the exit status. Raises UsageError."""
    data, name, workspace = read_spec(options.file)
    workspace = evolve(workspace, hashes=True, allow_oom=True)  # a run that does not fit in its GPUs is upgraded, too
    checked = check_text(data, name, workspace)
    if checked.spec is None:
        return render(located(checked.problems, options.file), "full"), 1
    if checked.spec.stack.name == options.target:
        return f"{visible(options.file)} is already for {options.target}\n", 0
    moved = Upgrade(checked.spec, _moved(checked.spec, options.target), name, workspace, [])
    after, problems = moved.spec(moved.text)
    if after is None:
        errors = [one for one in problems if one.severity == ERROR]
        return render(
            located(errors, options.file), "full"
        ) + f"it does not compile for {options.target}: nothing was written\n", 1
    found = moved.pin()
    lines = list(_report(found, moved.pins, checked.spec.stack.name, options.target))
    fixed = fixed_advisories(checked.spec, checked.spec.stack, after.stack)
    if fixed:
        title = f"Wrong on {checked.spec.stack.name} for this spec, fixed on {options.target}"
        avoided = "; the bundle's trainer avoids it already"
        fixes = [f"{one.effect} ({', '.join(one.threads)}{avoided * bool(one.runtime)})" for one in fixed]
        lines += ["", title, *(f"  {one}" for one in fixes)]
    if options.write:
        lines += ["", _write(options.file, moved.text, name)]
    return "".join(f"{visible(line)}\n" for line in lines), 0


def _moved(spec: CheckedSpec, target: str) -> str:
    """The text of the spec with the new target in place of the old target."""
    text = spec.source.text
    label = spec.values["target"].origin.label
    if label is None or label.source is not spec.source:
        return f"{text.rstrip()}\n\ntarget {target}\n"
    return applied(text, [Edit(label.span, target)])


def _write(path: str, text: str, name: str) -> str:
    if path == "-":
        raise UsageError("--write needs a file, not standard input")
    out, problems = formatted(text.encode("utf-8", "surrogateescape"), name, os.path.dirname(path))
    if out is None:
        raise UsageError(f"the upgraded spec would not parse: {problems[0].message}")
    write_text(path, out)
    return f"wrote {path}"


def _report(found: Difference, pins: Sequence[Pin], old: str, new: str) -> Iterator[str]:
    """The lines that `xpc upgrade` prints."""
    moved = [one for one in found.arguments if ABSENT not in (one.before, one.after)]
    changed = [one for one in moved if one.name.removeprefix(ARGUMENTS) not in UNCOMPARED]
    kept = f"{found.same_arguments} values unchanged"
    yield f"{old} -> {new}: {kept}" + (f", {len(changed)} change{'' if len(changed) > 1 else 's'}" if changed else "")
    sections = {
        "Renamed": [f"{one.before} -> {one.after}  ({one.why})" for one in found.renamed],
        "Pinned because the default changed": [f"{one.path} = {one.text}  (would be {one.otherwise})" for one in pins],
        f"Different on {new}; no setting keeps the old value": [
            f"{one.name}  {one.before} -> {one.after}" for one in (*changed, *found.follows)
        ],
        "Changed only in the log; training is the same": [
            f"{one.name}  {one.before} -> {one.after}" for one in moved if one not in changed
        ],
        f"Removed on {new}": [
            f"{one.name} = {one.before}" + (f"  ({one.why})" if one.why else "")
            for one in found.arguments
            if one.after == ABSENT
        ],
        f"New on {new}": [f"{one.name} = {one.after}" for one in found.arguments if one.before == ABSENT],
        "Warnings and notes": [*(f"+ {one}" for one in found.new), *(f"- {one}" for one in found.gone)],
    }
    for title, entries in sections.items():
        if entries:
            yield from ("", title, *(f"  {one}" for one in entries))
