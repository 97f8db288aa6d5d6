"""Before the first step, a run reports how many tokens and rows are lost. If no row is left, or no token with a loss,
the run stops.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from late_imports import datasets
from runtime_bundles import bundle_of, plan, source

from xpc.compiler.language.methods import METHODS
from xpc.compiler.lower.method import method_facts
from xpc.runtime.core import truncation
from xpc.runtime.core.errors import RunError
from xpc.runtime.features.rows import local_sources
from xpc.runtime.features.rows.loss_mask import LossMask
from xpc.runtime.features.rows.orpo_counts import OrpoCounts
from xpc.runtime.features.rows.packing import Packing
from xpc.runtime.features.rows.pair_counts import PairCounts

pytestmark = pytest.mark.slow


def prepared(lengths: list[int], most: int | None, method: str = "sft", **arguments: Any) -> tuple[Any, Any, Any]:
    """Return a bundle, its counts, and its rows. Like TRL, it tokenizes the rows with one call of `map`, and truncates
    them with a second one."""
    facts = plan("tiny", [source("d.jsonl")])
    facts["method"] = method_facts(METHODS[method])
    facts["arguments"].update(max_length=most, **arguments)
    bundle = bundle_of("/b", facts)
    counts = OrpoCounts() if method == "orpo" else PairCounts()
    bundle.features = (counts, *([Packing()] if arguments.get("packing") else []), LossMask())
    rows = datasets.Dataset.from_dict({"text": ["x" * length for length in lengths]})
    with truncation.watching(bundle) as found:
        made = rows.map(lambda row: {"input_ids": [1] * len(row["text"])})
        cut = made.map(lambda row: {"input_ids": row["input_ids"][:most]})
    return bundle, found, cut


def test_tokens_are_counted_before_they_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    bundle, found, rows = prepared([2, 9, 0, 5], 4)
    truncation.settle(bundle, found, 4, rows)
    omitted = capsys.readouterr().out
    assert "2 of 4 rows have more than seq = 4 tokens (the longest 9): 6 of 16 tokens are cut off" in omitted
    assert "1 of 4 rows have no tokens" in omitted
    assert found.facts() == {
        "rows": 4, "tokens": 16, "cut_rows": 2, "cut_tokens": 6, "left_out": 0, "unlearned": 0, "empty": 1,
    }  # fmt: skip


@pytest.mark.parametrize(("column", "masked"), [("completion_mask", 0), ("assistant_masks", 0), ("labels", -100)])
def test_an_evaluation_set_without_a_learned_token_stops_the_run(column: str, masked: int) -> None:
    """Before TRL 1, trainers keep such rows, and eval_loss would be nan."""
    bundle = bundle_of("/b", plan("tiny", [source("d.jsonl")]))
    sets = {name: datasets.Dataset.from_dict({column: [[masked, one]] * 3}) for name, one in (("a", 7), ("b", masked))}
    LossMask().trainer_made(bundle, SimpleNamespace(eval_dataset=sets["a"]), None)
    for found, where in ((sets, " in b:"), (sets["b"], ":")):
        with pytest.raises(RunError, match=f"nothing is left to evaluate{where}"):
            LossMask().trainer_made(bundle, SimpleNamespace(eval_dataset=found), None)


@pytest.mark.parametrize(("begin", "tokens"), [(None, 12), (7, 14)])
def test_kto_adds_tokens_after_it_has_tokenized(begin: int | None, tokens: int) -> None:
    """KTO of trl before 1.0 adds a begin token to a prompt and an end token to an answer, unless they are there."""
    bundle = bundle_of("/b", plan("tiny", [source("d.jsonl")]))
    bundle.features = (PairCounts(),)
    columns = {"prompt_input_ids": [[7, 3], [3], [4, 4]], "answer_input_ids": [[5, 9], [5], [5, 5]]}
    tokenizer = SimpleNamespace(bos_token_id=begin, eos_token_id=9)
    rows = datasets.Dataset.from_dict({"prompt": ["a", "b", "c"]})
    with truncation.watching(bundle) as found:
        rows.map(lambda batch, tokenizer: columns, batched=True, fn_kwargs={"tokenizer": tokenizer})
    counted = found.facts()
    assert counted is not None
    assert (counted["rows"], counted["tokens"]) == (3, tokens)


def test_what_is_not_cut_is_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    for most, more in ((9, {}), (None, {}), (4, {"packing": True, "packing_strategy": "wrapped"})):
        bundle, found, rows = prepared([2, 9], most, **more)
        truncation.settle(bundle, found, 2, rows)
    assert capsys.readouterr().out == ""


def test_rows_that_the_trainer_leaves_out_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    bundle, found, rows = prepared([2, 9], 4)
    truncation.settle(bundle, found, 2, rows.select([0]))
    assert "1 of 2 rows are left out by the trainer" in capsys.readouterr().out


def test_nothing_left_is_an_error() -> None:
    bundle, found, rows = prepared([8, 9], 4)
    with pytest.raises(RunError, match=r"none of 2 rows has anything to learn within seq = 4 tokens .*8 to 9 tokens"):
        truncation.settle(bundle, found, 2, rows.select([]))
    masked = rows.add_column("completion_mask", [[0, 0, 0, 0], [0, 0, 0, 0]])
    with pytest.raises(RunError, match="nothing is left to train on"):
        truncation.settle(bundle, found, 2, masked)
    half = rows.add_column("completion_mask", [[0, 0, 0, 1], [0, 0, 0, 0]])
    truncation.settle(bundle, found, 2, half)
    assert found.unlearned == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [(b'{"text": "caf\xe9"}', "row 1 (line 3) has the byte 0xE9"), (b'{"text": ', "row 1 (line 3) is not JSON"),
     (b"7", "row 1 (line 3) is not an object"), (b"{}", None)],
)  # fmt: skip
def test_the_first_wrong_line_is_named(tmp_path: Path, line: bytes, words: str | None) -> None:
    location = tmp_path / "rows.jsonl"
    location.write_bytes(b'{"text": "a"}\n\n' + line + b"\n")
    found = local_sources._first_wrong(str(location))
    assert found is None if words is None else found is not None and words in found
