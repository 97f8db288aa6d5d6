"""Rows of token ids: `xpc check` and the runtime find the same mistakes in them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from compile_support import checked, put

from xpc.compiler.data import row_shapes, rows, shapes
from xpc.compiler.spec.resources import DataSource
from xpc.grammar.diagnostic import Label
from xpc.grammar.source import Source, Span
from xpc.runtime.core.errors import RunError
from xpc.runtime.features.method import tokens

HERE = Label(Source("t.xp", ""), Span(0, 0))
CASES: tuple[tuple[dict[str, Any], list[int] | None], ...] = (
    ({"input_ids": [5, 6, 7]}, [5, 6, 7]),
    ({"input_ids": [5, 6, 7], "labels": [-100, 6, 7]}, [-100, 6, 7]),
    ({"input_ids": [5, 6, 7], "labels": [-100, 9, 7]}, [-100, 9, 7]),
    ({"input_ids": [5, 6, 7], "completion_mask": [0, 1, 1]}, [-100, 6, 7]),
    ({"input_ids": [5, 6, 7], "completion_mask": [0, 1, 1], "assistant_masks": [1, 1, 0]}, [-100, 6, -100]),
    ({"input_ids": [5, 6, 7], "labels": [5, 6, 7], "completion_mask": [0, 0, 1]}, [5, 6, 7]),
    ({"input_ids": [0, 5, 6, 0], "attention_mask": [0, 1, 1, 0]}, [5, 6]),
    ({"input_ids": [5, 6, 0], "labels": [-100, 6, 0], "attention_mask": [1, 1, 0]}, [-100, 6]),
    ({"input_ids": []}, []),
    ({"input_ids": [5, 6], "completion_mask": [False, True]}, [-100, 6]),
    ({"input_ids": [5, 6], "labels": [6]}, None),
    ({"input_ids": [5, 6], "labels": None}, None),
    ({"input_ids": [5, -1]}, None),
    ({"input_ids": [5, -100]}, None),
    ({"input_ids": [5, 2**31]}, None),
    ({"input_ids": [5, 2**31 - 1]}, [5, 2**31 - 1]),
    ({"input_ids": [5, 6], "labels": [5, 2**31]}, None),
    ({"input_ids": [5, 6], "labels": [5, -1]}, None),
    ({"input_ids": "red"}, None),
    ({"input_ids": [5, 6.5]}, None),
    ({"input_ids": [True, 6]}, None),
    ({"input_ids": [[5, 6]]}, None),
    ({"input_ids": [5, 6, 7], "attention_mask": [1, 0, 1]}, None),
    ({"input_ids": [5, 6], "completion_mask": [0, 2]}, None),
    ({"input_ids": None}, None),
)  # fmt: skip


def runs(row: dict[str, Any], column: str = "labels") -> dict[str, Any]:
    source = {
        "id": None,
        "path": "rows.jsonl",
        "shape": "tokens",
        "columns": ["input_ids"],
        "only": False,
        "tokens": column,
    }
    return tokens.to_row(source, row, 3)


@pytest.mark.parametrize(("row", "labels"), CASES)
def test_a_row_is_read_as_the_run_reads_it(row: dict[str, Any], labels: list[int] | None) -> None:
    wrong = row_shapes.checker("tokens", tuple(row))(row)
    if labels is None:
        assert wrong is not None
        with pytest.raises(RunError, match=r"rows\.jsonl, row 3"):
            runs(row)
        return
    assert wrong is None
    made = runs(row)
    assert made["labels"] == labels
    real = [one for one, mask in zip(row["input_ids"], row.get("attention_mask", [1] * 9), strict=False) if mask]
    assert made["input_ids"] == real
    learned = row_shapes.learned(row, len(row["input_ids"]))
    assert sum(learned) == sum(one != -100 for one in labels)
    if all(label in (-100, token) for label, token in zip(labels, real, strict=True)):
        assert runs(row, "completion_mask") == {
            "input_ids": real,
            "completion_mask": [int(one != -100) for one in labels],
        }
    else:
        with pytest.raises(RunError, match="cannot train on such labels"):
            runs(row, "completion_mask")


def test_masks_and_labels_are_those_of_the_runtime() -> None:
    assert set(shapes.TOKEN_MASKS) == set(tokens.MASKS)
    assert row_shapes.UNLEARNED == tokens.UNLEARNED


def surveyed(found: list[dict[str, Any]], *columns: str) -> Any:
    text = "".join(json.dumps(row) + "\n" for row in found)
    source = DataSource(None, "rows.jsonl", HERE, shape="tokens", columns=columns, content=text.encode())
    return rows.survey(source)


def test_the_survey_has_the_largest_id_and_the_kinds_of_labels() -> None:
    found = surveyed([
        {"ids": [5, 6], "targets": [-100, 6]}, {"ids": [5, 90], "targets": [5, 7]},
        {"ids": [5, 6], "targets": [-100, 6]}, {"ids": [5, 6], "targets": [-100, -100]},
    ], "ids", "targets")  # fmt: skip
    assert found.wrong is None
    assert found.largest == (90, 1)
    counts = {kind: (one.count, one.first) for kind, one in found.tallies.items()}
    assert counts == {"other_labels": (1, 1), "unlearned": (3, 0), "repeated": (1, 2), "empty_answer": (1, 3)}


HEAD = 'train qwen2.5-3b on "rows.jsonl" for 1 epoch with bf16 gbs=8 micro=1\nsave "out"\nhardware 1 x h100-80gb\n'


def codes(tmp_path: Any, rows: list[dict[str, Any]], *more: str) -> list[str]:
    put(str(tmp_path), {"rows.jsonl": "".join(json.dumps(row) + "\n" for row in rows)})
    found = checked("xpc 1\n" + HEAD + "\n".join(more), str(tmp_path))
    return [one.code for one in found.problems if one.severity == "error"]


def test_settings_for_texts_are_refused_for_tokens(tmp_path: Any) -> None:
    plain = [{"input_ids": [5, 6, location]} for location in range(40)]
    assert codes(tmp_path, plain) == []
    assert codes(tmp_path, plain, "method sft(assistant_only)") == ["XP504"]
    assert codes(tmp_path, plain, "method sft(completion_only)") == ["XP153"]
    assert codes(tmp_path, plain, "data(long=chunk)") == ["XP543"]
    assert codes(tmp_path, plain, "method dpo") == ["XP503"]
    assert codes(tmp_path, plain, "data(format=tokens, columns=[input_ids, labels])") == ["XP553"]
    assert codes(tmp_path, plain, "data(format=tokens, columns=[input_ids, a, b])") == ["XP124", "XP553"]
