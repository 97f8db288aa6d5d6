"""Compare the committed golden previews (`xpc preview --golden`) of two commits as text. No code is run."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.render.line_difference import line_difference
from xpc.compiler.render.visible import visible
from xpc.compiler.review.repository import Commit

ENDING = ".preview"
LARGEST = 4 * 2**20
"""Maximum size in bytes of a golden preview that is compared."""


def preview_changes(before: Commit, after: Commit, start: str) -> Iterator[tuple[str, str, str]]:
    """For each changed golden preview below the folder `start`, yield its path, a one-line summary and a diff."""
    was, now = (
        {path: hash for path, (_, hash) in side.files.items() if path.startswith(start) and path.endswith(ENDING)}
        for side in (before, after)
    )
    gone = {hash: path for path, hash in was.items() if path not in now}
    renamed = {path: gone.pop(hash) for path, hash in now.items() if path not in was and hash in gone}
    changed = [path for path in was if path in now and was[path] != now[path]]
    before.read(*changed, most=LARGEST)
    after.read(*changed, most=LARGEST)
    for path in sorted({*was, *now}):
        if path in changed:
            yield path, *_compared(before, after, path)
        elif path in renamed:
            yield path, f"the golden preview {renamed[path].removeprefix(start)}, renamed", ""
        elif path not in was:
            yield path, "a new golden preview", ""
        elif path not in now and path not in renamed.values():
            yield path, "the golden preview is deleted", ""


def _compared(before: Commit, after: Commit, path: str) -> tuple[str, str]:
    """Compare the versions of a golden preview in two commits. Returns a one-line summary, and a diff."""
    try:
        old, new = (side.small(path, LARGEST) for side in (before, after))
    except UsageError as error:  # the content is not in this clone
        return f"the golden preview differs; {error}", ""
    if old is None or new is None:
        return (
            f"the golden preview differs; it is larger than {LARGEST // 2**20} MiB, so its lines are not compared",
            "",
        )
    was, now = (one.decode("utf-8", "replace").splitlines() for one in (old, new))
    lines = line_difference(was, now, "before", "after")
    many = sum(one.startswith(("+", "-")) for one in lines[2:])
    return f"the golden preview differs in {many:,} lines", "\n".join(map(visible, lines))
