"""Import a bundle. The result is the spec from which the bundle was compiled, without the values that the compiler
added, and the data and other files that the spec names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from xpc.compiler.files.written import lines, written
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import Overrides, load
from xpc.compiler.importing.text.entries import Entry, Unreadable
from xpc.grammar.format import format_file
from xpc.grammar.parse import parse
from xpc.grammar.source import Source
from xpc.grammar.tree import quoted

DIGEST = re.compile(r"-[0-9a-f]{8}(?=\.\w+$)")


Reader = Callable[[str], bytes | None]
"""A function that returns the contents of a file in the bundle's folder, or None if the file does not exist."""
Copy = tuple[str, str, str | None]
"""A data file that was copied into a bundle: its name in the bundle, the path of the original file or folder in the
spec, and its name in that folder (None if the original is a file).
"""


def bundle(name: str, read: Reader, overrides: Overrides) -> Draft:
    """Convert a bundle's folder to a draft of the spec. Raises Unreadable if the folder is not a bundle."""
    spec, stated = read("spec.xp"), read("trainer_args.json")
    if spec is None or stated is None:
        raise Unreadable("it is not a bundle: a bundle has spec.xp and trainer_args.json")
    try:
        payload = json.loads(stated)
        draft = Draft(load(payload["target"]), payload["method"]["name"], overrides.stem)
        copies = _copies(payload)
        spec_lines = lines(spec.decode("utf-8"))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise Unreadable("its trainer_args.json was not written by this version") from error
    locations = _copy_data(draft, copies, read)
    for line in spec_lines:
        entry = Entry(line.code.strip().rstrip(" {"), None, f"{name}/spec.xp", line.number, line.code.strip())
        if line.filled:
            draft.note(entry, line.note)
        elif line.code.strip() not in ("", "}"):
            draft.mark(entry, "mapped", line.code.strip(), line.note or "the spec")
    text = written(spec_lines)
    for path, plain in locations.items():
        text = text.replace(quoted(path), quoted(plain))
    text = _copy_files(draft, text, read)
    tree, problems = parse(Source("import.xp", text + "\n"))
    if problems:
        raise Unreadable(f"its spec.xp cannot be read: {problems[0].message}")
    draft.text = format_file(tree)
    return draft


def _copies(payload: Any) -> list[Copy]:
    """The data files that a bundle's trainer_args.json lists. Raises TypeError for a name that is not a string."""
    sets = (payload["data"].get("evaluation") or {}).get("sets", [])
    sources = [*payload["data"]["sources"], *(source for one in sets for source in one["sources"])]
    copies = [
        (one["bundled"], source["path"], one["path"] if one is not source else None)
        for source in sources
        for one in (source, *(source.get("files") or ()))
        if one["bundled"]
    ]
    if not all(isinstance(one, str) or (one is None and at == 2) for each in copies for at, one in enumerate(each)):
        raise TypeError("a name is not a text")
    return copies


def _copy_data(draft: Draft, copies: Sequence[Copy], read: Reader) -> dict[str, str]:
    """Copy the bundle's data next to the spec. Returns a dict that maps the path of each data file in the bundle's spec
    to its new path. Raises Unreadable.
    """
    locations: dict[str, str] = {}
    for inside, path, part in copies:
        data = _existing(inside, read)
        plain = locations.get(path) or (_plain(inside) if part is None else _folder_name(path))
        # keep the digest if two files of the bundle have the same name without it
        if part is None and draft.files.get(plain, data) != data:
            plain = inside
        while path not in locations and part is not None and plain in locations.values():
            plain += "_"
        locations[path] = plain
        draft.files[plain if part is None else _bundle_name(f"{plain}/{part}")] = data
    return locations


def _copy_files(draft: Draft, text: str, read: Reader) -> str:
    """Copy the other files that the spec `text` names. Returns the spec with their new names. Raises Unreadable
    if a file is missing."""
    for inside in dict.fromkeys(re.findall(r'"(files/[^":]+)', text)):
        data = _existing(inside, read)
        if inside.count("/") > 1:  # a task of lm-eval may include other files in its folder, so all of them are copied
            draft.files.update(_folder(inside.rpartition("/")[0] + "/", read))
            continue
        draft.files[_plain(inside)] = data
        text = text.replace(inside, _plain(inside))
    return text


def _existing(name: str, read: Reader) -> bytes:
    """The contents of a file in the bundle. Raises Unreadable if it does not exist."""
    data = read(_bundle_name(name))
    if data is None:
        raise Unreadable(f"`{name}` does not exist")
    return data


def _folder(folder: str, read: Reader) -> dict[str, bytes]:
    """The names and contents of the files under `folder` that the bundle's bundle.toml lists. Raises Unreadable if one
    of them is missing.
    """
    from xpc.compiler.files import bounded_toml

    try:
        listed = bounded_toml.loads((read("bundle.toml") or b"").decode())["files"]
    except (KeyError, ValueError) as error:
        raise Unreadable("its bundle.toml lists no files") from error
    return {name: _existing(name, read) for name in listed if name.startswith(folder)}


def _bundle_name(name: str) -> str:
    """Check a file name in a bundle, and return it unchanged.

    Raises Unreadable for a path that leads out of the bundle, such as `data/../../x`, because a bundle may come from a
    stranger.
    """
    plain = name.isprintable() and name.startswith(("data/", "files/"))
    if not plain or any(part in ("", ".", "..") for part in name.split("/")):
        raise Unreadable(f"`{name[:80]}` is not a legal name of a file in a bundle")
    return name


def _folder_name(path: str) -> str:
    """The name of the folder next to the new spec for a copied data folder of the bundle: `data/pairs` for
    `/mnt/pairs`.
    """
    return "data/" + (path.rstrip("/").rpartition("/")[2].strip(".") or "rows")


def _plain(name: str) -> str:
    """The name of a file in a bundle without its digest: `a-0123abcd.jsonl` becomes `a.jsonl`."""
    return DIGEST.sub("", name)
