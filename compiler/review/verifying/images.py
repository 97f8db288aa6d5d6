"""Compare image files with the list of digests in the bundle. The rows name these files by their paths."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.files import bundled
from xpc.compiler.files.digest import digest
from xpc.compiler.files.folder_contents import read_inside
from xpc.compiler.resolve.image_digests import list_name, pictured
from xpc.compiler.review.differences.images import described, entries
from xpc.compiler.spec.checked import CheckedSpec

LOOKED = "set XPC_DATA_ROOT to the folder that contains the rows' folder, if that is not next to the bundle"


def image_drifts(folder: str, spec: CheckedSpec) -> Iterator[str]:
    """A sentence for each data source whose images have changed since the bundle was compiled.

    An edited list of digests is ignored here, because it is reported together with the bundle's other edited files.
    """
    for source in pictured(spec):
        path = source.path or ""
        name = list_name(path)
        try:
            data = read_inside(folder, name)
        except OSError:
            continue
        made = spec.images.get(path)
        if not _is_listed(folder, name, data) or (made is not None and made.data == data):
            continue
        was = entries(data)
        now = {} if made is None else entries(made.data)
        if was and not any(now.values()) and any(was.values()):
            yield f"the images of {path}, which {folder} was compiled with, are not here; {LOOKED}"
        elif was != now:
            yield f"{path}: {described(was, now)} (since {folder} was compiled)"


def _is_listed(folder: str, name: str, data: bytes) -> bool:
    """Whether a file of the bundle still has the digest that the manifest states."""
    return (bundled.manifest(folder) or {}).get("files", {}).get(name) == digest(data)
