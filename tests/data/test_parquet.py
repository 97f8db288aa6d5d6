"""xpc reads the columns and counts the rows of a local Parquet file, without a Parquet library."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from case_support import spec, trained
from compile_support import checked

from xpc.compiler.data.parquet import footer, problem
from xpc.compiler.data.rows import count
from xpc.grammar.diagnostic import ERROR
from xpc.runtime.features.rows.local_sources import _other_type

TURNS = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
TABLES: dict[str, dict[str, list[Any]]] = {
    "text": {"text": ["Two and two is four."] * 40},
    "messages": {"id": list(range(40)), "messages": [TURNS] * 40, "score": [0.5] * 40, "good": [True] * 40},
    "prompt_completion": {"completion": [" 4"] * 40, "prompt": ["2 + 2 ="] * 40},
}


def written(folder: Path, columns: dict[str, list[Any]], name: str = "rows.parquet", **more: Any) -> bytes:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table(columns), folder / name, **more)
    return (folder / name).read_bytes()


def read(data: bytes) -> tuple[list[str], int] | None:
    found = footer(lambda size: data[-size:])
    return None if found is None else found[:2]


@pytest.mark.parametrize("shape", TABLES)
def test_the_shape_and_the_count_are_those_of_the_file(tmp_path: Path, shape: str) -> None:
    written(tmp_path, TABLES[shape])
    found = checked(spec(train=trained('qwen2.5-3b on "rows.parquet"'), batch="gbs=8 micro=1"), tmp_path)
    assert not [one for one in found.problems if one.severity == ERROR]
    (source,) = found.spec.data
    assert (source.shape, source.found, count(source)) == (shape, tuple(TABLES[shape]), 40)


@pytest.mark.parametrize("place", ["rows.parquet", "d"])
def test_plain_texts_for_a_chat_model_are_reported(tmp_path: Path, place: str) -> None:
    """A Parquet file with plain texts is reported for a chat model (XP186), and a file with messages is not. The
    compiler distinguishes them by the types of their columns.
    """
    (tmp_path / "d").mkdir()
    at = tmp_path / "d" if place == "d" else tmp_path
    reported = {}
    for kind, answer in (("texts", "4"), ("messages", [TURNS[1]])):
        prompt = "2 + 2?" if kind == "texts" else [TURNS[0]]
        written(at, {"prompt": [prompt] * 40, "completion": [answer] * 40, "label": [True, False] * 20})
        found = checked(spec("method kto", train=trained(f'qwen2.5-3b-instruct on "{place}"'), batch="gbs=8"), tmp_path)
        reported[kind] = [one.code for one in found.problems if one.code in ("XP186", "XP124", "XP503")]
    assert reported == {"texts": ["XP186"], "messages": []}


WRONG: dict[str, tuple[str, dict[str, list[Any]], str]] = {
    "text": ("sft", {"text": [1] * 40}, "`text` is not text"),
    "answers": ("sft", {"prompt": ["a"] * 40, "completion": [1.5] * 40}, "`completion` is not text"),
    "turns": ("sft", {"messages": ["[]"] * 40}, "`messages` is not a list of messages"),
    "contents": (
        "sft",
        {"messages": [[{"role": "user", "content": 1}]] * 40},
        "the role or content of a message is not a text",
    ),
    "roles": (
        "sft",
        {"messages": [[{"role": 1, "content": "a"}]] * 40},
        "the role or content of a message is not a text",
    ),
    "labels": ("kto", {"prompt": ["a"] * 40, "completion": ["b"] * 40, "label": ["yes"] * 40}, "`label` is a text"),
    "rates": ("kto", {"prompt": ["a"] * 40, "completion": ["b"] * 40, "label": [1.0] * 40}, "`label` is a fraction"),
    "ids": ("sft", {"input_ids": ["1 2"] * 40}, "`input_ids` is not a list of token ids"),
    "fractions": ("sft", {"input_ids": [[1.0, 2.0]] * 40}, "`input_ids` is not a list of token ids"),
    "texts of ids": ("sft", {"input_ids": [["1", "2"]] * 40}, "`input_ids` is not a list of token ids"),
}


@pytest.mark.parametrize("place", ["rows.parquet", "d"])
@pytest.mark.parametrize("kind", WRONG)
def test_columns_of_a_wrong_type_are_refused(tmp_path: Path, kind: str, place: str) -> None:
    """The types are in the footer, so a check finds them without reading a row."""
    (tmp_path / "d").mkdir()
    method, columns, why = WRONG[kind]
    written(tmp_path / "d" if place == "d" else tmp_path, columns)
    found = checked(spec(f"method {method}", train=trained(f'qwen2.5-3b on "{place}"'), batch="gbs=8"), tmp_path)
    assert [why in one.message for one in found.problems if one.code == "XP554"] == [True]


def test_columns_of_no_shape_are_refused_and_named(tmp_path: Path) -> None:
    written(tmp_path, {"question": ["2?"], "reply": ["2."]})
    found = checked(spec(train=trained('qwen2.5-3b on "rows.parquet"')), tmp_path)
    (one,) = [one for one in found.problems if one.code == "XP124"]
    assert "question, reply" in (one.help or "")


def test_files_of_a_folder_are_counted_by_themselves_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for name, rows in (("a.parquet", 3), ("b.parquet", 5)):
        written(tmp_path / "d", {"text": ["x"] * rows}, name)
    (source,) = checked(spec(train=trained('qwen2.5-3b on "d"')), tmp_path).spec.data
    assert (source.shape, count(source)) == ("text", None)


@pytest.mark.parametrize(
    ("first", "second", "more"),
    [
        ({"text": ["a"], "id": [1]}, {"id": [1], "text": ["a"]}, None),
        ({"text": ["a"], "id": [1]}, {"text": ["a"]}, None),
        ({"text": ["a"]}, {"text": ["a"], "id": [1]}, "id"),
        ({"text": ["a"], "m": [{"b": {"c": [1]}}]}, {"text": ["a"], "m": [{"b": {"c": [1], "d": 2}}]}, "m.b.d"),
        ({"text": ["a"], "l": [[{"b": 1}]]}, {"text": ["a"], "l": [[]]}, None),
        ({"text": ["a"], "l": ["x"]}, {"text": ["a"], "l": [["x"]]}, "l[]"),
        ({"messages": [TURNS]}, {"messages": [[{**one, "name": "Ann"} for one in TURNS]]}, "messages[].name"),
    ],
)
def test_a_later_file_has_no_more_columns_than_the_first(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], more: str | None
) -> None:
    (tmp_path / "d").mkdir()
    written(tmp_path / "d", first, "a.parquet")
    written(tmp_path / "d", second, "b.parquet")
    found = checked(spec(train=trained('qwen2.5-3b on "d"')), tmp_path)
    messages = [one.message for one in found.problems if one.code == "XP579"]
    assert messages == (
        []
        if more is None
        else [f"`b.parquet` of `d` has the column or key `{more}`, and the first file, `a.parquet`, does not"]
    )


@pytest.mark.slow
def test_footers_of_every_kind_are_read_and_damaged_ones_refused(tmp_path: Path) -> None:
    whole = written(tmp_path, TABLES["messages"], compression="gzip", row_group_size=3, version="1.0")
    assert read(whole) == (["id", "messages", "score", "good"], 40)
    size = int.from_bytes(whole[-8:-4], "little")
    rng = random.Random(7)
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            data[-8 - rng.randrange(1, size)] = rng.randrange(256)
        read(bytes(data))
        footer(lambda size, data=bytes(data): data[-size:])
        data[-8 - size : -8] = rng.randbytes(size)
        assert problem(bytes(data[:4]), lambda size, data=bytes(data): data[-size:]) == "its footer cannot be read"
    assert problem(whole[:4], lambda size: whole[-size:]) is None
    for hostile in (b"", b"PAR1", b"\xff" * 64 + b"\x38\0\0\0PAR1", b"\x29\xf1" + b"\xff" * 9 + b"\x0b\0\0\0PAR1",
                    b"\x1c" * 99 + b"\x63\0\0\0PAR1", b"\0\0\0\x7fPAR1"):  # fmt: skip
        assert read(hostile) is None
        assert footer(lambda size, data=hostile: data[-size:]) is None


def test_a_damaged_file_of_a_folder_is_named(tmp_path: Path) -> None:
    """Each damaged Parquet file of a folder is reported. A pointer of Git LFS is not damaged: it is reported when its
    contents are needed.
    """
    whole = written(tmp_path, TABLES["messages"])
    size = int.from_bytes(whole[-8:-4], "little")
    (tmp_path / "d").mkdir()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12\n"
    for name, data in (
        ("a", whole), ("b", whole[:300]), ("c", whole[: -8 - size] + b"\xc9" * size + whole[-8:]),
        ("e", whole), ("f", pointer.encode()),
    ):  # fmt: skip
        (tmp_path / "d" / f"{name}.parquet").write_bytes(data)
    found = checked(spec(train=trained('qwen2.5-3b on "d"'), batch="gbs=8 micro=1"), tmp_path)
    assert [one.message for one in found.problems if one.code == "XP114" and "complete" in one.message] == [
        "`d/b.parquet` is not a complete Parquet file: it does not begin and end with PAR1",
        "`d/c.parquet` is not a complete Parquet file: its footer cannot be read",
    ]


@pytest.mark.parametrize("kind", [b"\x19", b"\x1c", b"\x19\x1c"])
def test_a_footer_of_values_within_values_without_end_is_none(kind: bytes) -> None:
    body = kind * 5000
    assert read(b"PAR1" + body + len(body).to_bytes(4, "little") + b"PAR1") is None


def test_a_launch_names_the_file_and_the_column_of_another_type(tmp_path: Path) -> None:
    named = [{**turn, "name": "Ann"} for turn in TURNS]
    written(tmp_path, {"messages": [TURNS] * 4}, "a.parquet")
    written(tmp_path, {"messages": [TURNS] * 4, "id": [1] * 4}, "b.parquet")
    written(tmp_path, {"messages": [named] * 4}, "c.parquet")
    first, wider, other = (str(tmp_path / f"{name}.parquet") for name in "abc")
    assert _other_type([first]) is None
    assert _other_type([wider, first]) is None
    assert str(_other_type([first, wider])).startswith("b.parquet has a column 'id', and a.parquet lacks it")
    found = str(_other_type([first, other]))
    assert "the column 'messages' of c.parquet is list<" in found
    assert "name: string" in found
    assert "that of a.parquet is list<" in found
