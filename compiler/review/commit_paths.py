"""Work on sorted paths of a commit, relative to its top folder: find the paths below a folder, and resolve symbolic
links in a path.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

LONGEST_PATH = 4096
"""Maximum length of a path in which links are followed; Linux has the same limit."""
MOST_LINKS = 40
"""Maximum number of symbolic links that are followed for a path; Linux has the same limit."""


def below(names: Sequence[str], path: str) -> Sequence[str]:
    """Select the paths below a folder from sorted paths, by binary search."""
    if path in ("", "."):
        return names
    return names[bisect_left(names, path + "/") : bisect_left(names, path + "0")]  # "0" follows "/" in ASCII


def followed(path: str, link: Callable[[str], str | None]) -> Iterator[str]:
    """Resolve the symbolic links in a path. Yields the path itself and, for each link, the path of the link and the
    path after the link is resolved. The last yielded path is the path of the file.

    All paths are relative to the top folder. `link` returns the target of a symbolic link, or None if the path is not
    a link. If the last path begins with `..` or `/`, it lies outside of the repository.
    """
    yield path
    for _ in range(MOST_LINKS if len(path) <= LONGEST_PATH else 0):
        parts = path.split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
        found = next(((one, text) for one in above if (text := link(one)) is not None), None)
        if found is None:
            return
        yield found[0]
        target = os.path.join(os.path.dirname(found[0]), found[1], path[len(found[0]) + 1 :])
        path = os.path.normpath(target).replace(os.sep, "/")
        yield path
        if len(path) > LONGEST_PATH:
            return
