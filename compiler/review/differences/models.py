"""Compare the files of two runs' local models (weights, tokenizer, adapter), which bundles do not contain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xpc.compiler.files.file_digests import size_and_digest
from xpc.compiler.files.file_memory import user_memory
from xpc.compiler.resolve.weights import local_models
from xpc.compiler.review.differences.change import Change

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.review.operands import Run

ABSENT = "absent"
LARGEST = 2**50
"""A model file may have at most this many bytes. A larger file counts as one that cannot be read."""
DIGITS = 16
"""Number of characters of a digest that are shown."""
STATED = "sha256:"


def model_changes(one: Run, other: Run) -> tuple[Change, ...]:
    """The files of local models that differ. If both runs read a file from the same path, or both manifests state the
    same digest, the file counts as equal, and is not read.

    A folder that only one run uses is another model, and is not compared. A folder is not compared either if one run
    does not know the folder's files: the folder may be on another machine.
    """
    found = []
    for was, now in _shared(one, other):
        for name in sorted({*was, *now}) if was and now else ():
            if was.get(name) != now.get(name):
                texts = [ABSENT if one is None else _digest(one) for one in (was.get(name), now.get(name))]
                if texts[0] != texts[1]:
                    found.append(Change(name, texts[0][:DIGITS], texts[1][:DIGITS]))
    return tuple(found)


def without_digests(one: Run, other: Run) -> str:
    """The path of a file of a local model that cannot be compared. This is the case if one run is a bundle on disk, and
    its manifest has no digests of the model. "" if all files can be compared.
    """
    for was, now in _shared(one, other):
        if (one.tree is not None and now and not was) or (other.tree is not None and was and not now):
            return next(iter(was or now))
    return ""


def unused_digest(one: Run, other: Run) -> str:
    """The first file that has different digests in the two manifests, although it belongs to none of the run's local
    models. The launch does not check the digest of such a file. "" if there is no such file.
    """
    was, now = (
        {name: stated for name, stated in run.models.items() if not name.startswith(_folders(run))}
        for run in (one, other)
    )
    return next((name for name in sorted({*was, *now}) if was.get(name) != now.get(name)), "")


def _folders(run: Run) -> tuple[str, ...]:
    return tuple(f"{folder}/" for folder in local_models(run.spec)) if run.models else ()


def _shared(one: Run, other: Run) -> Iterator[tuple[Mapping[str, str], Mapping[str, str]]]:
    """For each local model that both runs use, yield a mapping for `one` and a mapping for `other`. A mapping has the
    files of the model as keys. Its values are the digests in bundle.toml (`sha256:...`), or the files' paths.
    """
    for folder in local_models(one.spec):
        if folder in local_models(other.spec):
            was, now = (
                {name: location for name, location in run.models.items() if name.startswith(f"{folder}/")}
                for run in (one, other)
            )
            yield was, now


def _digest(stated_or_path: str) -> str:
    if stated_or_path.startswith(STATED):
        return stated_or_path.removeprefix(STATED)
    found = size_and_digest(stated_or_path, LARGEST, user_memory())
    return "unreadable" if found is None else found[1]
