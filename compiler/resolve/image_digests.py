"""List the image files that rows name by their paths, each with its size and digest.

Images are not copied into the bundle. Instead, the bundle contains a list for each data source, with a line of JSON for
each image, in the order of the rows. `xpc check` makes no lists, because the digests of many images take minutes to
compute.

    {"path": "photos/cat.jpg", "bytes": 20481, "sha256": "5e88..."}

For a missing image, the size and the digest are null.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from hashlib import sha256

from xpc.compiler.data.image_paths import image_folder, image_paths
from xpc.compiler.data.shapes import IMAGE_PAIRS, IMAGES
from xpc.compiler.files import private_folder
from xpc.compiler.files.file_digests import SHOWN, show_count, size_and_digest
from xpc.compiler.files.file_memory import SETTLED, FileMemory
from xpc.compiler.files.workspace import Workspace, bundle_name
from xpc.compiler.spec import Spec
from xpc.compiler.spec.checked import CheckedSpec
from xpc.compiler.spec.resources import DataSource, ImageList
from xpc.grammar.record import evolve

ENDING = ".images.jsonl"
LARGEST = 64 * 2**20
"""The largest number of bytes of an image file that a run reads (runtime/features/rows/images.py). A list of images has
the same limit.
"""
MANY = 20_000
"""A line about the progress is printed each time this many more images have been read."""
UNREAD = ImageList("", b"", "", 0, 0)
Known = MutableMapping[tuple[str, str], ImageList | None]
"""A cache of the lists of images that this command has made. The keys are the path of a data source and the digest of
its rows.
"""


def with_images(
    spec: CheckedSpec, workspace: Workspace, known: Known, trusted: Callable[[str], bytes | None] | None = None
) -> CheckedSpec:
    """Return the spec with the lists of its images. `known` is a cache, so that the members of a sweep make each list
    only once.

    `trusted` is a function that returns a source's list from an existing bundle. If no image has changed since this
    list was made, the list is used again and no image is read. An image counts as unchanged if its size, times and
    inode are those that `workspace.memory` has stored.
    """
    found: dict[str, ImageList] = {}
    for source in pictured(spec):
        path = source.path or ""
        key = (path, " ".join(str(part.sha256) for part in source.parts or (source,)))
        if key not in known:
            known[key] = _listed(source, workspace, trusted)
        made = known[key]
        if made is not None:
            found[path] = made
    return listing(spec, found)


def with_listed(spec: CheckedSpec, workspace: Workspace, read: Callable[[str], bytes | None]) -> CheckedSpec:
    """Return the spec with the lists of images from its existing bundle. No image is read."""
    found = {}
    for source in pictured(spec):
        name = list_name(source.path or "")
        data = read(name)
        if data is not None or image_paths(source, workspace) is None:
            found[source.path or ""] = UNREAD if data is None else _list(name, data)
    return listing(spec, found)


def listing(spec: CheckedSpec, images: Mapping[str, ImageList]) -> CheckedSpec:
    """Return the spec with the given lists of images, and add the lists to the files of its bundle."""
    if not images:
        return spec
    bundled = {**spec.bundled, **{one.name: one.data for one in images.values() if one.name}}
    return evolve(spec, images=images, bundled=bundled)


def pictured(spec: Spec) -> Iterator[DataSource]:
    """The local data sources whose rows contain paths of images."""
    return (one for one in spec.sources if one.shape in (IMAGES, IMAGE_PAIRS) and one.path is not None)


def without_digests(spec: CheckedSpec) -> Iterator[str]:
    """A sentence for each data source whose images have no digest. `verify` cannot notice that such images change."""
    for path, images in spec.images.items():
        if images.missing:
            yield f"{images.missing:,} of {images.files:,} images of {path} are not here, and get no digest"
        elif not images.name:
            jsonl = path.lower().endswith(".jsonl")
            why = "their list is too long" if jsonl else "write the rows as .jsonl to get digests"
            yield f"images that {path} names have no digest, so `verify` cannot notice changes of them; {why}"


def list_name(path: str) -> str:
    """The name that a list of images gets in the bundle. `path` is the data source to which the images belong."""
    digest = sha256(path.encode("utf-8", "surrogatepass")).hexdigest()
    return f"data/{bundle_name(path.rstrip('/'), digest).rpartition('.')[0]}{ENDING}"


def _list(name: str, data: bytes) -> ImageList:
    return ImageList(name, data, sha256(data).hexdigest(), data.count(b"\n"), data.count(b'"bytes": null, '))


def _listed(
    source: DataSource, workspace: Workspace, trusted: Callable[[str], bytes | None] | None
) -> ImageList | None:
    memory, paths = workspace.memory, image_paths(source, workspace)
    if not paths:
        return UNREAD if paths is None else None
    name, folder = list_name(source.path or ""), image_folder(source)
    locations = {path: workspace.locate_image(folder, path) for path in paths}
    stamp, changed = _stamp(locations)
    if trusted is not None and memory is not None:
        saved = trusted(name)
        if saved is not None and _remembered(memory, name, stamp) == sha256(saved).hexdigest():
            return _list(name, saved)
    data = b"".join(_lines(locations))
    if len(data) > LARGEST:  # such a large list of images cannot be written into a bundle
        return UNREAD
    made = _list(name, data)
    if memory is not None and changed < time.time() - SETTLED and _stamp(locations)[0] == stamp:
        private_folder.write(memory.folder, _entry(name, stamp), json.dumps({"images": made.sha256}))
    return made


def _lines(locations: Mapping[str, str | None]) -> Iterator[bytes]:
    done = shown = 0
    for number, (path, location) in enumerate(locations.items()):
        found = None if location is None else size_and_digest(location, LARGEST)
        size, digest = (None, None) if found is None else found
        done += size or 0
        if done - shown >= SHOWN or (number and number % MANY == 0):
            shown = done
            show_count(number, len(locations))
        line = json.dumps({"path": path, "bytes": size, "sha256": digest}) + "\n"
        yield line.encode()


def _stamp(locations: Mapping[str, str | None]) -> tuple[str, float]:
    """Return a pair: a digest of the sizes, times and inodes of all files, and the time of the last change of any of
    them, in seconds since the epoch.
    """
    total, newest = sha256(), 0.0
    for path, location in locations.items():
        try:
            found = None if location is None else os.stat(location)
        except (OSError, ValueError):
            found = None
        if found is not None:
            newest = max(newest, found.st_mtime, found.st_ctime)
        facts = None if found is None else (
            location, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev
        )  # fmt: skip
        total.update(repr((path, facts)).encode("utf-8", "surrogatepass"))
    return total.hexdigest(), newest


def _entry(name: str, stamp: str) -> str:
    return sha256(f"{name}\0{stamp}\0images".encode("utf-8", "surrogatepass")).hexdigest()


def _remembered(memory: FileMemory, name: str, stamp: str) -> object:
    entry = private_folder.read(memory.folder, _entry(name, stamp))
    return None if entry is None else entry.get("images")
