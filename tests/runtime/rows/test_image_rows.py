"""The runtime puts the images of a row where the row's text refers to them. It refuses bad images before it loads a
model.
"""

from __future__ import annotations

import base64
import json
import os
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from xpc.compiler.data.row_shapes import checker
from xpc.runtime.core import data, data_sources
from xpc.runtime.core.errors import RunError
from xpc.runtime.features.rows import images
from xpc.runtime.features.rows.images import checked, parts, to_row

Image = pytest.importorskip("PIL.Image")
SOURCE = {"id": None, "path": "rows.jsonl", "shape": "images", "columns": None, "only": False}
ANSWER = {"role": "assistant", "content": "red"}


def converted(*contents: Any, many: int = 1, **more: Any) -> list[str]:
    turns = [{"role": "user", "content": one} for one in contents]
    row = {"messages": [*turns, ANSWER], "images": [f"{one}.png" for one in range(many)], **more}
    return [turn["content"] for turn in to_row(SOURCE, row, 3)["messages"]]


def test_images_without_a_place_come_before_the_first_question():
    assert converted("What?", many=2) == ["<image><image>What?", "red"]
    assert converted("Is <image> this?") == ["Is <image> this?", "red"]
    assert converted("And?", "See <image>") == ["And?", "See <image>", "red"]
    assert converted("What?", many=0) == ["What?", "red"]
    assert converted([{"type": "text", "text": "See "}, {"type": "image"}, {"type": "text", "text": "!"}]) == [
        "See <image>!", "red",
    ]  # fmt: skip


def test_a_text_becomes_parts_at_its_places():
    assert parts("a<image><image>b") == [
        {"type": "text", "text": "a"}, {"type": "image"}, {"type": "image"}, {"type": "text", "text": "b"},
    ]  # fmt: skip
    assert parts("") == [{"type": "text", "text": ""}]
    assert parts("<image>") == [{"type": "image"}]


REFUSED = [
    ((["<image> and <image>"], 1, {}), "the row has 1 images, and 2 places"),
    ((["a <image>"], 0, {}), "the row has 0 images, and 1 places"),
    (([[{"type": "video"}]], 1, {}), "a part of the type 'video'"),
    (([[{"type": "image", "url": "x"}]], 1, {}), "a part of the type 'image'"),
    (([[{"type": "text", "text": "a <image>"}]], 1, {}), "a message that is a list of parts has <image> in a text"),
    ((["What?"], 1, {"tools": [{"name": "f"}]}), "the row has `tools`"),
]


@pytest.mark.parametrize(("row", "why"), REFUSED)
def test_a_row_with_other_places_is_named(row: tuple[list[Any], int, dict[str, Any]], why: str):
    contents, many, more = row
    with pytest.raises(RunError, match=r"^rows.jsonl, row 3: ") as refused:
        converted(*contents, many=many, **more)
    assert why in str(refused.value)


def test_the_check_of_local_files_says_the_same_as_the_run():
    check = checker("images", ("messages", "images"))
    for (contents, many, more), _ in REFUSED[:4]:
        turns = [{"role": "user", "content": one} for one in contents]
        assert check({"messages": [*turns, ANSWER], "images": [f"{one}.png" for one in range(many)], **more})
    for contents, many in ((["What?"], 2), (["<image>"], 1), ([[{"type": "image"}]], 1), (["What?"], 0)):
        turns = [{"role": "user", "content": one} for one in contents]
        assert check({"messages": [*turns, ANSWER], "images": ["a.png"] * many}) is None


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    Image.new("RGB", (20, 10), (255, 0, 0)).save(folder / "red.png")
    Image.new("RGB", (20, 10)).save(tmp_path / "secret.png")
    return folder


def png(width: int = 20, height: int = 10) -> bytes:
    out = BytesIO()
    Image.new("RGB", (width, height)).save(out, "PNG")
    return out.getvalue()


def test_an_image_is_a_path_bytes_or_a_data_url(root: Path):
    data = png()
    encoded = base64.b64encode(data).decode()
    assert checked("red.png", str(root), "row 0")["path"] == str(root / "red.png")
    for stored in (data, {"bytes": data, "path": None}, {"bytes": encoded}, f"data:image/png;base64,{encoded}"):
        found = checked(stored, str(root), "row 0")
        assert (found["bytes"], found["path"], found["width"], found["height"]) == (data, None, 20, 10)
    decoded = checked(Image.new("L", (6, 4), 7), str(root), "row 0")
    assert images.opened(decoded).getpixel((0, 0)) == (7, 7, 7)


def test_an_image_is_turned_as_its_camera_noted(root: Path):
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by 90 degrees
    Image.new("RGB", (20, 10)).save(root / "turned.jpg", exif=exif)
    found = checked("turned.jpg", str(root), "row 0")
    assert (found["width"], found["height"]) == images.opened(found).size == (10, 20)


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        ("none.png", "there is no such file"),
        ("../secret.png", "outside of the data's folder"),
        ("link.png", "outside of the data's folder"),
        ("a\0.png", "cannot be the name of a file"),
        ("https://example.com/a.png", "which a run does not fetch"),
        ("pipe.png", "there is no such file"),
        ("cut.png", "cannot be read"),
        ("text.png", "cannot be read"),
        ("data:image/png;base64,!", "is not base64"),
        (3, "it must be a path, bytes, or a data URL"),
        (png(400, 1), "one side must be less than 200 times the other"),
    ],
)
def test_an_image_that_cannot_be_trained_on_is_named(root: Path, stored: object, why: str):
    os.symlink(root.parent / "secret.png", root / "link.png")
    (root / "cut.png").write_bytes(png(200, 200)[:-60])
    os.mkfifo(root / "pipe.png")
    (root / "text.png").write_text("not an image", encoding="utf-8")
    with pytest.raises(RunError, match=r"^row 5: image 0 ") as refused:
        checked(stored, str(root), "row 5: image 0")
    assert why in str(refused.value)


def test_an_image_that_disappears_during_the_run_is_named(root: Path):
    found = checked("red.png", str(root), "row 0: image 0")
    assert images.reopened(found).size == (20, 10)
    (root / "red.png").write_bytes(b"")
    with pytest.raises(RunError, match=r"the image .*/red.png could be read when the run began, and now cannot"):
        images.reopened(found)
    (root / "red.png").unlink()
    os.mkfifo(root / "red.png")
    with pytest.raises(RunError, match="it is no longer a file"):
        images.reopened(found)


def test_sizes_are_bounded(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(images, "LARGEST", 10)
    with pytest.raises(RunError, match="at most 10 are read"):
        checked("red.png", str(root), "row 0: image 0")
    monkeypatch.setattr(images, "LARGEST", 2**20)
    monkeypatch.setattr(images, "MOST_PIXELS", 100)
    with pytest.raises(RunError, match="20 x 10 pixels; at most 100 are read"):
        checked("red.png", str(root), "row 0: image 0")


@pytest.mark.slow
def test_a_changed_image_is_opened_again_although_the_datasets_library_keeps_converted_rows(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    datasets = pytest.importorskip("datasets")
    turns = [{"role": "user", "content": "What?"}, ANSWER]
    lines = [json.dumps({"messages": turns, "images": names}) for names in ([], ["red.png"], ["red.png", "red.png"])]
    (root / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
    opened: list[str] = []
    monkeypatch.setattr(
        data_sources, "load", lambda *_: datasets.load_dataset(
            "json", data_files=str(root / "rows.jsonl"), split="train", cache_dir=str(tmp_path / "cache")
        ),
    )  # fmt: skip
    bundle = SimpleNamespace(
        folder=str(root / "run.bundle"), features=(images.Images(),), row_format=lambda: images.FORMAT, data={},
        arguments={}, method="sft",
    )  # fmt: skip

    def sizes(location: str = "rows.jsonl") -> list[list[int]]:
        source = {**SOURCE, "path": location}
        rows = data.mapped(bundle, None, source)  # type: ignore[arg-type]
        opened.append(str(rows.cache_files))
        return [[one["width"] for one in row["images"]] for row in rows]

    assert sizes() == sizes() == [[], [20], [20, 20]]
    assert opened[0] == opened[1]  # on the second start, the converted rows come from the cache
    Image.new("RGB", (30, 10)).save(root / "red.png")
    assert sizes() == [[], [30], [30, 30]]
    (root / "red.png").write_bytes(b"not an image")
    with pytest.raises(RunError, match=r"row 1: image 0 cannot be read"):
        sizes()
    (root / "red.png").unlink()
    with pytest.raises(RunError, match=r"row 1: image 0 is 'red.png', and there is no such file"):
        sizes()
    monkeypatch.setenv("XPC_DATA_ROOT", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    Image.new("RGB", (40, 10)).save(tmp_path / "elsewhere" / "red.png")
    assert sizes() == [[], [40], [40, 40]]
