"""A TRL YAML is imported together with accelerate's configuration file. Each kind of key becomes the right setting, and
keys that cannot be imported are reported.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from import_support import HARDWARE, HEAD, imported, unaccounted

from xpc.compiler.importing.text import yaml as yamltext

ZERO3 = """\
compute_environment: LOCAL_MACHINE
deepspeed_config:
  offload_optimizer_device: none
  offload_param_device: none
  zero3_init_flag: true
  zero3_save_16bit_model: true
  zero_stage: 3
distributed_type: DEEPSPEED
downcast_bf16: 'no'
machine_rank: 0
mixed_precision: bf16
num_machines: 1
num_processes: 8
use_cpu: false
"""


def trl(text: str, *arguments: str, name: str = "sft/recipe.yaml"):
    return imported(HEAD + text, *HARDWARE, *arguments, name=name)


def test_a_recipe_becomes_the_arguments_that_it_states(tmp_path):
    (tmp_path / "zero3.yaml").write_text(ZERO3)
    found = trl(
        "learning_rate: 2.0e-05\nlr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs:\n  min_lr_rate: 0.1\n"
        "warmup_ratio: 0.03\nmax_seq_length: 2048\nper_device_train_batch_size: 4\ngradient_accumulation_steps: 2\n"
        "bf16: true\nsave_strategy: steps\nsave_steps: 100\neval_strategy: 'no'\noutput_dir: data/x\n"
        "max_grad_norm: 0.2\n"
        "gradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: false\ntorch_dtype: bfloat16\n"
        "attn_implementation: flash_attention_2\nreport_to:\n- wandb\nlogging_steps: 5\nnum_train_epochs: 2\n",
        "--accelerate", str(tmp_path / "zero3.yaml"),
    )  # fmt: skip
    assert found.payload["target"] == "trl-0.18", "torch_dtype and max_seq_length are the older stack's names"
    wanted = {
        "learning_rate": 2e-5, "warmup_ratio": 0.03, "max_length": 2048, "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2, "bf16": True, "save_strategy": "steps", "save_steps": 100,
        "eval_strategy": "no", "output_dir": "data/x", "max_grad_norm": 0.2, "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": False}, "report_to": ["wandb"], "logging_steps": 5,
        "num_train_epochs": 2.0, "lr_scheduler_type": "cosine_with_min_lr",
    }  # fmt: skip
    assert {name: found.arguments[name] for name in wanted} == wanted
    assert found.arguments["lr_scheduler_kwargs"]["min_lr_rate"] == 0.1
    assert found.payload["model"]["attn_implementation"] == "flash_attention_2"
    assert found.payload["run"]["zero_stage"] == 3
    assert found.payload["run"]["world_size"] == 8


def test_what_is_left_out_has_the_default_of_its_own_stack():
    old, new = trl("torch_dtype: null\n"), trl("dtype: bfloat16\n")
    assert old.payload["target"] == "trl-0.18"
    assert old.arguments["optim"] == "adamw_torch"
    assert (old.arguments["save_steps"], old.arguments["logging_steps"]) == (500, 500)
    assert old.arguments["gradient_checkpointing"] is False
    assert old.arguments["bf16"] is False
    assert new.payload["target"] == "trl-1.16"
    assert new.arguments["optim"] == "adamw_torch_fused"
    assert new.arguments["logging_steps"] == 10
    assert new.arguments["bf16"] is True
    for one in (old, new):
        assert one.arguments["per_device_train_batch_size"] == 8
        assert one.arguments["gradient_accumulation_steps"] == 1
        assert one.payload["run"]["gbs"] == 64


def test_an_old_recipe_for_the_new_stack_keeps_its_defaults():
    found = trl("torch_dtype: null\nbeta: 0.05\n", "--target", "trl-1.16", name="dpo/recipe.yaml")
    assert found.payload["target"] == "trl-1.16"
    assert found.arguments["optim"] == "adamw_torch"
    assert found.arguments["truncation_mode"] == "keep_end"
    assert found.arguments["average_tokens_across_devices"] is False
    assert found.payload["data"]["max_prompt"] == 512


@pytest.mark.parametrize(
    ("key", "line", "output"),
    [
        ("learning_rte: 1e-5", 3, "did you mean `learning_rate`?"),
        ("use_rslora: yes please\nuse_peft: true", 3, "the value must be true or false"),
        ("optim: adamw_anyprecision", 3, "xpc has no such optimizer"),
        ("report_to: [mlfow]", 3, "wandb, trackio, tensorboard"),
        ("learning_rate: fast", 3, "the value must be a number"),
        ("save_strategy: best", 3, "intervals of steps or epochs"),
        ("deepspeed: ds.json", 3, "the file does not exist"),
        ("packing: true\npacking_strategy: magic", 4, "no version of TRL that xpc supports has this packing strategy"),
        ("lr_scheduler_kwargs: {min_lr_rat: 0.1}", 3, "no schedule of xpc has this argument"),
        ("bf16: true\nfp16: true", 4, "is on, too"),
        ("max_length: 10\nmax_seq_length: 20", 4, "sets the same argument"),
        ("dataset_mixture:\n  datasets:\n  - id: a/b\n    weight: 2", 6, "a share above 0"),
        ("lora_target_modules: 'model.*q_proj'\nuse_peft: true", 3, "cannot match them by a pattern"),
    ],
    ids=lambda one: str(one)[:20],
)
def test_a_key_without_a_place_is_an_error_with_its_line(key, line, output):
    found = trl(key + "\n", name="sft/x.yaml")
    errors = [one for one in found.draft.messages if one.severity == "error"]
    assert found.draft.wrong
    assert [one.location for one in errors] == [f"sft/x.yaml:{line}"], found.messages
    assert output in errors[0].text + errors[0].help


def test_nothing_is_dropped_even_where_everything_is_wrong():
    text = HEAD + "what: 1\never: {you: [1, 2], write: {it: x}}\nno: ~\n"
    found = imported(text, *HARDWARE)
    assert unaccounted(found.draft, yamltext.read(text, "recipe.yaml")) == []
    assert found.outcomes["what"] == "error"
    assert found.outcomes["no"] == "irrelevant"


def test_trainer_argument_without_a_setting_is_kept_under_extra():
    found = trl("dataloader_num_workers: 4\nneftune_noise_alpha: 5\nlogging_first_step: true\n")
    assert found.arguments["dataloader_num_workers"] == 4
    assert found.arguments["neftune_noise_alpha"] == 5
    assert found.arguments["logging_first_step"] is True
    assert "extra trl {" in found.text


@pytest.mark.parametrize(
    ("folder", "keys", "method"),
    [("sft", "", "sft"), ("dpo", "", "dpo"), ("x", "reward_funcs: [accuracy]\n", "grpo"),
     ("x", "rpo_alpha: 1\n", "dpo"),
     ("x", "desirable_weight: 1.0\n", "kto"), ("x", "packing: false\n", "sft"), ("orpo", "beta: 0.1\n", "orpo")],
)  # fmt: skip
def test_the_method_is_what_path_or_keys_say(folder, keys, method):
    assert trl(keys, name=f"{folder}/config.yaml").draft.method == method


def test_the_handbook_mixture_is_written_part_by_part():
    found = imported(
        "model_name_or_path: Qwen/Qwen2.5-3B\ndataset_mixture:\n  datasets:\n"
        "    - {id: org/a, config: default, split: train_sft, columns: [messages], weight: 1.0}\n"
        "    - {id: org/b, config: en, split: test_sft, columns: [messages, chat_template_kwargs], weight: 0.02}\n"
        "  test_split_size: 1000\neval_strategy: epoch\n",
        *HARDWARE,
    )
    data = found.payload["data"]
    assert [(one["id"], one["config"], one["split"], one["take"]) for one in data["sources"]] == [
        ("org/a", None, "train_sft", {"fraction": 1.0}),
        ("org/b", "en", "test_sft", {"fraction": 0.02}),
    ]
    assert data["sources"][1]["columns"] == ["messages", "chat_template_kwargs"]
    assert (data["seed"], data["holdout"]) == (0, {"rows": 1000})


def test_the_older_mixer_trains_on_one_split_and_evaluates_on_the_other():
    found = imported(
        "model_name_or_path: Qwen/Qwen2.5-3B\ndataset_mixer:\n  org/pairs: 1.0\ndataset_splits: [train_p, test_p]\n"
        "eval_strategy: steps\neval_steps: 10\n", *HARDWARE, name="dpo/c.yaml",
    )  # fmt: skip
    assert found.payload["data"]["sources"][0]["split"] == "train_p"
    assert found.payload["data"]["eval_split"] == "test_p"
    assert found.payload["data"]["seed"] == 42


MIXED = (
    "model_name_or_path: Qwen/Qwen2.5-3B\ndataset_mixer:\n  org/chats: 1.0\ndataset_splits: [train_sft, test_sft]\n"
    "max_seq_length: 2048\n"
)


@pytest.mark.parametrize(("script", "more", "packs"), [
    ("", "", True),
    ("SFTTrainer(model, packing=True)", "", True),
    ("SFTTrainer(model, max_seq_length=1024)", "", False),
    ("SFTTrainer(model, packing=True)", "packing: false\n", False),
])  # fmt: skip
def test_the_handbook_s_script_packs_a_mixer_of_sft(tmp_path: Path, script: str, more: str, packs: bool) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "run_sft.py").write_text(script)
    found = imported(MIXED + more, *HARDWARE, name="sft.yaml", root=str(tmp_path))
    assert ("packing(strategy=wrapped)" in found.text) == packs
    assert any("`packing`: the alignment handbook's script" in one for one in found.messages) == (packs and not more)
    assert "packing" not in imported(MIXED, *HARDWARE, name="dpo/c.yaml", root=str(tmp_path)).text


@pytest.mark.parametrize(("script", "more", "system", "rows"), [
    ("", "", True, True),
    ("", "auto_insert_empty_system_msg: true\n", True, True),
    ("", "auto_insert_empty_system_msg: false\n", False, True),
    ("from alignment import apply_chat_template\nSFTTrainer(model, packing=True)", "", True, True),
    ("SFTTrainer(model, packing=True)", "", False, False),
])  # fmt: skip
def test_what_the_handbook_s_scripts_do_to_rows_is_stated(
    tmp_path: Path, script: str, more: str, system: bool, rows: bool
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "run_sft.py").write_text(script)
    found = imported(MIXED + more, *HARDWARE, name="sft.yaml", root=str(tmp_path))
    assert not found.draft.wrong
    assert ("put an empty system message before a conversation" in found.text) == system
    assert ("drop rows that contain tasks of HumanEval" in found.text) == rows


@pytest.mark.parametrize(("model", "more", "stated"), [
    ("mistralai/Mistral-7B-v0.1", "", True),
    ("org/unknown", "", True),
    ("org/unknown", "chat_template: \"{{ 'x' }}\"\n", False),
    ("Qwen/Qwen2.5-3B", "", False),
])  # fmt: skip
def test_template_that_the_handbook_s_scripts_add_is_stated(model: str, more: str, stated: bool) -> None:
    found = imported(MIXED.replace("Qwen/Qwen2.5-3B", model) + more, *HARDWARE, name="sft.yaml")
    assert any("without a chat template zephyr's" in one for one in found.messages) == stated


SCRIPT = """
from alignment import DataArguments, H4ArgumentParser, ModelArguments, SFTConfig, get_datasets
from trl import SFTTrainer
def main():
    parser = H4ArgumentParser((ModelArguments, DataArguments, SFTConfig))
    model_args, data_args, training_args = parser.parse()
    rows = get_datasets(data_args, splits=data_args.dataset_splits)
    trainer = SFTTrainer(model=model_args.model_name_or_path, args=training_args, train_dataset=rows["train"],
                         max_seq_length=training_args.max_seq_length, packing=True)
    trainer.train()
if __name__ == "__main__":
    main()
"""
"""A script with `dataset_mixer`, as a release of the alignment handbook has it."""


@pytest.mark.parametrize("script", ["", SCRIPT])
@pytest.mark.parametrize(("target", "strategy"), [("trl-0.18", None), ("trl-0.24", "wrapped"), ("trl-1.16", "wrapped")])
def test_launch_of_the_handbook_packs_as_its_script_does(
    tmp_path: Path, script: str, target: str, strategy: str | None
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "scripts").mkdir()
    if script:
        (tmp_path / "scripts" / "run_sft.py").write_text(script)
    more = "attn_implementation: flash_attention_2\nbf16: true\n"
    (tmp_path / "sft.yaml").write_text(MIXED + more)
    command = "accelerate launch --num_processes 8 scripts/run_sft.py sft.yaml\n"
    found = imported(command, *HARDWARE, "--target", target, name="launch.sh", root=str(tmp_path))
    assert found.arguments["packing"] is True
    assert found.arguments.get("packing_strategy") == strategy, "trl 0.18 always joins the texts to one stream"
    assert any("the alignment handbook's script" in one for one in found.messages) or script


def test_long_texts_become_files_next_to_the_spec():
    found = trl("chat_template: \"{{ 'x' }}\\n\"\nsystem_prompt: " + "Be kind. " * 40 + "\n")
    assert found.draft.files["recipe.chat_template.jinja"] == b"{{ 'x' }}\n"
    assert found.draft.files["recipe.system.txt"].startswith(b"Be kind.")
    assert found.payload["data"]["system"].startswith("Be kind.")


def test_adapters_have_the_defaults_of_trl():
    found = trl("use_peft: true\nload_in_4bit: true\nbf16: true\n")
    lora = found.payload["lora"]
    assert (lora["rank"], lora["alpha"], lora["dropout"], lora["bits"]) == (16, 32, 0.05, 4)
    assert lora["targets"] == ["q_proj", "v_proj"]
    assert lora["double_quant"] is False
    off = trl("use_peft: false\nlora_r: 8\n")
    assert off.payload["lora"] is None
    assert off.outcomes["lora_r"] == "irrelevant"


def test_rewards_and_vllm_become_settings():
    found = imported(
        HEAD + "reward_funcs: [accuracy, format, mine]\nreward_weights: [1.0, 0.5, 0.1]\nuse_vllm: true\n"
        "vllm_mode: colocate\nvllm_gpu_memory_utilization: 0.4\nnum_generations: 4\nmax_completion_length: 64\n",
        *HARDWARE, "--method", "grpo",
    )  # fmt: skip
    assert 'file("rewards.py:mine", weight=0.1)' in found.text
    assert "gpu_memory = 40%" in found.text
    assert any("`mine`" in one and "warning" in one for one in found.messages)
    off = imported(HEAD + "reward_funcs: [accuracy]\nvllm_mode: server\n", *HARDWARE, "--method", "grpo")
    assert "vllm" not in off.text
    assert off.arguments["use_vllm"] is False


def test_keys_of_the_hub_are_kept():
    found = trl("push_to_hub: true\nhub_model_id: me/x\nhub_strategy: every_save\noutput_dir: out/y\n")
    assert found.arguments["push_to_hub"] is True
    assert found.arguments["hub_model_id"] == "me/x"
    off = trl("push_to_hub: false\nhub_model_id: me/x\n")
    assert off.arguments["push_to_hub"] is False
    assert off.outcomes["hub_model_id"] == "irrelevant"


FSDP = "distributed_type: FSDP\nnum_processes: 4\nfsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("distributed_type: MULTI_GPU\nnum_processes: 8\n", "strategy ddp"),
        (FSDP + "  fsdp_sharding_strategy: FULL_SHARD\n", "strategy fsdp1"),
        (FSDP + "  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n", "strategy fsdp {\n  reshard = false\n}"),
        (FSDP + "  fsdp_sharding_strategy: HYBRID_SHARD\n", "strategy hsdp"),
        (FSDP + "  fsdp_offload_params: true\n", "strategy fsdp1 {\n  offload = cpu\n}"),
        (ZERO3.replace("zero_stage: 3", "zero_stage: 2"), "strategy zero2"),
        (
            ZERO3.replace("optimizer_device: none", "optimizer_device: cpu"),
            "strategy zero3 {\n  offload = optimizer\n}",
        ),
    ],
)
def test_accelerate_alone_is_a_base(text, strategy):
    found = imported(text, name="accelerate.yaml")
    assert strategy in found.text
    assert "train " not in found.text
    assert not found.draft.wrong
    assert unaccounted(found.draft, yamltext.read(text, "accelerate.yaml")) == []


def test_the_launcher_decides_the_precision_where_the_trainer_does_not(tmp_path):
    (tmp_path / "a.yaml").write_text("distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 8\n")
    found = trl("torch_dtype: null\n", "--accelerate", str(tmp_path / "a.yaml"))
    assert found.arguments["bf16"] is True
    over = trl("fp16: true\ntorch_dtype: null\n", "--accelerate", str(tmp_path / "a.yaml"))
    assert (over.arguments["bf16"], over.arguments["fp16"]) == (False, True)


def test_processes_are_those_of_one_node(tmp_path):
    (tmp_path / "a.yaml").write_text("distributed_type: MULTI_GPU\nnum_processes: 16\nnum_machines: 2\n")
    found = imported(HEAD, "--accelerate", str(tmp_path / "a.yaml"))
    assert "hardware 8 x h100-80gb" in found.text
    assert "nodes 2" in found.text
    assert any("the imported files do not state the GPUs" in one for one in found.messages)
    cpu = imported(HEAD + "use_cpu: true\n", "--nodes", "1")
    assert "hardware 1 x cpu" in cpu.text


def test_path_names_a_distillation_only_with_a_teacher():
    found = trl("max_length: 512\n", name="Qwen-Distill-7B/config_distill.yaml")
    assert found.draft.method == "sft"
    assert not found.draft.wrong, found.messages
    distilled = trl("teacher_model_name_or_path: Qwen/Qwen2.5-7B\nmax_new_tokens: 64\n", name="qwen/distill.yaml")
    assert distilled.draft.method == "distill"
    assert not distilled.draft.wrong, distilled.messages
    assert "max_completion = 64" in distilled.text


def test_the_length_of_a_completion_is_a_setting_of_every_method_that_generates():
    found = trl("max_completion_length: 1024\nreward_funcs: [accuracy]\n", name="grpo/config_demo.yaml")
    assert "max_completion = 1024" in found.text
    assert not found.draft.wrong, found.messages


def test_the_handbooks_older_word_for_flash_attention_is_read():
    assert trl("use_flash_attention_2: true\n").payload["model"]["attn_implementation"] == "flash_attention_2"
    both = trl("use_flash_attention_2: true\nattn_implementation: sdpa\n")
    assert both.payload["model"]["attn_implementation"] == "sdpa"
    assert (
        both.outcomes["use_flash_attention_2"]
        == trl("use_flash_attention_2: false\n").outcomes["use_flash_attention_2"]
    )


def test_a_loss_on_completions_states_that_rows_of_unknown_format_have_them():
    found = trl("completion_only_loss: true\n")
    assert "format = prompt_completion" in found.text
    assert found.arguments["completion_only_loss"] is True
    assert any("rows with a prompt and a completion are assumed" in one for one in found.messages)
    assert "prompt_completion" not in trl("completion_only_loss: false\n").text
    turns = imported(
        "model_name_or_path: Qwen/Qwen2.5-3B\ndataset_name: trl-lib/Capybara\ncompletion_only_loss: true\n"
    )
    assert "prompt_completion" not in turns.text


def test_no_steps_between_checkpoints_is_never() -> None:
    for steps in (0, -1):
        assert "every = never" in imported(HEAD + f"save_steps: {steps}\n", *HARDWARE, name="sft.yaml").text
    assert imported(HEAD + "logging_steps: 0\n", *HARDWARE, name="sft.yaml").draft.wrong


@pytest.mark.parametrize(("name", "more", "wrong"), [
    ("simpo_tldr.yaml", "", True), ("recipes/ppo.yaml", "", True), ("simpo.yaml", "beta: 0.1\n", False),
    ("ppo/sft.yaml", "", False), ("sft.yaml", "", False),
])  # fmt: skip
def test_a_name_of_another_method_is_an_error(name: str, more: str, wrong: bool) -> None:
    found = imported(HEAD + more, *HARDWARE, name=name)
    assert found.draft.wrong == wrong, found.messages
    assert not imported(HEAD, *HARDWARE, "--method", "sft", name=name).draft.wrong


def test_arguments_of_the_generation_become_settings_or_are_refused() -> None:
    text = HEAD + "reward_funcs: [accuracy]\nnum_generations: 4\n"
    found = imported(text + "generation_kwargs: {max_length: 900, max_new_tokens: 64}\n", *HARDWARE, name="grpo.yaml")
    assert not found.draft.wrong, found.messages
    assert "max_completion = 64" in found.text
    assert not imported(text + "generation_kwargs: {}\n", *HARDWARE, name="grpo.yaml").draft.wrong
    assert imported(text + "generation_kwargs: {max_time: 30}\n", *HARDWARE, name="grpo.yaml").draft.wrong
