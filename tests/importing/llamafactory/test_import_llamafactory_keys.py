"""The import knows every field of LLaMA-Factory's classes, even a field of which it can import only one value."""

from __future__ import annotations

import json
from pathlib import Path

import oracle_support
import pytest
from import_support import FACTORY, HARDWARE, Imported, imported
from jinja2 import Environment

from xpc.compiler.importing.llamafactory.keys import KEYS
from xpc.compiler.importing.llamafactory.templates import llamafactory_template, templates
from xpc.compiler.importing.trl import reader as trlyaml

DERIVED = {"block_diag_attn", "compute_dtype", "deepspeed_plugin", "fsdp_plugin_args", "use_ray", "use_ref_model"}
"""Fields of LLaMA-Factory's classes that no file can set, because LLaMA-Factory itself computes them."""


def test_every_field_of_the_tools_classes_is_known() -> None:
    drafts = [imported(FACTORY.replace("stage: sft", f"stage: {stage}"), *HARDWARE).draft for stage in ("sft", "dpo")]
    known = {*KEYS}.union(*map(trlyaml.known, drafts))
    fields = {name for one in oracle_support.records("llamafactory")[0]["defaults"].values() for name in one}
    assert fields - known == DERIVED


@pytest.mark.slow
def test_a_key_at_its_own_value_changes_nothing_and_another_is_refused() -> None:
    fixed = {key: row for key, row in KEYS.items() if row.usual is not None}
    assert len(fixed) > 15
    for key, row in fixed.items():
        for value in row.usual or ():
            found = imported(
                FACTORY + f"{key}: {str(value).lower() if isinstance(value, bool) else value}\n", *HARDWARE
            )
            assert not found.errors
            assert found.outcomes[key] == "irrelevant", key
        if row.refused and not row.needs:
            assert imported(FACTORY + f"{key}: something else\n", *HARDWARE).draft.wrong, key
        elif row.needs:
            assert imported(FACTORY + f"{key}: something else\n", *HARDWARE).outcomes[key] == "irrelevant", key
            on = "[<a>]" if row.needs == "add_special_tokens" else "true"
            read = f"{FACTORY}{row.needs}: {on}\n"
            if row.needs.startswith("stage: dpo"):
                read = FACTORY.replace("stage: sft", "stage: dpo")
            assert imported(f"{read}{key}: something else\n", *HARDWARE).draft.wrong, key


@pytest.mark.parametrize("stage", ["sft", "pt", "rm", "dpo", "kto"])
@pytest.mark.parametrize(("more", "readers"), [
    ("pref_beta: 0.2", "dpo kto"), ("pref_ftx: 0.2", "dpo kto"), ("pref_bco_weight: 0.5", "dpo"),
    ("dpo_label_smoothing: 0.1", "dpo"), ("kto_chosen_weight: 2.0", "kto"), ("kto_rejected_weight: 2.0", "kto"),
    ("use_dft_loss: true", "sft"),
])  # fmt: skip
def test_a_key_of_another_stage_has_no_effect(stage: str, more: str, readers: str) -> None:
    """Source: LLaMA-Factory 0.9.5, the `trainer.py` of each stage."""
    found = imported(f"{FACTORY}{more}\n".replace("stage: sft", f"stage: {stage}"), *HARDWARE)
    outcome = found.outcomes[more.partition(":")[0]]
    assert (outcome == "irrelevant") == (stage not in readers.split()), found.messages


@pytest.mark.parametrize(
    ("more", "length", "output"),
    [
        ("packing: true\n", 2047, True),
        ("packing: true\nflash_attn: fa2\nper_device_train_batch_size: 1\n", 2047, False),
        ("packing: true\nflash_attn: fa2\nper_device_train_batch_size: 2\n", 2047, True),
        ("neat_packing: true\n", 2047, False),
        ("neat_packing: true\ncutoff_len: 1000\n", 999, False),
        ("packing: false\n", 2048, False),
    ],
)
def test_packed_rows_are_a_token_shorter_and_attend_to_each_other(more: str, length: int, output: bool) -> None:
    """LLaMA-Factory makes packed rows one token shorter (`data_args.py`). Without `neat_packing`, a text in a pack
    attends to the earlier texts of the pack. Flash attention with a micro-batch of one is an exception: it finds the
    starts of the texts from the position ids, and keeps them apart.
    """
    found = imported(FACTORY + more, *HARDWARE)
    assert found.arguments["max_length"] == length
    assert ("packing" in found.draft.differences) is output
    assert not output or "sample_packing" not in found.draft.differences


def test_the_balance_of_experts_is_the_trainers() -> None:
    more = "moe_aux_loss_coef: 0.01\n"
    found = imported(FACTORY.replace("Qwen2.5-7B-Instruct", "Qwen3-30B-A3B") + more, *HARDWARE)
    assert found.arguments["router_aux_loss_coef"] == 0.01
    assert imported(FACTORY + more, *HARDWARE).outcomes["moe_aux_loss_coef"] == "irrelevant"


def test_unsloths_kernels_are_a_difference() -> None:
    found = imported(FACTORY + "use_unsloth: true\n", *HARDWARE)
    assert not found.errors
    assert "use_unsloth" in found.draft.differences


@pytest.mark.slow
def test_a_template_writes_and_marks_what_the_tools_own_does() -> None:
    """Each chat template that an import writes renders a conversation exactly as LLaMA-Factory's template does. In the
    expected texts, {+ and +} enclose the parts that are trained on.
    """
    head, *records = oracle_support.lines("llamafactory_templates")
    assert {one["template"] for one in records} == {names[0] for names in _alike()}, "make oracles"
    for one in records:
        words = templates()[one["template"]].thought or ("<think>\n", "\n</think>\n\n")
        output = ("Be brief.", "One?", "It's 1.", "Two?", f"{words[0]}I see.{words[1]}2.")
        roles = ("system", "user", "assistant", "user", "assistant")
        body = llamafactory_template(one["template"], one["thinks"], one["last"])
        assert body is not None
        marked = body.replace("{%- generation -%}", "{{- '{+' -}}").replace("{%- endgeneration -%}", "{{- '+}' -}}")
        messages = [{"role": role, "content": text} for role, text in zip(roles, output, strict=True)]
        text = Environment().from_string(marked).render(messages=messages, bos_token="{bos}", eos_token="{eos}")
        assert text.replace("+}{+", "") == one["text"], (head, one)


def _alike() -> list[list[str]]:
    """Groups of templates with different names and equal contents."""
    found: dict[object, list[str]] = {}
    for name, pieces in templates().items():
        found.setdefault(pieces, []).append(name)
    return list(found.values())


def test_template_that_ends_only_the_conversation_reports_a_difference() -> None:
    found = imported(FACTORY.replace("template: qwen", "template: glm4"), *HARDWARE)
    assert not found.errors
    assert "only at the end of the conversation" in found.draft.differences["template"]
    assert (
        "template" not in imported(FACTORY.replace("template: qwen", "template: cohere"), *HARDWARE).draft.differences
    )


def test_the_loss_is_on_completions_of_alpaca_rows_and_on_answers_of_conversations() -> None:
    for name, setting in (("alpaca_en_demo", "completion_only"), ("glaive_toolcall_en_demo", "assistant_only")):
        text = FACTORY.replace("alpaca_en_demo", name)
        assert f"  {setting}\n" in imported(text, *HARDWARE).text
        assert imported(text + "train_on_prompt: true\n", *HARDWARE).arguments[f"{setting}_loss"] is False


def test_another_quantization_than_bitsandbytes_is_refused() -> None:
    text = FACTORY + "quantization_bit: 4\n"
    assert not imported(text, *HARDWARE).draft.wrong
    assert imported(text + "quantization_method: bnb\n", *HARDWARE).outcomes["quantization_method"] == "irrelevant"
    messages = imported(text + "quantization_method: hqq\n", *HARDWARE).messages
    assert 'error: recipe.yaml:10 `quantization_method: "hqq"`: a bundle quantizes by bitsandbytes' in messages


def test_dataset_info_next_to_the_file_is_read_if_the_folder_data_has_none(tmp_path: Path) -> None:
    entry = {"file_name": "a.json", "formatting": "sharegpt", "columns": {"messages": "messages", "images": "images"}}
    (tmp_path / "dataset_info.json").write_text(json.dumps({"shown": entry}))
    found = imported(FACTORY.replace("alpaca_en_demo", "shown"), *HARDWARE, root=str(tmp_path))
    assert any("has a column of images" in one for one in found.messages), found.messages
    del entry["columns"]["images"]
    (tmp_path / "dataset_info.json").write_text(json.dumps({"shown": entry}))
    found = imported(FACTORY.replace("alpaca_en_demo", "shown"), *HARDWARE, root=str(tmp_path))
    assert '"./a.json"' in found.text
    assert any("the one next to the imported file does" in one for one in found.messages)


def test_dataset_that_dataset_info_lacks_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "dataset_info.json").write_text(json.dumps({"custom_rows": {"file_name": "a.json"}}))
    found = imported(FACTORY.replace("alpaca_en_demo", "custom/rows"), *HARDWARE, root=str(tmp_path))
    assert found.draft.wrong
    assert not found.draft.sources
    assert "did you mean `custom_rows`?" in [one.help for one in found.draft.messages]
    assert not imported(FACTORY.replace("alpaca_en_demo", "custom_rows"), *HARDWARE, root=str(tmp_path)).draft.wrong


ANSWERED = {"instruction": "And 3?", "input": "", "output": "9"}
EARLIER = {**ANSWERED, "history": [["2 squared?", "4"]]}


def _with_history(folder: Path, rows: list[object] | None, more: str = "", ending: str = "json") -> Imported:
    columns = {"prompt": "instruction", "query": "input", "response": "output", "history": "history"}
    (folder / "data").mkdir()
    about = {"talks": {"file_name": f"rows.{ending}", "columns": columns}}
    (folder / "data" / "dataset_info.json").write_text(json.dumps(about))
    if rows is not None:
        text = json.dumps(rows) if ending == "json" else "".join(json.dumps(one) + "\n" for one in rows)
        (folder / "data" / f"rows.{ending}").write_text(text)
    return imported(FACTORY.replace("alpaca_en_demo", "talks") + more, *HARDWARE, root=str(folder))


@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_earlier_turns_become_conversations_in_a_file_next_to_the_spec(ending: str, tmp_path: Path) -> None:
    found = _with_history(tmp_path, [EARLIER, ANSWERED, {**EARLIER, "output": None}], ending=ending)
    assert not found.draft.wrong, found.messages
    assert 'on "recipe.rows.jsonl"' in found.text
    rows = [json.loads(line) for line in found.draft.files["recipe.rows.jsonl"].splitlines()]
    assert [[turn["content"] for turn in row["messages"]] for row in rows] == [
        ["2 squared?", "4", "And 3?", "9"], ["And 3?", "9"],
    ]  # fmt: skip
    assert rows[0]["messages"][1]["role"] == "assistant"
    assert "formatting" not in found.draft.differences


def test_rows_without_earlier_turns_are_read_where_they_are(tmp_path: Path) -> None:
    found = _with_history(tmp_path, [{**ANSWERED, "history": []}])
    assert not found.draft.wrong, found.messages
    assert 'on "data/rows.json"' in found.text
    assert "recipe.rows.jsonl" not in found.draft.files


def test_earlier_turns_of_rows_for_evaluation_become_conversations(tmp_path: Path) -> None:
    found = _with_history(tmp_path, [EARLIER], "eval_dataset: talks\neval_strategy: epoch\n")
    assert not found.draft.wrong, found.messages
    assert 'data = "recipe.rows.jsonl"' in found.text


@pytest.mark.parametrize("rows", [
    None, [], ["text"], [{**EARLIER, "history": [["one text"]]}], [{**EARLIER, "history": [["2 squared?", None]]}],
    [{**EARLIER, "instruction": 3}], [{**EARLIER, "output": None}], [{**EARLIER, "output": "\ud800"}],
])  # fmt: skip
def test_earlier_turns_that_cannot_be_converted_are_an_error(rows: list[object] | None, tmp_path: Path) -> None:
    found = _with_history(tmp_path, rows)
    assert "recipe.rows.jsonl" not in found.draft.files
    assert any("has a column of earlier turns" in one for one in found.messages), found.messages


@pytest.mark.parametrize(("value", "attention"), [("true", "flash2"), ("false", None), ("fa2", "flash2"), ("fast", "")])
def test_older_switch_for_flash_attention_becomes_a_setting(value: str, attention: str | None) -> None:
    found = imported(FACTORY + f"flash_attn: {value}\n", *HARDWARE)
    assert found.draft.wrong is (attention == "")
    written = found.draft.settings.get("model.attn")
    assert attention == "" or (written.text if written else None) == attention


@pytest.mark.parametrize(("model", "kind"), [
    ("Qwen/Qwen2.5-7B-Instruct-AWQ", "lora"), ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "lora"),
    ("unsloth/Qwen2.5-7B-Instruct-bnb-4bit", "qlora"), ("Qwen/Qwen2.5-7B-Instruct", "qlora"),
])  # fmt: skip
def test_weights_that_are_quantized_already_get_no_second_quantization(model: str, kind: str) -> None:
    found = imported(FACTORY.replace("Qwen/Qwen2.5-7B-Instruct", model) + "quantization_bit: 4\n", *HARDWARE)
    assert not found.errors, found.errors
    assert f"\n{kind} {{" in found.text
    assert found.outcomes["quantization_bit"] == ("irrelevant" if kind == "lora" else "mapped")


@pytest.mark.parametrize(("more", "reentrant"), [("", True), ("gradient_checkpointing: true\n", False)])
def test_arguments_of_checkpointing_need_the_trainers_own_checkpointing(more: str, reentrant: bool) -> None:
    found = imported(FACTORY + more + "gradient_checkpointing_kwargs: {use_reentrant: false}\n", *HARDWARE)
    assert found.arguments["activation_checkpointing_kwargs"] == {"use_reentrant": reentrant}


def test_two_kinds_of_warmup_are_a_difference_between_versions_of_transformers() -> None:
    found = imported(FACTORY + "warmup_steps: 10\nwarmup_ratio: 0.1\n", *HARDWARE)
    assert found.arguments["warmup_steps"] == 10
    assert "in transformers 5, `warmup_ratio` decides" in found.draft.differences["warmup_steps"]
