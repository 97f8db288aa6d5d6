"""Convert Alpaca rows that have earlier turns in a column of their own (`history`) to conversations.

Source: LLaMA-Factory 0.9.5, data/converter.py (`AlpacaDatasetConverter`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

from xpc.compiler.data.reader import read
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.llamafactory import images
from xpc.compiler.importing.llamafactory.sets import About, table
from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.text.entries import Entry

TAGS = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}


def converted(draft: Draft, entry: Entry, folder: str, about: About, overrides: Overrides) -> tuple[About, str]:
    """Write the rows of a local file as conversations to a file next to the spec. Returns the entry of this file in
    dataset_info.json, and its folder. Rows that cannot be read or converted are not changed.

    If no row has earlier turns, the rows stay where they are, and the entry loses its column `history`.
    """
    columns, path = table(about, "columns"), posixpath.join(folder, str(about.get("file_name", "")))
    instructions = about.get("formatting", "alpaca") == "alpaca" and not images.reads_images(draft)
    data = overrides.read(path) if "history" in columns and instructions else None
    try:
        rows = list(read(data or b"", path))
        if rows and not any(row.get(columns["history"]) for row in rows):  # type: ignore[union-attr]
            return {**about, "columns": {key: one for key, one in columns.items() if key != "history"}}, folder
        talks = list(_conversations(rows, columns, about.get("ranking") is True))  # type: ignore[arg-type]
    except (AttributeError, TypeError, ValueError):  # a row of which the reader or LLaMA-Factory would report an error
        talks = []
    if not talks:
        return about, folder
    name = draft.write_rows(talks)
    draft.warn(entry, f"`{name}` has the rows of `{path}` as conversations, which a spec reads with earlier turns")
    return {"formatting": "sharegpt", "ranking": about.get("ranking"), "file_name": name, "tags": TAGS,
            "columns": {key: key for key in talks[0]}, "alternates": True}, ""  # fmt: skip


def _conversations(
    rows: list[Mapping[str, object]], columns: Mapping[str, str], ranking: bool
) -> Iterator[dict[str, object]]:
    """Convert each row. Rows without an answer are omitted, because LLaMA-Factory drops them. Raises TypeError and
    ValueError for rows that LLaMA-Factory cannot read.
    """
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
            talk = {"messages": turns, **dict(zip(names, answers))} if ranking else {"messages": turns + answers}
            yield talk | {key: value[key] for key in ("kto_tag", "system") if key in columns}
