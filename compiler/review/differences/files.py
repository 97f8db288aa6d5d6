"""Compare the files of two bundles by their digests. Configuration files and lists of packages are also compared by
their values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from xpc.compiler.engines.pin import LIST
from xpc.compiler.files.bundle_digests import NOT_EXECUTABLE
from xpc.compiler.review.differences.packages import installs
from xpc.grammar.record import record

MANIFEST = "bundle.toml"
ACCELERATE = "accelerate.yaml"
CONTENT = ("data/", "files/")
"""The folders of a bundle whose files are inputs of the training: rows, templates, reward functions, tasks."""


@record
class FileChange:
    """A changed file of a bundle. `kind` is added, removed, changed, `not executable` or `executable`.

    `added` and `removed` are numbers of lines.
    """

    name: str
    kind: str
    added: int = 0
    removed: int = 0

    @property
    def line(self) -> str:
        """One line about the change: `launch.sh +1 -0` if the contents have changed; otherwise the file's name and the
        kind of the change, such as `eval.sh added`.
        """
        return f"{self.name}  +{self.added} -{self.removed}" if self.kind == "changed" else f"{self.name}  {self.kind}"


def is_prose(name: str) -> bool:
    """Whether the file is Markdown, the manifest or the spec. Changes of such a file are not changes of the run. Values
    in the spec are compared elsewhere.
    """
    return name in (MANIFEST, "spec.xp") or (name.endswith(".md") and not name.startswith(CONTENT))


def differing(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The names of the files with different digests, without Markdown, spec and manifest. The file that lists digests
    is included only if no other file differs.
    """
    found = sorted(name for name in {*before, *after} if before.get(name) != after.get(name) and not is_prose(name))
    return found if found == [LIST] else [name for name in found if name != LIST]


def decides(name: str, before: Mapping[str, bytes], after: Mapping[str, bytes], tables: Collection[str]) -> bool:
    """Whether the change of this file changes the run. `tables` are the JSON and YAML files in which a value has
    changed.

    A list of packages that both runs have does not count, because packages are compared elsewhere. A changed
    accelerate.yaml, or a changed JSON file at the top of the bundle, counts only if a value changed. Any change of an
    engine's YAML file counts, even after a `#`: such a file contains scripts, in which a `#` need not begin a comment.
    """
    if installs(name):
        # the name of a lock's copy contains a digest, which changes with each line of the lock
        return name.endswith(".txt") and (name in before) != (name in after)
    if name in tables or name not in before or name not in after:
        return True
    return name != ACCELERATE and ("/" in name or not name.endswith(".json"))


def repeats_list(name: str, digests: Sequence[Mapping[str, str]], files: Sequence[Mapping[str, bytes]]) -> bool:
    """Whether the file, such as Slurm's job, differs only in the digest of the list of files (`run.sha256`). This
    digest changes with the order of packages in a lock.
    """
    pins = [one.get(LIST, "") for one in digests]
    if not all(pins) or any(name not in one for one in files):
        return False
    modes = [one[name].endswith(NOT_EXECUTABLE) for one in digests]
    old, new = (one.encode() for one in pins)
    return modes[0] == modes[1] and files[0][name].replace(old, new) == files[1][name]


def file_changes(
    names: list[str], digests: tuple[Mapping[str, str], Mapping[str, str]], before: Mapping[str, bytes],
    after: Mapping[str, bytes],
) -> Iterator[FileChange]:  # fmt: skip
    """The kind of change for each of these files, with the numbers of added and removed lines."""
    for name in names:
        was, now = (one.get(name) for one in digests)
        if was is None or now is None:
            yield FileChange(name, "removed" if now is None else "added")
        elif was.removesuffix(NOT_EXECUTABLE) == now.removesuffix(NOT_EXECUTABLE):
            yield FileChange(name, "not executable" if now.endswith(NOT_EXECUTABLE) else "executable")
        else:
            counts = [Counter(files[name].split(b"\n")) for files in (before, after)]
            yield FileChange(name, "changed", (counts[1] - counts[0]).total(), (counts[0] - counts[1]).total())
