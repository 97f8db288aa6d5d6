"""Rows with images: find and check each image, and mark its place in the text.

In a converted row, each message has a role and a text, and ``PLACE`` in a text marks an image. The row also has the
images, in the order of these marks; each has a path or bytes, and a size in pixels.
"""

import base64
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from hashlib import file_digest, sha256
from io import BytesIO
from typing import Any

from ...core import rows
from ...core.errors import RunError, first_line, say
from ...core.feature import Bundle, Feature, Rows, Source, Tokenizer
from ...core.rows import KEPT, RowFormat, from_value, name, with_system
from ..launch import local_files
from ..launch.verified_files import changed
from . import chat

SHAPE = "images"
PLACE = "<image>"
"""Marks the place of an image in a text, as in LLaVA's rows."""
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
LARGEST = 64 * 2**20
"""An image file is read only if it has at most this many bytes."""
MOST_PIXELS = 2**26
"""An image may have at most this many pixels (67 million). A small file can contain far more (a decompression bomb)."""
NARROWEST = 200
"""Qwen2-VL's image processor refuses an image if one side is this many times as long as the other (smart_resize)."""
EMBEDDED = "data:image/"


def columns(source: Source, present: Sequence[str]) -> dict[str, str]:
    """The names of the columns with the messages and the images. ``present`` are all columns of the dataset."""
    if source["shape"] != SHAPE:
        return rows.columns(source, present)
    return dict(zip(("messages", SHAPE), source["columns"] or ("messages", SHAPE), strict=True))


def to_row(source: Source, row: Mapping[str, Any], index: int, system: str | None = None, **how: Any) -> dict[str, Any]:
    """Convert one stored row: its messages, with `<image>` at the place of each image, and the stored images.

    If no text has `<image>`, the images stand before the user's first text, as in TRL. Raises RunError with the row's
    number (from 0) for a row in another format.
    """
    if source["shape"] != SHAPE:
        return chat.to_row(source, row, index, system, **{key: one for key, one in how.items() if key == "text"})
    where, used = f"{name(source)}, row {index}", columns(source, list(row))
    refuse_kept(source, row, where)
    turns = row[used["messages"]]
    by_from = isinstance(turns, list) and turns and isinstance(turns[0], dict) and "from" in turns[0]
    turns = from_value(turns, where) if by_from else chat.messages(turns, where)
    made = [plain(turn, where) for turn in with_system(turns, system)]
    images = images_of(row[used[SHAPE]])
    return {"messages": placed(made, len(images), where), SHAPE: images}


def refuse_kept(source: Source, row: Mapping[str, object], where: str) -> None:
    """Raise RunError if a row has a column that the chat template would read in a run without images."""
    for column in () if source.get("only") else KEPT:
        if row.get(column):
            raise RunError(f"{where}: the row has `{column}`, which no run with images renders; leave the column out")


def images_of(stored: Rows) -> list[Any]:
    """The stored images of a row, as a list. A row may also store a single image without a list, or null."""
    return stored if isinstance(stored, list) else [] if stored is None else [stored]


def plain(turn: Mapping[str, Any], where: str) -> dict[str, str]:
    """A message with only a role and a text. Raises RunError if the stored message has other keys."""
    more = [key for key, value in turn.items() if key not in ("role", "content") and value]
    if more:
        raise RunError(f"{where}: a message has `{more[0]}`, and messages with images have a role and a content only")
    content = turn["content"]
    return {"role": turn["role"], "content": content if isinstance(content, str) else _joined(content, where)}


def _joined(content: Sequence[Any], where: str) -> str:
    """The text of a content that is a list of parts, with a mark for each image. Raises RunError for a part that is
    neither a text nor an image."""
    texts = []
    for part in content:
        kind, text = (part.get("type"), part.get("text")) if isinstance(part, dict) else ("text", part)
        if kind == "image" and not any(part.get(key) for key in ("image", "url", "path", "base64")):
            texts.append(PLACE)
        elif kind not in (None, "text") or not isinstance(text, str):
            raise RunError(
                f"{where}: a message has a part of the type {str(kind)[:40]!r}; parts are texts, or images whose data "
                "is in the column of images"
            )
        elif PLACE in text:
            raise RunError(
                f"{where}: a message that is a list of parts has {PLACE} in a text; in such a message, write a part of "
                'the type "image" at the place of each image'
            )
        else:
            texts.append(text)
    return "".join(texts)


def placed(turns: list[dict[str, str]], images: int, where: str) -> list[dict[str, str]]:
    """The messages with one mark per image. Raises RunError if there are more or fewer marks than images."""
    places = sum(turn["content"].count(PLACE) for turn in turns)
    first = next((turn for turn in turns if turn["role"] == "user"), None)
    if images and not places and first is not None:
        first["content"] = PLACE * images + first["content"]
        places = images
    if places != images:
        raise RunError(f"{where}: the row has {images} images, and {places} places for them ({PLACE}) in its texts")
    return turns


def parts(text: str) -> list[dict[str, str]]:
    """Split a text into the parts that a processor's chat template reads, with an image part at each mark."""
    found: list[dict[str, str]] = []
    for number, piece in enumerate(text.split(PLACE)):
        found += [{"type": "image"}] if number else []
        found += [{"type": "text", "text": piece}] if piece else []
    return found or [{"type": "text", "text": ""}]


def _read(
    folder: str, convert: Callable[..., dict[str, Any]], source: Source, row: Mapping[str, Any], index: int,
    **how: object,
) -> dict[str, object]:  # fmt: skip
    """Convert a row with ``convert``, and check its images. ``folder`` is the bundle's folder."""
    made = convert(source, row, index, **how)
    where, root = f"{name(source)}, row {index}", _root(folder, source)
    stated = listed(folder, source.get(SHAPE), source.get("images_sha256"))
    stored = made.get(SHAPE, ())
    made[SHAPE] = [checked(one, root, f"{where}: image {number}", stated) for number, one in enumerate(stored)]
    return made


@lru_cache(maxsize=8)
def listed(folder: str, file: str | None, digest: str | None) -> Mapping[str, tuple[int, str] | None]:
    """Maps the path of each image to its size and SHA-256 at compile time; None for an image that was missing.

    The bundle's list ``file`` has these values; without a list, the result is empty. Raises RunError if the digest of
    the list is not ``digest``.
    """
    if file is None:
        return {}
    path = os.path.join(folder, file)
    try:
        with open(path, "rb") as handle:
            data = handle.read(LARGEST + 1)
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    if sha256(data).hexdigest() != digest:
        raise changed(path)
    found = [json.loads(line) for line in data.splitlines()]
    return {one["path"]: None if one["sha256"] is None else (one["bytes"], one["sha256"]) for one in found}


def _root(folder: str, source: Source) -> str:
    """The folder that paths of images are relative to: the folder of the rows' file, or the data folder."""
    path = str(source["path"])
    return local_files.find(folder, path if source.get("files") else os.path.dirname(path) or ".")


def checked(
    stored: Any, root: str, where: str, stated: Mapping[str, tuple[int, str] | None] | None = None
) -> dict[str, object]:
    """A stored image: its path or bytes, and its size. The image is decoded, so that a broken image is found now.

    ``stored`` is a path inside ``root``, a data URL, bytes, or a dictionary with the key `bytes` or `path`. ``stated``
    has the digests that files must have. Raises RunError.
    """
    from PIL import Image

    if isinstance(stored, Image.Image):  # the datasets library has already decoded the image
        out = BytesIO()
        stored.convert("RGB").save(out, "PNG")
        stored = out.getvalue()
    if isinstance(stored, dict):
        data = stored.get("bytes")
        stored = data if data is not None else stored.get("path")
        if isinstance(data, str):
            stored = EMBEDDED + "," + data
    found: dict[str, Any] = {"path": None, "bytes": None}
    if isinstance(stored, bytes):
        found["bytes"] = stored
    elif isinstance(stored, str) and stored.startswith(EMBEDDED):
        try:
            found["bytes"] = base64.b64decode(stored.partition(",")[2], validate=True)
        except ValueError:
            raise RunError(f"{where} is not base64") from None
    elif isinstance(stored, str):
        found["path"] = _inside(root, stored, where)
    else:
        raise RunError(f"{where} is {type(stored).__name__}; it must be a path, bytes, or a data URL")
    size = len(found["bytes"]) if found["path"] is None else os.path.getsize(found["path"])
    if size > LARGEST:
        raise RunError(f"{where} has {size:,} bytes; at most {LARGEST:,} are read")
    expected = None if found["path"] is None or stated is None else stated.get(stored)
    if expected is not None:
        _unchanged(stored, found["path"], size, expected, where)
    try:
        found["width"], found["height"] = _size(found)
    except RunError as error:
        raise RunError(f"{where} {error}") from None
    except Exception as error:  # the reader of a broken file may raise any exception
        raise RunError(f"{where} cannot be read: {first_line(error)}") from error
    return found


def _unchanged(path: str, place: str, size: int, stated: tuple[int, str], where: str) -> None:
    """Compare an image with its entry in the bundle's list. If it has changed, raise RunError with both values."""
    with open(place, "rb") as handle:
        digest = file_digest(handle, "sha256").hexdigest()
    if digest != stated[1]:
        raise RunError(
            f"{where}, {path[:80]!r}, is not the file that this bundle was compiled with: it had {stated[0]:,} bytes "
            f"(sha256 {stated[1][:12]}), and has {size:,} (sha256 {digest[:12]}); put the old file back, or compile "
            "the spec again"
        )


def files_state(root: str, stored: Iterable[object]) -> str:
    """A digest of the paths, sizes, times of change and inodes of these rows' image files. It changes if a file is
    written, replaced, deleted, or found in another folder. The files are not read."""
    state = sha256(root.encode("utf-8", "surrogatepass"))
    for images in stored:
        for one in images if isinstance(images, list) else [images]:
            path = one.get("path") if isinstance(one, dict) else one
            if isinstance(path, str) and not path.startswith(EMBEDDED) and "\0" not in path:
                try:
                    found = os.stat(os.path.join(root, path))
                    known: object = (path, found.st_size, found.st_mtime_ns, found.st_ino)
                except OSError:  # opening the image raises the error later
                    known = path
                state.update(repr(known).encode("utf-8", "surrogatepass"))
    return state.hexdigest()


def _inside(root: str, path: str, where: str) -> str:
    """The real path of an image's file. Raises RunError for a web address, and for a file outside ``root``."""
    if "://" in path:
        raise RunError(f"{where} is the address {path[:80]!r}, which a run does not fetch")
    if "\0" in path:
        raise RunError(f"{where} is {path[:80]!r}, which cannot be the name of a file")
    root, place = os.path.realpath(root), os.path.realpath(os.path.join(root, path))
    if os.path.commonpath((root, place)) != root:
        raise RunError(f"{where} is {path[:80]!r}, outside of the data's folder {root}")
    if not os.path.isfile(place):
        raise RunError(f"{where} is {path[:80]!r}, and there is no such file in {root}")
    return place


def _size(found: Mapping[str, Any]) -> tuple[int, int]:
    """The width and height of an image in pixels, after decoding it. Raises RunError, and errors of the decoder."""
    with _file(found) as image:
        width, height = image.size
        if width * height > MOST_PIXELS:
            raise RunError(f"has {width:,} x {height:,} pixels; at most {MOST_PIXELS:,} are read")
        if max(width, height) >= NARROWEST * min(width, height):
            raise RunError(f"is {width:,} x {height:,} pixels: one side must be less than {NARROWEST} times the other")
    opened_image = opened(found)
    return int(opened_image.width), int(opened_image.height)


def _file(found: Mapping[str, Any]) -> Any:
    from PIL import Image

    return Image.open(found["path"] if found["bytes"] is None else BytesIO(found["bytes"]), formats=FORMATS)


def opened(found: Mapping[str, object]) -> Any:
    """The decoded image in RGB, rotated as its EXIF data state; the datasets library rotates images in the same way."""
    from PIL import ImageOps

    with _file(found) as image:
        return ImageOps.exif_transpose(image).convert("RGB")


def reopened(found: Mapping[str, Any]) -> object:
    """The decoded image for a batch. Raises RunError if its file was deleted or damaged after the rows were read."""
    try:
        if found["bytes"] is None and not os.path.isfile(found["path"]):  # reading a named pipe might never end
            raise RunError("it is no longer a file")
        return opened(found)
    except Exception as error:  # the reader of a broken file may raise any exception
        place = found["path"] if found["bytes"] is None else "in the rows"
        raise RunError(
            f"the image {place} could be read when the run began, and now cannot: {first_line(error)}"
        ) from error


FORMAT = RowFormat(columns, rows.dropped, rows.conversations, to_row)


class Images(Feature):
    """Hooks for a run on conversations with images."""

    talks: tuple[str, ...] = ("messages",)
    """The columns with messages in a converted row."""

    def before_rows(self, bundle: Bundle, tokenizer: Tokenizer | None) -> list[str]:
        """Return a finding if the bundle's list of images was edited. Print a sentence about images without a digest,
        because nobody would notice if they change."""
        found = []
        for source in bundle.sources():
            if "images" in source and source["images"] is None:
                say(f"{name(source)}: the bundle has no digests of its images, so changed images are not noticed")
            elif "images" in source:
                try:
                    stated = listed(bundle.folder, source["images"], source.get("images_sha256"))
                except RunError as error:
                    found.append(str(error))
                    continue
                if missing := list(stated.values()).count(None):
                    say(
                        f"{name(source)}: {missing:,} images were missing when the spec was compiled, and are unchecked"
                    )
        return found

    def row_format(self, bundle: Bundle) -> RowFormat:
        """The format of rows with images."""
        return FORMAT

    def row_converter(self, bundle: Bundle, convert: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        """``convert``, followed by a check of the row's images."""
        return partial(_read, bundle.folder, convert)

    def row_types(
        self, bundle: Bundle, source: Source, stored: Rows, dropped: Sequence[str],
        make: Callable[[Any, int], dict[str, Any]],
    ) -> dict[str, object] | None:  # fmt: skip
        """The types of the columns, because the first row may have no image.

        The datasets library caches converted rows for later starts, by a digest of these types, among other things. The
        type of the path contains the state of the image files (``id=state``). So if an image file changes, the digest
        changes, and all images are opened and checked again.
        """
        from datasets import Features, List, Value

        text = Value("string")
        used = self.row_format(bundle).columns(source, stored.column_names)
        root = _root(bundle.folder, source)
        state = files_state(root, stored[used[SHAPE]]) + str(source.get("images_sha256")) if SHAPE in used else None
        path, size = Value("string", id=state), Value("int32")
        image = {"path": path, "bytes": Value("binary"), "width": size, "height": size}
        kept = {column: kind for column, kind in stored.features.items() if column not in dropped}
        talks = {column: List({"role": text, "content": text}) for column in self.talks}
        types: dict[str, Any] = Features({**kept, **talks, SHAPE: List(image)})
        return types
