"""The key tables are well-formed. The settings and arguments that they name exist, and no row is superfluous."""

from __future__ import annotations

import glob
import os

import pytest
from import_support import REPOSITORY, convert

from xpc.compiler import stacks
from xpc.compiler.importing import keys
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.schema import BY_PATH, CLAUSES, TABLE

FOLDER = os.path.join(REPOSITORY, "compiler", "importing")
NAMES = sorted(os.path.relpath(one, FOLDER) for one in glob.glob(os.path.join(FOLDER, "**", "*.toml"), recursive=True))
DATA = ["accelerate/deepspeed_files.toml", "axolotl/prompts.toml", "llamafactory/dataset_info.toml",
        "torchtune/datasets.toml", "trl/hub_owners.toml"]  # fmt: skip
"""The TOML files of the importers that are not key tables."""
TABLES = [one for one in NAMES if one not in DATA]
BARE = {
    "trl": "model_name_or_path: a/b\ndataset_name: a/b\n", "axolotl": "base_model: a/b\n",
    "llamafactory": "model_name_or_path: a/b\n",
    "torchtune": "optimizer:\n  _component_: torch.optim.AdamW\n",
}  # fmt: skip
ARGUMENTS = {
    name
    for target in stacks.names()
    for stack in [stacks.load(target)]
    if stack is not None
    for method in METHODS
    if stack.refused(method) is None
    for name in stack.fields(stack.config(method))
} | {argument for row in TABLE for argument in row.args}
"""Every argument of a class of TRL on any of the stacks, and every argument that the schema names."""


def test_the_tables_are_found() -> None:
    assert {*DATA} < {*NAMES}
    assert len(TABLES) == 8


@pytest.mark.parametrize("name", TABLES)
def test_a_table_names_settings_and_values_that_exist(name: str) -> None:
    table = keys.load(name)
    assert table
    for key, row in table.items():
        for path in filter(None, (row.setting,)):
            assert path in BY_PATH, (key, path)
            choices = BY_PATH[path].choices
            assert not choices or {*row.values.values()} <= {*choices, "auto"}, key
        assert not row.read or row.read.partition(".")[0].partition(" ")[0] in CLAUSES, key
        needed = row.needs.partition(":")[0]
        assert not needed or needed in table or needed in ARGUMENTS or needed.startswith(("use_", "add_", "rl")) or (
            needed in ("adapter_name_or_path", "ref_model", "pref_loss", "reward_model")
        ), (key, needed)  # fmt: skip
        assert row.help == "" or row.refused, key


@pytest.mark.parametrize("source", ["axolotl", "llamafactory", "trl"])
def test_a_renamed_key_becomes_an_argument_of_trl(source: str) -> None:
    renamed = keys.load(f"{source}/keys.toml").column("renamed")
    older = {"rpo_alpha", "context_parallel_size", "max_completion_length"}
    assert {*renamed.values()} <= ARGUMENTS | older | {"model_name_or_path"}


MORE = {
    "trl": ["use_peft: true\n", "dataset_mixer: {a/b: 1.0}\n", "dataset_mixture: {datasets: [{id: a/b}]}\n"],
    "axolotl": ["adapter: qlora\nload_in_4bit: true\n", "rl: dpo\nhub_model_id: a/b\n", "rl: grpo\nfsdp: full_shard\n"],
    "llamafactory": ["stage: pt\n", "stage: dpo\ndataset: dpo_en_demo\n", "finetuning_type: freeze\nval_size: 0.1\n"],
}  # fmt: skip
"""Lines that make a reader look up more keys than for a minimal file."""


@pytest.mark.parametrize("source", MORE)
def test_the_keys_that_are_looked_up_under_a_condition_have_rows_and_no_others(source: str) -> None:
    """An importer looks up some keys only under a condition, such as another key of the file. Each such key needs a row
    in the table. Without the row, the import would refuse a file that has the key but does not meet the condition, as
    if the tool did not know the key.
    """
    drafts = {text: convert(BARE[source] + text, "--from", source)[0] for text in ("", *MORE[source])}
    every = set().union(*(one.seen for one in drafts.values()))
    table = keys.load(f"{source}/keys.toml")
    for text, draft in drafts.items():
        missing = every - draft.seen - {*table, *table.column("renamed").values()} - ARGUMENTS
        assert not missing, (text, missing)
    always = every.intersection(*(one.seen for one in drafts.values()))
    read = {key for key, row in table.items() if row.read and not row.needs}
    assert not read & always - ARGUMENTS - {"attn_implementation", "context_parallel_size"}


def test_lookups_record_names_that_the_file_does_not_have() -> None:
    draft, _ = convert(BARE["axolotl"], "--from", "axolotl")
    assert {"sample_packing", "lora_target_linear", "rl_beta"} <= draft.seen


def test_a_key_that_no_reader_looked_up_is_an_error() -> None:
    draft, _ = convert(BARE["llamafactory"] + "no_such_key: 1\ncutoff_length: 8\n", "--from", "llamafactory")
    texts = [f"{one.text} {one.help}" for one in draft.messages if one.severity == "error"]
    assert any("no_such_key" in one for one in texts)
    assert any("did you mean `cutoff_len`?" in one for one in texts)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("irrelevant", "is not a table of columns"),
        ({"irelevant": "a reason"}, "has no such column as `irelevant`"),
        ({"irrelevant": True}, "`irrelevant` takes a str, not True"),
        ({"usual": 1, "irrelevant": "a reason"}, "`usual` takes a list, not 1"),
        ({"needs": "use_galore"}, "does not say how the key is handled: it needs one of setting,"),
        ({"usual": [1], "refused": "a reason"}, "has `usual` and no `irrelevant`"),
    ],
)
def test_a_malformed_row_is_an_error_that_names_its_place(row: object, problem: str) -> None:
    with pytest.raises(keys.MalformedTable, match=r"some\.toml: `key`") as caught:
        keys.table({"key": row}, "some.toml")
    assert problem in str(caught.value)


def test_keys_with_the_same_reason_share_a_line() -> None:
    rows = keys.table({"one": {"irrelevant": "a"}, "irrelevant": {"b": ["two", "x.three"]}}, "some.toml")
    assert rows.column("irrelevant") == {"one": "a", "two": "b", "x.three": "b"}
    assert rows.block("x").column("irrelevant") == {"three": "b"}


@pytest.mark.parametrize(
    ("value", "usual"), [(True, True), ("true", True), ("0.5", True), (0.5, True), ("std", True), ("other", False)]
)
def test_texts_of_a_command_line_are_compared_as_what_they_spell(value: object, usual: bool) -> None:
    from xpc.compiler.importing.text.entries import Entry

    row = keys.table({"key": {"usual": [True, 0.5, "std"], "irrelevant": "a reason"}}, "some.toml")["key"]
    assert keys.is_usual(row, Entry("key", value, "f", 1)) is usual
