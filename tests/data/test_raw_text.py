"""Documents of .txt files: the compiler counts the same rows that the runtime reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from case_support import ROW, spec
from compile_support import checked, codes, compiled, put

from xpc.compiler.data.reader import read
from xpc.compiler.data.row_counts import trained
from xpc.compiler.data.rows import count

TEXTS = {
    "plain": "One.\nTwo.\n\nThree.\n",
    "blank": "\n\nOne.\n\n\n\nTwo.\nTwo.\n\n\n",
    "odd": "One.\n\n\nTwo.\n \n\nThree.",
    "windows": "One.\r\n\r\nTwo.\r\nTwo.\r\n",
    "empty": "",
    "marked": "\ufeffOne.\n\nTwo.\n",
}


@pytest.mark.parametrize(
    ("name", "paragraphs"),
    [
        ("plain", ["One.\nTwo.", "Three."]),
        ("blank", ["One.", "Two.\nTwo."]),
        ("odd", ["One.", "Two.\n ", "Three."]),
        ("windows", ["One.", "Two.\nTwo."]),
        ("empty", []),
        ("marked", ["One.", "Two."]),
    ],
)
def test_a_paragraph_ends_with_an_empty_line(name: str, paragraphs: list[str]) -> None:
    assert [row["text"] for row in read(TEXTS[name].encode(), "a.txt", "paragraph")] == paragraphs
    (whole,) = read(TEXTS[name].encode(), "a.txt", "file")
    assert whole["text"] == TEXTS[name].removeprefix("\ufeff").replace("\r\n", "\n")


@pytest.mark.slow
@pytest.mark.parametrize("documents", ["line", "paragraph", "file"])
@pytest.mark.parametrize("name", TEXTS)
def test_the_runtime_reads_the_same_documents(name: str, documents: str, tmp_path: Path) -> None:
    from run_features import read as read_bundle
    from runtime_bundles import plan, source, write

    from xpc.runtime.core import data_sources

    if name == "empty" and documents != "file":
        pytest.skip("XP530 refuses a file without rows")
    (tmp_path / "a.txt").write_bytes(TEXTS[name].encode())
    more = {} if documents == "line" else {"documents": documents}
    facts = plan("tiny", [source(str(tmp_path / "a.txt"), "text", **more)])
    bundle = read_bundle(write(str(tmp_path), facts))
    stored = [row["text"] for row in data_sources.load(bundle, facts["data"]["sources"][0])]
    assert stored == [row["text"] for row in read(TEXTS[name].encode(), "a.txt", documents)]


BOOKS = {"books/a.txt": TEXTS["plain"], "books/b.txt": TEXTS["blank"], "talk.jsonl": ROW}


@pytest.mark.parametrize(("documents", "rows"), [("", 14), ("documents = line", 14), ("documents = paragraph", 4),
                                                 ("documents = file", 2)])  # fmt: skip
def test_rows_of_a_folder_are_counted(documents: str, rows: int, tmp_path: Path) -> None:
    text = spec("data texts {", '  "books"', f"  {documents}", "}", train="qwen2.5-3b on texts for 1 epochs")
    found = checked(text, put(tmp_path, BOOKS))
    assert found.spec is not None
    assert count(found.spec.data[0]) == rows
    assert ("XP544" in codes(found)) == (not documents)


def test_empty_lines_are_not_reported_as_repeated_texts(tmp_path: Path) -> None:
    found = checked(
        spec(train='qwen2.5-3b on "a.txt" for 1 epochs'), put(tmp_path, {"a.txt": "One.\n\nTwo.\n\nOne.\n"})
    )
    messages = {one.code: one.message for one in found.problems}
    assert messages["XP533"].startswith("2 of the 5 rows of `a.txt` have an empty text")
    assert messages["XP535"].endswith(" repeats the text of an earlier row")


@pytest.mark.parametrize("line", ["documents = paragraph", "long = chunk"])
def test_settings_of_raw_text_are_for_raw_text(line: str, tmp_path: Path) -> None:
    text = spec("data talk {", '  "talk.jsonl"', f"  {line}", "}", train="qwen2.5-3b on talk for 1 epochs")
    assert "XP543" in codes(checked(text, put(tmp_path, BOOKS)), "error")


def test_pieces_are_not_counted_before_the_run(tmp_path: Path) -> None:
    text = spec("data texts {", '  "books"', "  long = chunk", "}", train="qwen2.5-3b on texts for 1 epochs")
    found = checked(text, put(tmp_path, BOOKS)).spec
    assert found is not None
    assert trained(found) is None
    files = compiled(text, str(tmp_path))
    data = json.loads(files["trainer_args.json"])["data"]
    assert (data["long"], data["sources"][0].get("documents")) == ("chunk", None)
    assert "trainer/features/rows/chunks.py" in files


def test_a_share_of_text_that_is_cut_away_is_not_rounded_up(tmp_path: Path) -> None:
    train = 'qwen2.5-3b on "rows.jsonl" for 3 epochs'
    files = {"rows.jsonl": json.dumps({"text": "word " * 1_000_000}) + "\n"}
    found = checked(spec(train=train), put(tmp_path, files)).problems
    assert "at least 99% of the text" in next(one.message for one in found if one.code == "XP197")
