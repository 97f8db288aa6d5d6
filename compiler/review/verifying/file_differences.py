"""Compare the files in a folder with the files that should be there: names, modes and contents."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from itertools import groupby

from xpc.compiler.files.bundle import EXECUTABLE
from xpc.compiler.files.folder_contents import Tree, read
from xpc.compiler.review.tables import PROSE

SHOWN = 100
"""A message shows at most this many characters of a line of a file."""
DIGEST = re.compile("[0-9a-f]{64}")
SPECIAL = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX


def differences(folder: str, found: Tree, expected: Mapping[str, bytes]) -> Iterator[str]:
    """Yield a sentence for each file that differs, is missing, or does not belong to the bundle. Files in which only
    digests of other files differ, such as the script of a job, come after all other files. Files that only repeat other
    files, such as the README, come last.
    """
    parents: set[str] = set()
    for above in map(os.path.dirname, expected):
        while above and above not in parents:
            parents.add(above)
            above = os.path.dirname(above)
    foreign = [*found.files, *(one for one in found.folders if one not in parents)]
    cache: dict[tuple[int, int], bytes] = {}
    for _, names in groupby(sorted({*expected, *foreign}, key=_order), lambda name: _order(name)[0]):
        of_digests: list[str] = []
        for name in names:
            path = os.path.join(folder, name)
            status = found.files.get(name)
            if name not in expected:
                yield f"{path}: the spec does not compile to this file"
            elif status is None:
                yield f"{path} is missing"
            else:
                for text, digests in _compared(path, status, expected[name], name, cache):
                    if digests:
                        of_digests.append(text)
                    else:
                        yield text
        yield from of_digests


def _order(name: str) -> tuple[bool, str]:
    last = name.rpartition("/")[2]
    return last in (*PROSE, "sweep.toml", "members.txt"), name


def _compared(
    path: str, status: os.stat_result, expected: bytes, name: str, cache: dict[tuple[int, int], bytes]
) -> Iterator[tuple[str, bool]]:
    """If the file differs, yield a pair: a sentence about the difference, and whether only digests differ."""
    key = (status.st_dev, status.st_ino)
    data = cache.get(key)
    if data is None:
        try:
            data = read(path)
        except OSError as error:
            yield f"{path} cannot be read: {error.strerror or error}", False
            return
        if status.st_nlink > 1:  # all members of a sweep have the same trainer files, which are compared once
            cache[key] = data
    if data != expected and data.replace(b"\r\n", b"\n") == expected:
        why = "its lines end with CRLF; `*.bundle/** -text` in .gitattributes keeps git from changing them"
        yield f"{path}: {why}", False
    elif data != expected:
        text, digests = first_difference(data, expected)
        yield f"{path}:{text}", digests
    elif os.name == "posix":
        yield from ((one, False) for one in _mode(path, status.st_mode, name.rpartition("/")[2] in EXECUTABLE))


def _mode(path: str, mode: int, runs: bool) -> Iterator[str]:
    """Report a wrong executable bit, and unsafe permissions (setuid, or writable for everybody). The other bits of the
    mode are not checked, because git does not store them.
    """
    if bool(mode & stat.S_IXUSR) is not runs:
        yield f"{path} {'is not' if runs else 'is'} executable, and should {'be' if runs else 'not be'}"
    elif mode & (SPECIAL | stat.S_IWOTH):
        given = "rwxr-xr-x" if runs else "rw-r--r--"
        yield f"{path} has the mode {stat.filemode(mode)[1:]}; the compiler gives {given}"


def first_difference(on_disk: bytes, made: bytes) -> tuple[str, bool]:
    """Find the first line that differs in more than digests or, if there is none, the first in which digests differ.

    Returns a pair: a text with the line's number, the line on disk and the line that the spec compiles to, and whether
    only digests differ.
    """
    texts = [one.decode("utf-8", "surrogateescape").split("\n") for one in (on_disk, made)]
    length = min(map(len, texts))
    differing = [number for number, (one, other) in enumerate(zip(*texts, strict=False)) if one != other]
    if len(texts[0]) != len(texts[1]):
        differing.append(length)
    texts = [[*one, ""] for one in texts]  # one of the two texts may have fewer lines
    plain = (number for number in differing if number == length or not _only_digests(*(one[number] for one in texts)))
    found = next(plain, None)
    at = differing[0] if found is None else found
    here, recompiled = (_line(one[at]) for one in texts)
    # the shown parts of both lines are equal, so the lines differ only in spaces, or in a part that is not shown
    if here == recompiled and texts[0][at] != texts[1][at]:
        lines = [one[at] for one in texts]
        location = next((number for number, (one, other) in enumerate(zip(*lines, strict=False)) if one != other), 0)
        start = max(0, location - SHOWN // 2) if location >= SHOWN else 0
        here, recompiled = ("..." * (start > 0) + repr(one[start : start + SHOWN]) for one in lines)
    return f"{at + 1}: {here}, but the spec compiles to {recompiled}", found is None


def _only_digests(one: str, other: str) -> bool:
    return DIGEST.sub("", one) == DIGEST.sub("", other)


def _line(text: str) -> str:
    return text.strip().rstrip(",")[:SHOWN] or "nothing"
