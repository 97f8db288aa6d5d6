"""The runtime converts rows by their shape, renames speakers, and mixes sources. These tests need the datasets
library.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from late_imports import datasets
from run_features import read
from runtime_bundles import bundle_of, plan, source, write

from xpc.compiler.data.survey import survey
from xpc.runtime.core import data, data_sources, rows
from xpc.runtime.core.errors import RunError
from xpc.runtime.core.feature import Bundle
from xpc.runtime.features.rows import message_fields, mixture, prompts

pytestmark = pytest.mark.slow


def numbers(name: str, rows: int) -> object:
    return datasets.Dataset.from_dict({"id": [f"{name}{i}" for i in range(rows)]})


def test_the_mixture_is_the_published_one_row_for_row() -> None:
    a, b = numbers("a", 20), numbers("b", 10)
    train, held = mixture.mix([a, b], [{"take": {"fraction": 0.33}}, {"take": None}], 42, True, {"rows": 4})
    # does the same as get_dataset of alignment-handbook and open-r1
    part = a.shuffle(seed=42).select(range(int(20 * 0.33)))
    whole = datasets.concatenate_datasets([part, b]).shuffle(seed=42)
    expected = whole.train_test_split(test_size=4, seed=42)
    assert train["id"] == expected["train"]["id"]
    assert held["id"] == expected["test"]["id"]
    assert len(train) == 6 + 10 - 4


def test_one_part_keeps_the_order_of_its_file_unless_shuffled() -> None:
    part = numbers("a", 50)
    assert mixture.mix([part], [{}], 1, False, None)[0]["id"] == part["id"]
    shuffled = mixture.mix([part], [{}], 1, True, None)[0]["id"]
    assert shuffled == part.shuffle(seed=1)["id"]
    assert shuffled != part["id"]


def test_rows_are_taken_and_too_many_are_refused() -> None:
    assert len(mixture.mix([numbers("a", 9)], [{"take": {"rows": 5}}], 1, True, None)[0]) == 5
    with pytest.raises(RunError, match="asks for 10 rows of a source that has only 9"):
        mixture.mix([numbers("a", 9)], [{"take": {"rows": 10}}], 1, True, None)
    with pytest.raises(RunError, match="holdout asks for 9 rows"):
        mixture.mix([numbers("a", 9)], [{}], 1, True, {"rows": 9})


@pytest.mark.parametrize("holdout", [None, {"rows": 7}, {"fraction": 0.25}])
@pytest.mark.parametrize("seed", [0, 42])
def test_shares_rows_and_holdouts_are_the_published_ones(seed: int, holdout: dict[str, float] | None) -> None:
    parts = [numbers("a", 31), numbers("b", 17), numbers("c", 5)]
    plans = [{"take": {"fraction": 0.5}}, {"take": {"rows": 9}}, {"take": None}]
    train, held = mixture.mix(parts, plans, seed, True, holdout)
    kept = [parts[0].shuffle(seed=seed).select(range(15)), parts[1].shuffle(seed=seed).select(range(9)), parts[2]]
    whole = datasets.concatenate_datasets(kept).shuffle(seed=seed)
    if holdout is None:
        assert (train["id"][:], held) == (whole["id"][:], None)
        return
    split = whole.train_test_split(test_size=next(iter(holdout.values())), seed=seed)
    assert (train["id"][:], held["id"][:]) == (split["train"]["id"][:], split["test"]["id"][:])
    assert len(held) == (7 if "rows" in holdout else 8)


def test_without_shuffling_everything_stays_in_the_order_of_the_files() -> None:
    plans = [{"take": {"fraction": 0.5}}, {"take": {"rows": 2}}]
    train, held = mixture.mix([numbers("a", 6), numbers("b", 5)], plans, 1, False, {"rows": 2})
    assert (train["id"][:], held["id"][:]) == (["a0", "a1", "a2"], ["b0", "b1"])


def test_a_holdout_that_leaves_nothing_is_one_sentence() -> None:
    with pytest.raises(RunError, match=r"the holdout of 0\.9 cannot be taken from 1 rows"):
        mixture.mix([numbers("a", 1)], [{}], 1, True, {"fraction": 0.9})


def test_rows_of_different_kinds_are_reported() -> None:
    other = datasets.Dataset.from_dict({"id": [1, 2]})
    words = r"the column 'id' is Value\('string'\) in source 0 and Value\('int64'\) in source 1"
    with pytest.raises(RunError, match=f"rows of different kinds: {words}"):
        mixture.mix([numbers("a", 2), other], [{}, {}], 1, True, None)


def test_tools_of_different_types_become_text() -> None:
    tools: list[Any] = [[{"name": "add", "parameters": {"a": {}}}], [{"name": "now"}], json.dumps([{"name": "now"}])]
    parts = [datasets.Dataset.from_dict({"prompt": ["?"], "tools": [one]}) for one in tools]
    made = mixture.joined([*parts, datasets.Dataset.from_dict({"prompt": ["?"]})])
    assert [json.loads(one) for one in made["tools"][:3]] == [tools[0], tools[1], tools[1]]
    assert made["tools"][3] is None


CHAT = source("x", "conversations")


def test_from_value_turns_become_messages_with_the_system_prompt() -> None:
    row = {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]}
    assert prompts.to_row(CHAT, row, 0, system="Be kind.", text="text") == {
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "ho"},
        ]
    }


@pytest.mark.parametrize(("output", "role"), [
    ("human", "user"), ("user", "user"), ("gpt", "assistant"), ("assistant", "assistant"), ("chatgpt", "assistant"),
    ("model", "assistant"), ("bot", "assistant"), ("system", "system"), ("tool", "tool"), ("function", "tool"),
    ("observation", "tool"),
])  # fmt: skip
def test_every_speaker_has_the_role_of_a_template(output: str, role: str) -> None:
    made = prompts.to_row(CHAT, {"conversations": [{"from": output, "value": "hi"}]}, 0, text="text")
    assert made == {"messages": [{"role": role, "content": "hi"}]}


@pytest.mark.parametrize("words", [{"system": "Be kind."}, {"system_column": "rule"}])
def test_a_run_over_conversations_has_the_module_of_its_system_prompt(words: dict[str, str]) -> None:
    facts = plan("tiny", [CHAT])
    facts["data"].update(words)
    row = {"conversations": [{"from": "human", "value": "hi"}], "rule": "Be kind."}
    made = data.row_maker(bundle_of("/b", facts), CHAT, True)(row, 0)
    assert made["messages"] == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]
    assert bundle_of("/b", plan("tiny", [CHAT])).row_format() is rows.FORMAT


def test_a_system_turn_of_the_row_is_kept() -> None:
    row = {"conversations": [{"from": "system", "value": "own"}, {"from": "human", "value": "hi"}]}
    assert [m["content"] for m in prompts.to_row(CHAT, row, 0, system="ours", text="text")["messages"]] == [
        "own",
        "hi",
    ]


def test_an_unknown_speaker_is_named_with_its_row() -> None:
    with pytest.raises(RunError, match=r"x, row 17: 'narrator' is no known speaker"):
        prompts.to_row(CHAT, {"conversations": [{"from": "narrator", "value": ""}]}, 17, system=None, text="text")


def test_prompt_and_completion_are_renamed_and_the_context_is_appended() -> None:
    alpaca = source("x", "prompt_completion", columns=["instruction", "output"], context="input")
    row = {"instruction": "Add.", "input": "1 2", "output": "3"}
    assert prompts.to_row(alpaca, row, 0, system=None, text="text") == {"prompt": "Add.\n\n1 2", "completion": "3"}
    assert prompts.to_row(alpaca, {**row, "input": ""}, 0, system=None, text="text")["prompt"] == "Add."
    with pytest.raises(RunError, match="x, row 3: the input is int; it must be text"):
        prompts.to_row(alpaca, {**row, "input": 1}, 3, system=None, text="text")


def test_a_context_follows_the_prompt_of_every_shape() -> None:
    def as_row(shape: str, row: dict[str, object], **more: object) -> object:
        one = source("x", shape, context="about")
        return prompts.to_row(one, {**row, "about": "A."}, 0, method="dpo", **more)["prompt"]

    pair = {"prompt": "Who?", "chosen": " he", "rejected": " she"}
    assert as_row("preference", pair) == "Who?\n\nA."
    assert as_row("unpaired", {"prompt": "Who?", "completion": "he", "label": True}) == "Who?\n\nA."
    assert as_row("prompt", {"prompt": "Who?"}) == [{"role": "user", "content": "Who?\n\nA."}]
    with pytest.raises(RunError, match="the prompt must be a text, because the row has a context"):
        as_row("prompt", {"prompt": [{"role": "user", "content": "Who?"}]})


def test_the_input_of_alpaca_may_be_no_column() -> None:
    alpaca = source("x", "prompt_completion", columns=["instruction", "output"], context="input", wording="alpaca")
    data_sources.check_columns(prompts.FORMAT, alpaca, ["instruction", "output"])
    made = prompts.to_row(alpaca, {"instruction": "Greet {input}.", "output": "Hi"}, 0)
    assert made["prompt"].endswith("### Instruction:\nGreet {input}.\n\n### Response:\n")


def test_a_missing_column_is_reported_with_what_there_is() -> None:
    data_sources.check_columns(prompts.FORMAT, source("x"), ["messages"])
    with pytest.raises(RunError, match=r"^x has no column 'messages'; it has 'chat'$"):
        data_sources.check_columns(prompts.FORMAT, source("x"), ["chat"])


def bundle_with(tmp_path: Path, *sources: dict[str, object], **changes: object) -> Bundle:
    folder = tmp_path / "bundle"
    folder.mkdir()
    facts = plan("tiny", list(sources))
    facts["data"].update(changes)
    return read(write(str(folder), facts))


@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_turns_with_different_keys_are_turns_in_the_first_rows_and_in_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """A stream of a JSON array has no column types until it is read, and datasets stores turns with different keys as
    texts. The cache must be empty, because a cached array has its types.
    """
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    turns = [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "4", "weight": 0}]
    stored = [{"messages": turns, "id": number} for number in range(12)]
    text = json.dumps(stored) if ending == "json" else "".join(f"{json.dumps(one)}\n" for one in stored)
    (tmp_path / f"chat.{ending}").write_text(text)
    one = source(f"chat.{ending}", "messages")
    bundle = bundle_with(tmp_path, one)
    (first,) = data_sources.load(bundle, one, first=1)
    assert [turn["role"] for turn in first["messages"]] == ["user", "assistant"]
    assert first["messages"][1]["weight"] == 0
    stream = data_sources.reader(bundle, one, bundle.features)(bundle, one, "train", True)
    shuffled = stream.shuffle(seed=1, buffer_size=4).map(
        lambda row: {"roles": [turn["role"] for turn in row["messages"]]}
    )
    assert next(iter(shuffled))["roles"] == ["user", "assistant"]


def test_a_local_file_is_loaded_mapped_and_checked(tmp_path: Path) -> None:
    lines = [json.dumps({"conversations": [{"from": "human", "value": str(i)}], "id": i}) for i in range(10)]
    text = "\n".join(lines) + "\n"
    (tmp_path / "chat.jsonl").write_text(text)
    digest = sha256(text.encode()).hexdigest()
    bundle = bundle_with(tmp_path, source("chat.jsonl", "conversations", sha256=digest, slice="40%"))
    bundle.data["shuffle"] = False
    train, evaluation = data.build(bundle)
    assert train.column_names == ["messages"]
    assert [row["messages"][0]["content"] for row in train] == ["0", "1", "2", "3"]
    assert evaluation is None
    (tmp_path / "chat.jsonl").write_text(text + "\n")
    with pytest.raises(RunError, match="sha256 differs"):
        data.build(bundle)


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", "text\nhello\n"), ("a.txt", "hello\n"), ("a.json", '[{"text": "hello"}]')]
)
def test_other_kinds_of_files_and_folders_are_read(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / name).write_text(content)
    bundle = bundle_with(tmp_path, source("folder", "text"))
    assert data.build(bundle)[0]["text"][:] == ["hello"]


def test_a_folder_of_two_kinds_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/a.csv").write_text("")
    (tmp_path / "folder/b.txt").write_text("")
    with pytest.raises(RunError, match="must be of one kind"):
        data.build(bundle_with(tmp_path, source("folder", "text")))


def written(folder: Path, name: str, rows: list[dict[str, object]]) -> str:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def test_sources_of_both_shapes_join_with_their_tools(tmp_path: Path) -> None:
    talk = [{"content": "hi", "role": "user"}, {"content": "ho", "role": "assistant"}]
    first = written(tmp_path, "a.jsonl", [{"messages": talk, "tools": '[{"name": "f"}]', "id": 1}])
    turns = [{"from": "human", "value": "2?"}, {"from": "gpt", "value": "4"}]
    second = written(tmp_path, "b.jsonl", [{"conversations": turns}])
    bundle = bundle_with(tmp_path, source(first), source(second, "conversations"), shuffle=False)
    rows = data.build(bundle)[0]
    assert [row["messages"][1]["content"] for row in rows] == ["ho", "4"]
    carried = [message_fields.unpacked(row["messages"])[1] for row in rows]
    assert carried == [{"tools": [{"type": "function", "function": {"name": "f"}}]}, {}]


def test_tool_calls_of_the_older_form_are_read_as_those_of_today(tmp_path: Path) -> None:
    weather = {"name": "weather", "description": "Weather of a city", "parameters": {"type": "object"}}
    call = {"name": "weather", "arguments": '{"city": "Rome"}'}
    old: list[dict[str, object]] = [
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "weather", "content": "sun"},
    ]
    new: list[dict[str, object]] = [
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": call}]},
        {"role": "tool", "name": "weather", "content": "sun"},
    ]
    tools = [{"type": "function", "function": weather}]

    def built(folder: str, row: dict[str, object]) -> list[dict[str, object]]:
        (tmp_path / folder).mkdir()
        name = written(tmp_path / folder, "rows.jsonl", [row])
        return data.build(bundle_with(tmp_path / folder, source(name)))[0]["messages"][0]

    expected = built("new", {"messages": new, "tools": tools})
    for folder, functions in (("objects", [weather]), ("text", json.dumps([weather]))):
        found = built(folder, {"messages": old, "functions": functions})
        assert message_fields.unpacked(found) == message_fields.unpacked(expected)
    assert message_fields.unpacked(expected)[1] == {"tools": tools}
    (tmp_path / "old.jsonl").write_text(json.dumps({"messages": old, "functions": [weather]}) + "\n")
    surveyed = survey((tmp_path / "old.jsonl").read_bytes(), "old.jsonl", "messages", ("messages",))
    assert {"tools", "tool_calls", "tool"} <= set(surveyed.tallies)
    assert not {"empty_answer", "unanswered"} & set(surveyed.tallies)
    assert set(surveyed.roles) == {"user", "assistant", "tool"}


def test_a_slice_is_cut_before_anything_else(tmp_path: Path) -> None:
    name = written(tmp_path, "t.jsonl", [{"text": str(i)} for i in range(40)])
    bundle = bundle_with(tmp_path, source(name, "text", slice="25%", take={"rows": 4}))
    kept = datasets.Dataset.from_dict({"text": [str(i) for i in range(10)]}).shuffle(seed=42).select(range(4))
    assert data.build(bundle)[0]["text"][:] == kept.shuffle(seed=42)["text"][:]


def test_the_evaluation_split_is_the_other_file_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    written(tmp_path / "folder", "train.jsonl", [{"text": "a"}])
    written(tmp_path / "folder", "test.jsonl", [{"text": "b"}])
    bundle = bundle_with(tmp_path, source("folder", "text"), eval_split="test")
    train, evaluation = data.build(bundle)
    assert (train["text"][:], evaluation["text"][:]) == (["a"], ["b"])


PAIR = source("x", "prompt_completion")


@pytest.mark.parametrize(
    ("shape", "row", "words"),
    [
        (source("x", "text"), {"text": None}, "x, row 3: the text is null"),
        (PAIR, {"prompt": "2?", "completion": None}, "x, row 3: the completion is null"),
        (PAIR, {"prompt": "2?", "completion": [{"role": "assistant", "content": "4"}]}, "the completion is list"),
        (PAIR, {"prompt": None, "completion": "4"}, "x, row 3: the list of messages is empty or not a list"),
        (source("x"), {"messages": None}, "x, row 3: the list of messages is empty or not a list"),
        (source("x"), {"messages": [{"role": None, "content": "a"}]}, "x, row 3: a message needs a role"),
        (CHAT, {"conversations": [None]}, "x, row 3: None is no known speaker"),
    ],
)
def test_a_row_that_lacks_something_is_named(shape: dict[str, object], row: dict[str, object], words: str) -> None:
    with pytest.raises(RunError, match=words):
        prompts.to_row(shape, row, 3, system=None, text="text")


def test_an_empty_turn_is_empty_and_never_the_word_none() -> None:
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None}]
    assert prompts.to_row(source("x"), {"messages": turns}, 0, system=None, text="text")["messages"][1]["content"] == ""
    output = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": None}]
    assert prompts.to_row(CHAT, {"conversations": output}, 0, system=None, text="text")["messages"][1]["content"] == ""


def test_prompts_and_completions_of_both_kinds_are_converted() -> None:
    assert prompts.to_row(PAIR, {"prompt": "2?", "completion": " 4"}, 0, system="S", text="text") == {
        "prompt": "2?",
        "completion": " 4",
    }
    row = {"prompt": [{"role": "user", "content": "2?"}], "completion": [{"role": "assistant", "content": "4"}]}
    mapped = prompts.to_row(PAIR, row, 0, system="S", text="text")
    assert [turn["content"] for turn in (*mapped["prompt"], *mapped["completion"])] == ["S", "2?", "4"]
