"""Compare the committed golden previews (`xpc preview --golden`) of two commits as text. No code is run."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.render.line_difference import line_difference
from xpc.compiler.render.visible import visible
from xpc.compiler.review.repository import Commit

ENDING = ".preview"
LARGEST = 4 * 2**20
"""Maximum size in bytes of a golden preview that is compared."""


def preview_changes(before: Commit, after: Commit, start: str) -> Iterator[tuple[str, str, str]]:
    """For each golden preview below the folder `start` that has changed, yield its path, a one-line summary and a
    diff.
    """
    paths = [{one for one in side.files if one.startswith(start) and one.endswith(ENDING)} for side in (before, after)]
    before.read(*paths[0], most=LARGEST)
    after.read(*paths[1], most=LARGEST)
    for path in sorted(paths[0] | paths[1]):
        old, new = _text(before, path), _text(after, path)
        if old is None or new is None:
            yield path, "a new golden preview" if old is None else "the golden preview is deleted", ""
        elif old != new:
            lines = line_difference(old.splitlines(), new.splitlines(), "before", "after")
            many = sum(one.startswith(("+", "-")) for one in lines[2:])
            yield path, f"the golden preview differs in {many:,} lines", "\n".join(map(visible, lines))


def _text(commit: Commit, path: str) -> str | None:
    data = commit.small(path, LARGEST)
    return None if data is None else data.decode("utf-8", "replace")
