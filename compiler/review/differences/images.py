"""Compare the lists of images in two bundles: how many images have changed, and which is the first of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from xpc.compiler.resolve.image_digests import ENDING

Entry = tuple[int, str] | None
"""The size in bytes and the SHA-256 of an image; None if the image file was missing."""
DIGITS = 12
"""The number of characters of a digest that are printed."""


def is_list(name: str) -> bool:
    """Whether a file of a bundle is a list of images."""
    return name.startswith("data/") and name.endswith(ENDING)


def about_images(key: str) -> bool:
    """Whether a key of trainer_args.json contains the digest of a list of images."""
    return key.endswith(".images_sha256")


def image_changes(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> Iterator[str]:
    """Yield a sentence for each list of images that differs between two bundles."""
    for name in sorted(filter(is_list, {*before, *after})):
        was, now = (entries(files.get(name, b"")) for files in (before, after))
        if was != now:
            yield described(was, now)


def entries(data: bytes) -> dict[str, Entry]:
    """The images in a list, by path. Malformed lines, which only an edit by hand can cause, are skipped."""
    out: dict[str, Entry] = {}
    for line in data.splitlines():
        try:
            one = json.loads(line)
            path, size, digest = (one[key] for key in ("path", "bytes", "sha256"))
        except (ValueError, RecursionError, KeyError, TypeError):
            continue
        if isinstance(path, str):
            out[path] = (size, digest) if isinstance(size, int) and isinstance(digest, str) else None
    return out


def described(was: Mapping[str, Entry], now: Mapping[str, Entry]) -> str:
    """A sentence about the changes: `2 images changed, 1 added; photos/cat.jpg is the first that differs: 20,481 ->
    20,490 bytes`.
    """
    kinds = {
        "changed": [path for path in was if path in now and was[path] != now[path]],
        "added": [path for path in now if path not in was],
        "removed": [path for path in was if path not in now],
    }
    counts = [(len(paths), kind) for kind, paths in kinds.items() if paths]
    if not counts:
        return "images: the same, in another order"
    many = "image" if counts[0][0] == 1 else "images"
    first = f"{counts[0][0]:,} {many} {counts[0][1]}" + "".join(f", {count:,} {kind}" for count, kind in counts[1:])
    kind = counts[0][1]
    path = kinds[kind][0]
    if kind != "changed":
        return f"{first}; {path} is the first"
    return f"{first}; {path} is the first that differs: {moved(was[path], now[path])}"


def moved(was: Entry, now: Entry) -> str:
    """How an image has changed: `20,481 -> 20,490 bytes`, or both digests if only the contents changed and not the
    size.
    """
    if was is None or now is None:
        return "was not there, and is now" if was is None else "was there, and is not now"
    if was[0] != now[0]:
        return f"{was[0]:,} -> {now[0]:,} bytes"
    return f"sha256 {was[1][:DIGITS]} -> {now[1][:DIGITS]}"
