"""Convert Alpaca rows that have earlier turns in a column of their own (`history`) to conversations.

Source: LLaMA-Factory 0.9.5, data/converter.py (`AlpacaDatasetConverter`).
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.llamafactory import images
from xpc.compiler.importing.llamafactory.sets import About, table
from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.rows_file import write_rows
from xpc.compiler.importing.text.entries import Entry

Row = dict[str, object]
TAGS = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}


def converted(draft: Draft, entry: Entry, folder: str, about: About, overrides: Overrides) -> tuple[About, str]:
    """Write the rows of a local file as conversations to a file next to the spec. Returns the entry of this file in
    dataset_info.json, and its folder.

    If no row has earlier turns, the rows stay where they are, and only the column `history` is removed from the entry.
    Rows that cannot be read or converted are not changed.
    """
    columns, file = table(about, "columns"), about.get("file_name")
    instructions = about.get("formatting", "alpaca") == "alpaca" and not images.reads_images(draft)
    if "history" not in columns or not isinstance(file, str) or not instructions:
        return about, folder
    path = posixpath.join(folder, file)
    try:
        rows = _rows((overrides.read(path) or b"").decode("utf-8-sig"))
        if rows and not any(row.get(columns["history"]) for row in rows):
            return {**about, "columns": {key: one for key, one in columns.items() if key != "history"}}, folder
        talks = list(_conversations(rows, columns, about.get("ranking") is True))
        name = write_rows(draft, talks) if talks else ""
    except (ValueError, TypeError, AttributeError, RecursionError):
        return about, folder
    if not talks:
        return about, folder
    draft.warn(entry, f"`{name}` has the rows of `{path}` as conversations, because a spec reads earlier turns only in "
               "conversations")  # fmt: skip
    return {"formatting": "sharegpt", "ranking": about.get("ranking"), "file_name": name, "tags": TAGS,
            "columns": {key: key for key in talks[0]}, "alternates": True}, ""  # fmt: skip


def _rows(text: str) -> list[Row]:
    """The rows of a JSON or JSONL file. Raises ValueError for any other text."""
    if text.lstrip().startswith("["):
        return list(json.loads(text))
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def _conversations(rows: list[Row], columns: Mapping[str, str], ranking: bool) -> Iterator[Row]:
    """Convert each row. Rows without an answer are omitted, because LLaMA-Factory drops them. Raises ValueError and
    TypeError for rows that LLaMA-Factory cannot read.
    """
    kept = [key for key in ("kto_tag", "system") if key in columns]
    for row in rows:
        value = {key: row.get(column) for key, column in columns.items()}
        earlier = value["history"] if isinstance(value["history"], list) else []
        texts = [text for question, answer in earlier for text in (question, answer)]
        texts.append("\n".join(one for key in ("prompt", "query") if (one := value.get(key))))  # type: ignore[misc]
        if not all(isinstance(one, str) for one in texts):
            raise TypeError
        turns = [{"role": ("user", "assistant")[number % 2], "content": one} for number, one in enumerate(texts)]
        names = ("chosen", "rejected") if ranking else ("response",)
        answers = [{"role": "assistant", "content": value.get(name)} for name in names]
        if all(isinstance(one["content"], str) for one in answers) and isinstance(value.get("kto_tag", True), bool):
            talk: Row = {"messages": turns, **dict(zip(names, answers))} if ranking else {"messages": turns + answers}
            yield talk | {key: value[key] for key in kept}
