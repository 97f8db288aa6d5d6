"""Find the bundle that a run used, and read the spec and the plan from it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial

from xpc.compiler.files import bundled
from xpc.compiler.files.folder_contents import read
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.plan.experiment import Plan, plan
from xpc.compiler.report.run_record import RunRecord, table
from xpc.compiler.review.finished_run import DECISIVE, contents, decisive_digest, read_json
from xpc.compiler.review.installed import pins_of
from xpc.compiler.review.operands import Operand, open_operand
from xpc.compiler.review.verifying.recompiled import DATA_ROOT, looked_in
from xpc.compiler.spec.checked import CheckedSpec
from xpc.grammar.record import evolve, field, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


LARGEST_PINS = 2**16
"""Maximum size in bytes of requirements.txt."""
MOST = 200
"""At most this many folders next to a run are searched for the run's bundle."""


@record
class BundleRecord:
    """A bundle: its trainer_args.json (`stated`), its pins, and its spec with the plan. If this version of xpc cannot
    compile the spec, the spec and the plan are None, and `broken` is the reason. `copies_of` maps the names of the
    spec's files to their copies in the bundle.
    """

    folder: str
    digest: str
    stated: Mapping[str, Any]
    pins: Mapping[str, str]
    spec: CheckedSpec | None
    plan: Plan | None
    operand: Operand | None
    broken: str = ""
    copies_of: Mapping[str, str] = field(factory=dict)


def digest_of(folder: str) -> str:
    """The digest of a bundle, in the form in which a run records it. "" if the folder is not a readable bundle."""
    data = partial(contents, folder)
    there = all(data(name) is not None for name in (DECISIVE[0], bundled.MANIFEST))
    return decisive_digest(data) if there else ""


def bundle_of(run: RunRecord) -> BundleRecord | None:
    """Find the bundle that a run used: at the path that the run recorded, next to the run, or in the current folder. If
    there are several copies of the bundle, one whose spec compiles here is preferred. None if there is no copy.

    The bundle must have the digest that the run recorded. Without this condition, a stranger's run could make the
    report read any folder of this machine.
    """
    found = None
    for location in _locations(run) if run.digest else ():
        if digest_of(location) == run.digest:
            try:
                one = read_bundle(location)
            except UsageError:  # skip a folder that only looks like a bundle
                continue
            if one.spec is not None:
                return one
            found = found or one
    return found


def _locations(run: RunRecord) -> Iterator[str]:
    for start in reversed(run.starts):
        stated = start.get("bundle")
        if isinstance(stated, str) and os.path.isabs(stated) and "\0" not in stated:
            yield stated
            break
    above = os.path.dirname(os.path.abspath(run.folder))
    for folder in dict.fromkeys((os.getcwd(), above, os.path.dirname(above))):
        try:
            names = sorted(name for name in os.listdir(folder) if name.endswith(".bundle"))
        except OSError:
            continue
        for location in (os.path.join(folder, name) for name in names[:MOST]):
            yield location
            yield from members_of(location)


def members_of(folder: str) -> list[str]:
    """The folders of a sweep's members, in the order of the spec. Empty if the folder is not a sweep."""
    members = os.path.join(folder, "members")
    if os.path.islink(members) or not os.path.isfile(os.path.join(folder, "sweep.toml")):
        return []
    order = _order(folder)
    try:
        names = sorted(os.listdir(members), key=lambda name: (order.get(name, len(order)), name))
    except OSError:
        return []
    return [os.path.join(members, name) for name in names[:MOST]]


def position(bundle: BundleRecord | None) -> int:
    """The number by which bundles are sorted. For a member of a sweep, this is its position in `members.txt`. Any other
    bundle gets a higher number than all members.
    """
    above, name = os.path.split(os.path.abspath(bundle.folder if bundle else ""))
    return _order(os.path.dirname(above)).get(name, MOST) if os.path.basename(above) == "members" else MOST


def _order(folder: str) -> dict[str, int]:
    """The position of each member's name in `members.txt`. Empty if this file cannot be read."""
    try:
        names = read(os.path.join(folder, "members.txt"), LARGEST_PINS).decode("utf-8", "surrogateescape").split("\n")
    except OSError:
        return {}
    return {name: number for number, name in enumerate(names[:MOST])}


def output_of(folder: str) -> str:
    """The output folder of a bundle. If its path is relative, it is searched for in the current folder first, and then
    in the folder that contains the bundle. Raises UsageError.
    """
    arguments = read_json(os.path.join(folder, DECISIVE[0])).get("arguments")
    stated = arguments.get("output_dir") if isinstance(arguments, dict) else None
    if not isinstance(stated, str) or "\0" in stated:
        raise UsageError(f"{folder} does not state an output folder")
    next_to_it = os.path.join(os.path.dirname(os.path.abspath(folder)), stated)
    return next_to_it if not os.path.isdir(stated) and os.path.isdir(next_to_it) else stated


def read_bundle(folder: str) -> BundleRecord:
    """Read a bundle. Raises UsageError if it cannot be read."""
    stated = read_json(os.path.join(folder, DECISIVE[0]))
    if not all(table(stated.get(name)) for name in ("arguments", "run", "method")):
        raise UsageError(f"{folder}/{DECISIVE[0]} does not belong to a bundle")
    try:
        pins = pins_of(read(os.path.join(folder, "requirements.txt"), LARGEST_PINS))
    except OSError:
        pins = {}
    copies_of: Mapping[str, str] = {}
    try:
        with open_operand(folder) as one:
            if isinstance(one.workspace, bundled.BundleWorkspace):
                copies_of = one.workspace.copies_of
                data_root = os.environ.get(DATA_ROOT, "")
                one = evolve(one, workspace=evolve(one.workspace, data_root=data_root))
            operand = one.check(one.name)
    except UsageError as error:
        return BundleRecord(folder, digest_of(folder), stated, pins, None, None, None, str(error))
    if operand.errors:
        broken = operand.errors[0].message + looked_in(bundled.manifest(folder) or {})
        return BundleRecord(folder, digest_of(folder), stated, pins, None, None, None, broken)
    spec = operand.runs[0].spec
    return BundleRecord(folder, digest_of(folder), stated, pins, spec, plan(spec), operand, copies_of=copies_of)
