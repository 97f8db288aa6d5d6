"""The data, defaults and switches of an imported file keep their meaning. Each test is about a meaning that an import
once lost.
"""

from __future__ import annotations

import json
import os

import pytest
from import_support import HARDWARE, HEAD, imported

pytestmark = pytest.mark.slow

AX = (
    "base_model: Qwen/Qwen2.5-3B\ndatasets:\n  - path: org/chat\n    type: chat_template\nsequence_len: 2048\n"
    "micro_batch_size: 2\ngradient_accumulation_steps: 4\nnum_epochs: 2\nlearning_rate: 0.0002\noutput_dir: ./out\n"
)
LF = (
    "model_name_or_path: Qwen/Qwen3-4B-Instruct-2507\nstage: sft\ndo_train: true\nfinetuning_type: lora\n"
    "dataset: identity\ntemplate: qwen3_nothink\noutput_dir: saves/x\nbf16: true\n"
)
SECOND = (
    "model: Qwen/Qwen3-4B\ntrain_dataset: data/rows.yaml\noutput_dir: out\nmax_steps: 10\n"
    "learning_rate: 1.0e-4\nmicro_batch_size: 1\n"
)


def ax(more: str = "", rows: str = "    type: chat_template\n", root: str | None = None, text: str = AX):
    text = text.replace("    type: chat_template\n", rows) + more
    return imported(text, *HARDWARE, **({} if root is None else {"root": root}))


def lf(more: str = "", root: str | None = None, without: str = "", text: str = LF):
    return imported(text.replace(without, "") + more, *HARDWARE, **({} if root is None else {"root": root}))


def test_a_repository_of_axolotl_is_private():
    assert ax("hub_model_id: me/x\n").arguments["hub_private_repo"] is True


def test_a_template_by_the_name_of_its_file(tmp_path):
    (tmp_path / "x.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    found = ax("chat_template_jinja: ./x.jinja\n", root=str(tmp_path))
    assert b"m.content" in found.draft.files["recipe.chat_template.jinja"]
    lost = ax("chat_template_jinja: ./y.jinja\n", root=str(tmp_path))
    assert lost.outcomes["chat_template_jinja"] == "error"


def test_axolotl_computes_in_bf16_and_tf32_by_default():
    found = ax().arguments
    assert (found["bf16"], found["tf32"], found["average_tokens_across_devices"]) == (True, True, False)
    assert "precision fp16" in ax("fp16: true\n").text
    assert ax("bf16: false\n").arguments["bf16"] is False


def test_the_second_layout_trains_at_a_constant_rate_with_torchs_weight_decay():
    found = lf(text=SECOND)
    assert (found.arguments["lr_scheduler_type"], found.arguments["weight_decay"]) == ("constant", 0.01)
    assert any("--method" in one or "the command states the method" in one for one in found.messages)
    assert lf("kernel_config:\n  name: liger_kernel\n  include_kernels: auto\n", text=SECOND).payload["model"]["liger"]


def test_the_second_layouts_data_file_is_read(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.yaml").write_text("a:\n  path: org/rows\n  source: hf_hub\n  converter: alpaca\n")
    found = lf(text=SECOND, root=str(tmp_path))
    (source,) = found.payload["data"]["sources"]
    assert (source["id"], source["wording"]) == ("org/rows", "chat")


@pytest.mark.parametrize(
    "more",
    ["adapter: lora\nlora_model_dir: [./one, ./two]\n", "early_stopping_patience: 3\n"],
)  # fmt: skip
def test_keys_that_decide_something_are_refused(more):
    assert any(one.startswith("error") for one in ax(more).messages)


@pytest.mark.parametrize("bring", [ax, lf])
def test_an_adapter_goes_on_with_its_own_shape(tmp_path, bring):
    made = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "lora_dropout": 0.0}
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "adapter_config.json").write_text(json.dumps(made))
    (tmp_path / "made" / "adapter_model.safetensors").write_bytes(b"")
    axolotls = "adapter: lora\nlora_r: 16\nlora_model_dir: made\n"
    found = bring(axolotls if bring is ax else "lora_rank: 16\nadapter_name_or_path: made\n", root=str(tmp_path))
    lora = found.payload["lora"]
    assert (lora["rank"], lora["alpha"], lora["targets"]) == (4, 8, ["q_proj"])
    assert lora["continued"]["path"] == "made"
    assert found.outcomes["lora_r" if bring is ax else "lora_rank"] == "irrelevant"


def test_keys_of_another_generation_and_of_other_launches_are_distinguished():
    four = "peft_config: {name: lora, r: 8, target_modules: all}\nquant_config: {name: bnb, quantization_bit: 4}\n"
    quantized = lf(four, text=SECOND)
    assert (quantized.payload["lora"]["bits"], quantized.payload["lora"]["double_quant"]) == (4, True)
    assert "quant_config" in quantized.draft.differences
    shared = lf("dist_config: {name: fsdp2, cp_mode: ulysses, cp_size: 2}\n", text=SECOND)
    assert shared.payload["run"]["context_parallel"] == 2
    workers = imported(LF + "ray_num_workers: 4\n")
    assert "hardware 4 x h100-80gb" in workers.text
    assert lf("image_max_pixels: 262144\n").outcomes["image_max_pixels"] == "irrelevant"
    seen = lf("freeze_language_model: true\n")
    assert "a run of a spec always trains the language model" in next(
        one for one in seen.messages if one.startswith("error")
    )


def test_an_early_end_is_the_tools_own_number_of_evaluations():
    held = ax("val_set_size: 0.1\nevals_per_epoch: 4\nsaves_per_epoch: 2\nearly_stopping_patience: 3\n")
    assert held.payload["run"]["patience"] == 3
    assert held.arguments["load_best_model_at_end"] is True
    more = "val_size: 0.1\neval_strategy: steps\neval_steps: 50\n"
    more += "early_stopping_steps: 2\nmetric_for_best_model: eval_loss\n"
    assert lf(more).payload["run"]["patience"] == 2


@pytest.mark.parametrize(
    "inside",
    ["roles_to_train: [user]", "train_on_eos: last", "message_property_mappings: {role: who, content: what}",
     "roles: {narrator: [bot]}"],
)  # fmt: skip
def test_masks_and_messages_that_the_runtime_does_not_have(inside):
    assert ax(rows=f"    type: chat_template\n    {inside}\n").draft.wrong
    assert not ax(rows="    type: chat_template\n    roles_to_train: [assistant]\n    train_on_eos: turn\n").draft.wrong


def test_the_names_of_speakers_are_those_that_the_runtime_does_not_know_anyway():
    found = ax(
        rows="    type: chat_template\n    roles: {user: [user, guest], assistant: [assistant, gpt], tool: [tool]}\n"
    )
    assert found.payload["data"]["roles"] == {"guest": "user", "gpt": "assistant"}
    mapped = "    message_property_mappings: {role: from, content: value}\n"
    usual = "    roles: {user: [human], assistant: [gpt, model], system: [system]}\n"
    assert "roles" not in ax(rows="    type: chat_template\n" + mapped + usual).payload["data"]
    other = ax(rows="    type: chat_template\n" + mapped + "    roles: {assistant: [system, gpt]}\n")
    assert other.payload["data"]["roles"] == {"system": "assistant"}


def test_evaluations_of_axolotl_are_its_own_arithmetic():
    found = ax("val_set_size: 0.1\neval_steps: 50\n").arguments
    assert (found["eval_strategy"], found["eval_steps"], found["eval_on_start"]) == ("steps", 50, True)
    # the run has two epochs, so one evaluation per epoch is one per 0.5 of the run
    once = ax("val_set_size: 0.1\nevals_per_epoch: 1\n").arguments
    assert (once["eval_strategy"], once["eval_steps"]) == ("steps", 0.5)
    never = ax("val_set_size: 0.1\nevals_per_epoch: 0\n").arguments
    assert never["eval_strategy"] == "no"
    best = ax("val_set_size: 0.1\nevals_per_epoch: 4\nsaves_per_epoch: 2\nload_best_model_at_end: true\n").arguments
    assert best["load_best_model_at_end"] is True


def test_saves_of_axolotl_are_its_own_arithmetic():
    assert ax("save_steps: 0.25\n").arguments["save_steps"] == 0.25
    assert ax("saves_per_epoch: 0\n").arguments["save_strategy"] == "epoch"


def test_longer_rows_are_left_out_unless_they_are_cut():
    assert ax().payload["data"]["max_tokens"] == 2048
    assert ax("excess_length_strategy: truncate\n").payload["data"]["max_tokens"] is None


@pytest.mark.parametrize("rl", ["dpo", "orpo"])
def test_preferences_have_no_longest_prompt(rl):
    kind = "chat_template.default" if rl == "dpo" else "chat_template.argilla"
    found = ax(f"rl: {rl}\n", rows=f"    type: {kind}\n")
    assert found.payload["data"]["max_prompt"] is None or rl == "dpo"
    assert "max_prompt" not in found.text


def test_packed_text_goes_on_in_further_rows():
    flash = "sample_packing: true\nattn_implementation: flash_attention_2\n"
    found = ax(flash, rows="    type: completion\n")
    assert (found.arguments["packing"], found.arguments["packing_strategy"]) == (True, "bfd_split")
    assert ax(flash).arguments["eval_packing"] is True


def test_the_warm_up_of_a_run_of_known_length_has_its_cap():
    assert ax("max_steps: 10000\n").arguments["warmup_steps"] == 100
    assert ax("max_steps: 40\n").arguments["warmup_steps"] == 2
    assert "warmup_steps" in ax().draft.differences


def test_a_fallback_is_for_tokenizers_without_a_template():
    # qwen2.5-3b has a template, so the fallback is not used
    found = ax("chat_template: tokenizer_default_fallback_chatml\n")
    assert "You are Qwen" in "".join(one.decode() for one in found.draft.files.values())
    base = AX.replace("Qwen/Qwen2.5-3B", "google/gemma-2-9b")
    bare = imported(base + "chat_template: tokenizer_default_fallback_chatml\n", *HARDWARE)
    assert bare.payload["tokenizer"]["chat_template"]


@pytest.mark.parametrize("kinds", [("alpaca", "chat_template"), ("chat_template", "alpaca")])
def test_two_shapes_in_one_mixture_keep_each_its_own(kinds):
    found = ax(rows=f"    type: {kinds[0]}\n  - path: org/more\n    type: {kinds[1]}\n")
    assert not found.draft.wrong
    assert not found.errors
    shapes = [source["shape"] for source in found.payload["data"]["sources"]]
    assert shapes == [{"alpaca": "prompt_completion", "chat_template": "messages"}[kind] for kind in kinds]
    assert "  completion_only\n" in found.text
    assert "  assistant_only\n" in found.text
    assert found.payload["arguments"]["completion_only_loss"] is True


def test_instructions_mixed_with_conversations_become_turns(tmp_path):
    (tmp_path / "data").mkdir()
    rows = {"a": {"file_name": "a.json"}, "b": {"file_name": "b.json", "formatting": "sharegpt"}}
    (tmp_path / "data" / "dataset_info.json").write_text(json.dumps(rows))
    found = lf(root=str(tmp_path), text=LF.replace("identity", "a,b"))
    assert not found.errors
    assert [(one["shape"], one["wording"]) for one in found.payload["data"]["sources"]] == [
        ("prompt_completion", "chat"), ("conversations", None),
    ]  # fmt: skip
    assert (found.arguments["completion_only_loss"], found.arguments["assistant_only_loss"]) == (True, True)


def test_a_deepspeed_file_by_name_holds_what_the_tools_own_does():
    assert "offload = optimizer" in ax("deepspeed: deepspeed_configs/zero2.json\n").text
    assert "round_robin_gradients" in lf("deepspeed: examples/deepspeed/ds_z2_config.json\n").text


def test_deepspeed_file_of_another_machine_is_read_from_the_repository(tmp_path):
    (tmp_path / "deepspeed").mkdir()
    (tmp_path / "deepspeed" / "ds_z2_config.json").write_text('{"zero_optimization": {"stage": 1}}')
    found = lf("deepspeed: /home/me/factory/deepspeed/ds_z2_config.json\n", root=str(tmp_path))
    assert "strategy zero1" in found.text
    assert any("the import reads `deepspeed/ds_z2_config.json`" in one.text for one in found.draft.messages)


def test_spec_is_written_as_people_write_it():
    text = imported(HEAD + "learning_rate: 0.0002\nper_device_eval_batch_size: 4\nweight_decay: 0.01\n", *HARDWARE).text
    assert "lr = 2e-4" in text
    assert "weight_decay = 0.01" in text
    assert "method" not in text, "sft is the default"
    assert "eval" not in text, "nothing is evaluated"


def test_attention_does_not_date_a_file():
    found = imported(
        "model_name_or_path: Qwen/Qwen2.5-3B\ndataset_name: org/rows\nattn_implementation: sdpa\n", *HARDWARE
    )
    assert found.draft.stack.name == "trl-1.16"


def test_ulysses_is_context_parallel_under_zero_and_refused_elsewhere():
    file = (
        "distributed_type: DEEPSPEED\nnum_processes: 8\nparallelism_config:\n  parallelism_config_sp_size: 2\n"
        "  parallelism_config_sp_backend: deepspeed\n  parallelism_config_sp_attn_implementation: flash_attention_2\n"
        "deepspeed_config:\n  zero_stage: 3\n"
    )
    given = ("--model", "Qwen/Qwen2.5-3B", "--data", "org/rows", *HARDWARE)
    found = imported(file, *given)
    assert not found.draft.wrong, found.messages
    assert found.payload["run"]["context_parallel"] == 2
    assert found.payload["model"]["attn_implementation"] == "flash_attention_2"
    plain = imported(file.replace("DEEPSPEED", "MULTI_GPU"), *given)
    assert any("Ulysses" in one for one in plain.messages)


INFO = {
    "mine": {"file_name": "mine.json", "formatting": "sharegpt",
             "columns": {"messages": "talk"}, "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user",
                                                       "assistant_tag": "assistant"}},
    "pairs": {"file_name": "pairs.json", "ranking": True,
              "columns": {"prompt": "question", "chosen": "good", "rejected": "bad"}},
    "asked": {"file_name": "asked.json", "columns": {"prompt": "question", "response": "answer"}},
    "told": {"file_name": "told.json", "columns": {"prompt": "q", "response": "a", "system": "s"}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "stage", "shape", "columns", "wording"),
    [
        ("mine", "sft", "messages", ["talk"], None),
        ("asked", "sft", "prompt_completion", ["question", "answer"], "chat"),
        ("pairs", "dpo", "preference", ["question", "good", "bad"], "chat"),
    ],
)  # fmt: skip
def test_dataset_info_decides_the_shape_and_the_columns(tmp_path, name, stage, shape, columns, wording):
    os.makedirs(tmp_path / "data")
    (tmp_path / "data" / "dataset_info.json").write_text(json.dumps(INFO))
    text = LF.replace("dataset: identity", f"dataset: {name}").replace("stage: sft", f"stage: {stage}")
    turns = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    row = {"talk": turns, "question": "2 + 2?", "answer": "4", "good": "4", "bad": "5"}
    (tmp_path / "data" / f"{name}.json").write_text(json.dumps([row] * 64))
    found = lf(text=text, root=str(tmp_path))
    (source,) = found.payload["data"]["sources"]
    assert (source["shape"], source["columns"], source["wording"]) == (shape, columns, wording)


@pytest.mark.parametrize(
    ("tags", "roles"),
    [
        ({"role_tag": "from", "content_tag": "value", "user_tag": "human", "assistant_tag": "bot"}, None),
        ({"role_tag": "from", "content_tag": "value", "user_tag": "asker"}, {"asker": "user"}),
        ({"role_tag": "role", "content_tag": "content", "user_tag": "human", "assistant_tag": "assistant"},
         {"human": "user"}),
    ],
)  # fmt: skip
def test_tags_of_speakers_are_roles(tmp_path, tags, roles):
    os.makedirs(tmp_path / "data")
    about = {"file_name": "b.json", "formatting": "sharegpt", "tags": tags}
    (tmp_path / "data" / "dataset_info.json").write_text(json.dumps({"spoken": about}))
    found = lf(text=LF.replace("dataset: identity", "dataset: spoken"), root=str(tmp_path))
    assert found.payload["data"].get("roles") == roles


@pytest.mark.parametrize(("name", "stage"), [("pairs", "sft"), ("mine", "dpo")])
def test_rows_that_no_shape_holds_are_refused(tmp_path, name, stage):
    os.makedirs(tmp_path / "data")
    (tmp_path / "data" / "dataset_info.json").write_text(json.dumps(INFO))
    text = LF.replace("dataset: identity", f"dataset: {name}").replace("stage: sft", f"stage: {stage}")
    assert lf(text=text, root=str(tmp_path)).draft.wrong


def test_a_column_of_system_prompts_is_named(tmp_path):
    os.makedirs(tmp_path / "data")
    (tmp_path / "data" / "dataset_info.json").write_text(json.dumps(INFO))
    found = lf(text=LF.replace("dataset: identity", "dataset: told"), root=str(tmp_path))
    assert found.draft.settings["data.system_column"].text.strip('"') == INFO["told"]["columns"]["system"]


def test_max_samples_takes_what_is_there():
    (source,) = lf("max_samples: 1000\n").payload["data"]["sources"]
    assert (source["limit"], source["take"]) == (1000, None)


def test_words_of_ones_own_are_a_template():
    rows = "    type:\n      field_instruction: q\n      field_output: a\n      no_input_format: '<{instruction}>'\n"
    assert "<{{ q }}>" in ax(rows=rows).payload["data"]["prompt_template"]
    of_the_registry = ax(rows="    type: alpaca:chat\n", text=AX.replace("org/chat", "tatsu-lab/alpaca"))
    assert of_the_registry.payload["data"]["sources"][0]["context"] is None
    for wrong in ("      format: '{question}'\n", "      field_instruction: a column\n", "      odd_key: 1\n"):
        assert ax(rows=rows + wrong.replace("field_instruction", "field_input")).draft.wrong
    assert ax(rows="    type: context_qa\n").draft.wrong


def test_grpo_reads_no_sequence_length():
    found = ax("rl: grpo\ntrl:\n  num_generations: 4\n  reward_funcs: [accuracy]\n  max_completion_length: 64\n",
               rows="    split: train\n")  # fmt: skip
    assert found.outcomes["sequence_len"] == "irrelevant"


def test_large_numbers_and_switches_that_are_off_are_written_as_people_write_them(tmp_path):
    zero = {"stage": 3, "reduce_bucket_size": 500000000, "sub_group_size": 1000000000}
    (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": zero}))
    found = imported(HEAD + "deepspeed: ds.json\npacking: false\n", *HARDWARE, root=str(tmp_path))
    assert not found.errors
    assert "reduce_bucket = 500M" in found.text
    assert "sub_group_size = 1B" in found.text
    assert "packing" not in found.text
    assert json.loads(found.files["deepspeed.json"])["zero_optimization"]["sub_group_size"] == 1000000000
    text = imported(HEAD + "reward_funcs: [accuracy]\nloss_type: dr_grpo\nscale_rewards: false\n", *HARDWARE).text
    assert "loss = dr_grpo" in text
