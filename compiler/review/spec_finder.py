"""The specs of a repository: the tracked `.xp` files that describe a run, each with the files that it extends (its
bases).

A file describes a run if it or one of its bases has a `train` line. Two more kinds of files count, because their errors
must be reported: a file with a missing or cyclic base, and a file that has a syntax error and that no other file
extends. The `spec.xp` of a bundle does not count. Symbolic links do not count either, because they may lead out of the
repository.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping

from xpc.compiler.files.bundle_digests import copies_spec, read_regular
from xpc.compiler.files.bundled import MANIFEST, SPEC
from xpc.compiler.files.inputs import MAX_SPEC, UsageError
from xpc.compiler.review.commit_paths import LONGEST_PATH, followed
from xpc.compiler.review.repository import LINK, Commit, Repository
from xpc.grammar.parse import parse
from xpc.grammar.read import decode
from xpc.grammar.record import entity, record

DEEP = 8
"""From a spec, at most this many bases are followed: its base, the base's base, and so on. The compiler allows fewer,
and reports longer chains.
"""


@record
class Specs:
    """The specs of a repository. `runs` has, for each spec, its bases (the nearest first). `files` are all `.xp` files
    that are not in bundles. `links` are symbolic links, which are not read. `copies` are the `spec.xp` of bundles. All
    paths are relative to the top of the repository.
    """

    runs: Mapping[str, tuple[str, ...]]
    files: tuple[str, ...]
    links: tuple[str, ...]
    copies: tuple[str, ...] = ()

    def reading(self, changed: Iterable[str]) -> list[str]:
        """The specs that changed paths concern. A spec is concerned if `changed` contains the spec itself, its lock,
        one of its bases, or a submodule that contains one of its bases.
        """
        found = set(changed)
        return [
            path
            for path, bases in self.runs.items()
            if found & {path, f"{path}.lock", *bases} or any(found.intersection(parents(one)) for one in bases)
        ]


def parents(path: str) -> list[str]:
    """The folders above a path: `a` and `a/b` for the path `a/b/c`. An empty list if the path is longer than any file's
    path can be.
    """
    return [] if len(path) > LONGEST_PATH else [path[:at] for at, letter in enumerate(path) if letter == "/" and at]


@entity
class _File:
    trains: bool
    extends: str | None
    broken: bool


def specs_of_commit(commit: Commit) -> Specs:
    """The specs of a commit."""
    found = {path: mode for path, (mode, _) in commit.files.items()}

    def load(*paths: str) -> None:
        commit.read(*paths, most=MAX_SPEC)

    load(*(path for path, mode in found.items() if path.endswith(".xp") or mode == LINK))
    return _specs(found, lambda path: commit.small(path, MAX_SPEC), commit.link, load)


def specs_of_work_tree(repository: Repository, more: Iterable[str] = ()) -> Specs:
    """The tracked specs, and the files in `more`, as they are in the working tree. Raises UsageError if git fails."""

    def read(path: str) -> bytes | None:
        try:
            return read_regular(os.path.join(repository.top, path), MAX_SPEC)
        except UsageError:
            return None

    index = {**dict.fromkeys(more, ""), **repository.index()}
    there = {path: mode for path, mode in index.items() if os.path.lexists(os.path.join(repository.top, path))}
    return _specs(there, read, lambda path: repository.link(path) if there.get(path) == LINK else None)


def _specs(
    modes: Mapping[str, str], read: Callable[[str], bytes | None], link: Callable[[str], str | None],
    load: Callable[..., None] = lambda *paths: None,
) -> Specs:  # fmt: skip
    copies = set(_copies(modes, read, load))
    names = sorted(path for path in modes if path.endswith(".xp") and path not in copies)
    links = tuple(path for path in names if modes[path] == LINK)
    files = {path: _parsed(read(path), path) for path in names if modes[path] != LINK}
    # Bases may have any name, so they are found level by level. The files of a level are read together, because each
    # read from a commit starts a process of git.
    others: dict[str, _File] = {}
    new = files
    for _ in range(DEEP):
        found = {list(followed(_base(path, one.extends), link))[-1] for path, one in new.items() if one.extends}
        more = [one for one in found if one not in files and one not in others and modes.get(one, LINK) != LINK]
        load(*more)
        new = {path: _parsed(read(path), path) for path in more}
        others |= new

    def file(path: str) -> _File | None:
        *_, path = followed(path, link)
        if path not in files and path not in others and modes.get(path, LINK) != LINK:
            others[path] = _parsed(read(path), path)
        return files.get(path) or others.get(path)

    named = {path: _bases(path, file) for path in files}
    bases = {path: tuple(dict.fromkeys(each for one in chain for each in followed(one, link)))
             for path, chain in named.items()}  # fmt: skip
    extended = {one for chain in bases.values() for one in chain}
    runs = {}
    for path, chain in bases.items():
        known = [file(one) for one in (path, *named[path])]
        trains = any(one is not None and one.trains for one in known)
        broken = files[path].broken and path not in extended
        if trains or broken or None in known or len(named[path]) >= DEEP:
            runs[path] = chain
    return Specs(runs, tuple(files), links, tuple(sorted(copies)))


def _copies(modes: Mapping[str, str], read: Callable[[str], bytes | None], load: Callable[..., None]) -> Iterator[str]:
    """Yield the paths of the `spec.xp` files that belong to bundles. A `spec.xp` belongs to a bundle if the
    `bundle.toml` next to it lists it with its digest.

    Neither the name of the folder nor a `bundle.toml` without this digest makes a bundle: otherwise, anyone could hide
    a spec from the review by adding a `bundle.toml` next to it.
    """
    found = {
        path: f"{path.removesuffix(SPEC)}{MANIFEST}"
        for path, mode in modes.items()
        if os.path.basename(path) == SPEC and mode != LINK
    }
    found = {path: manifest for path, manifest in found.items() if modes.get(manifest, LINK) != LINK}
    load(*found, *found.values())
    for path, manifest in found.items():
        spec, data = read(path), read(manifest)
        if spec is not None and data is not None and copies_spec(data, spec):
            yield path


def _bases(path: str, file: Callable[[str], _File | None]) -> tuple[str, ...]:
    """The bases of a file, the nearest first. If a base is missing, its path is the last one in the list. For a cycle
    of bases, the list has DEEP entries.
    """
    chain: list[str] = []
    here = path
    while len(chain) < DEEP:
        known = file(here)
        if known is None or known.extends is None:
            break
        here = _base(here, known.extends)
        chain.append(here)
    return tuple(chain)


def _base(path: str, named: str) -> str:
    """The path of a file's base, relative to the top of the repository. `named` is the text after `extends`, which is a
    path relative to the file `path`.
    """
    return os.path.normpath(os.path.join(os.path.dirname(path), named)).replace(os.sep, "/")


def _parsed(data: bytes | None, name: str) -> _File:
    """Find out whether a file has a `train` line, which spec it extends, and whether it has errors. A file that
    contains neither the word `train` nor the word `extends` is not parsed.
    """
    if data is None:
        return _File(False, None, True)
    if b"train" not in data and b"extends" not in data and b"\0" not in data:
        return _File(False, None, False)

    source, wrong = decode(data, os.path.basename(name))
    file, problems = parse(source)
    extends = None if file.extends is None else file.extends.value
    return _File(file.train is not None, extends, bool(wrong or problems))
