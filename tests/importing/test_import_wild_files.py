"""Features of public files that the tools' published examples do not have: repeated keys, keys that the tool does not
know, and models in folders of another machine.
"""

from __future__ import annotations

import json

import pytest
from import_support import FACTORY, HARDWARE, imported

pytestmark = pytest.mark.slow

AXOLOTL = """\
base_model: Qwen/Qwen2.5-7B
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
micro_batch_size: 1
gradient_accumulation_steps: 2
learning_rate: 1e-4
optimizer: adamw_torch
"""


def test_last_value_of_a_repeated_key_counts() -> None:
    found = imported(AXOLOTL + "learning_rate: 2e-5\nseed: 7\nseed: 7\n", *HARDWARE)
    assert found.arguments["learning_rate"] == 2e-5
    output = [one for one in found.messages if "has the key, too, with another value" in one]
    assert len(output) == 1
    assert "`learning_rate`" in output[0]
    assert "line 7" in output[0]


@pytest.mark.parametrize(
    ("folder", "family", "layers"),
    [
        ("/data/models/Qwen2.5-7B-Instruct", "qwen2", 28),
        ("../Meta-Llama-3-8B-Instruct/", "llama", 32),
        ("D:\\Models\\Qwen3-4B", "qwen3", 36),
        ("/models/Llama3-8B-Chinese-Chat", "llama", 32),
    ],
)
def test_model_in_a_missing_folder_gets_the_architecture_of_its_name(folder: str, family: str, layers: int) -> None:
    found = imported(FACTORY.replace("Qwen/Qwen2.5-7B-Instruct", folder), *HARDWARE)
    assert not found.errors
    config = json.loads(found.draft.files["recipe.config.json"])
    assert (config["model_type"], config["num_hidden_layers"]) == (family, layers)
    assert any("does not exist here: by its name" in one for one in found.messages)
    assert found.payload["model"]["path"].rstrip("/") == folder.rstrip("/")


def test_folder_with_an_unknown_name_is_left_to_the_check() -> None:
    found = imported(FACTORY.replace("Qwen/Qwen2.5-7B-Instruct", "./curr-model"), *HARDWARE)
    assert not found.draft.files.get("recipe.config.json")
    assert any(one.startswith("XP118") for one in found.errors)


def test_unknown_key_of_an_axolotl_data_set_is_reported() -> None:
    found = imported(AXOLOTL.replace("type: alpaca\n", "type: alpaca\n    prompt_style: chat\n"), *HARDWARE)
    assert not found.errors
    assert any("`datasets[0].prompt_style`" in one and "no such key" in one for one in found.messages)


@pytest.mark.parametrize("key", ["base_model_config", "tokenizer_config"])
def test_configuration_of_the_base_model_is_its_own(key: str) -> None:
    assert not imported(AXOLOTL + f"{key}: Qwen/Qwen2.5-7B\n", *HARDWARE).draft.wrong
    assert imported(AXOLOTL + f"{key}: Qwen/Qwen2.5-3B\n", *HARDWARE).draft.wrong


def test_optim_args_are_the_optimizers_own_numbers() -> None:
    found = imported(AXOLOTL + 'adam_epsilon: 1e-6\noptim_args:\n  eps: "1e-7"\n', *HARDWARE)
    assert found.arguments["adam_epsilon"] == 1e-7


def test_weights_in_host_memory_stay_on_the_gpu_with_a_warning() -> None:
    found = imported(AXOLOTL + "deepspeed: deepspeed_configs/zero3_bf16_cpuoffload_params.json\n", *HARDWARE)
    assert not found.errors
    assert "offload_param" in found.draft.differences


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ("upcast_layernorm: true\n", "upcast_layernorm"),
        ("resume_from_checkpoint: /saves/checkpoint-1500\n", "resume_from_checkpoint"),
        ("deepspeed: configs/ds_config_zero2.json\n", "deepspeed"),
    ],
)
def test_differences_to_llamafactory_are_reported(more: str, name: str) -> None:
    found = imported(FACTORY + more, *HARDWARE)
    assert not found.errors
    assert name in found.draft.differences


def test_llamafactorys_max_length_is_of_inference_and_fp16_may_be_off() -> None:
    found = imported(FACTORY + "max_length: 512\nfp16: false\n", *HARDWARE)
    assert found.arguments["max_length"] == 2048
    assert found.arguments["bf16"] is True


def test_a_file_with_train_batch_size_may_be_axolotls() -> None:
    assert imported(AXOLOTL + "train_batch_size: 4\n", *HARDWARE).draft.model == "Qwen/Qwen2.5-7B"


def test_mask_history_is_written_into_the_template() -> None:
    found = imported(FACTORY + "mask_history: true\n", *HARDWARE)
    assert not found.errors
    assert "not loop.last" in found.draft.files["recipe.chat_template.jinja"].decode()
    assert imported(FACTORY.replace("qwen\n", "of_mine\n", 1) + "mask_history: true\n", *HARDWARE).draft.wrong


def test_trained_fp16_weights_are_kept_in_fp32_with_a_warning() -> None:
    found = imported(AXOLOTL + "bf16: false\nfp16: true\n", *HARDWARE)
    assert not found.errors
    assert found.payload["model"]["dtype"] == "float32"
    assert "torch_dtype" in found.draft.differences


OPEN_R1 = """\
model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
torch_dtype: bfloat16
dataset_name: openai/gsm8k
bf16: true
learning_rate: 1.0e-06
output_dir: out
"""


def test_keys_of_older_scripts_of_trl_are_read() -> None:
    more = "dataset_configs:\n- all\npreprocessing_num_workers: 8\n"
    found = imported(OPEN_R1 + more, *HARDWARE, "--method", "sft")
    assert not found.errors
    assert found.arguments["dataset_num_proc"] == 8
    assert found.payload["model"]["dtype"] == "float32"
    assert "torch_dtype" in found.draft.differences
    assert any("`dataset_configs`" in one for one in found.messages)


def test_names_of_an_older_vllm_are_read() -> None:
    more = (
        "use_vllm: true\nvllm_max_model_len: 4608\nvllm_enforce_eager: true\nreward_funcs:\n- accuracy\n"
        "num_generations: 8\nmax_completion_length: 512\n"
    )
    found = imported(OPEN_R1 + more, *HARDWARE, "--method", "grpo", "--target", "trl-1.16")
    assert not found.draft.wrong, found.messages
    assert found.draft.settings["method.vllm.max_length"].text == "4608"


@pytest.mark.parametrize(
    "folder",
    [
        "./outputs/qwen2.5-1.5b-sft-merge/merged",
        "/data/Qwen2.5-1.5B-sft/checkpoint-3000",
    ],
)
def test_missing_checkpoint_gets_the_architecture_of_the_folder_above(folder: str) -> None:
    found = imported(FACTORY.replace("Qwen/Qwen2.5-7B-Instruct", folder), *HARDWARE)
    assert not found.errors
    assert json.loads(found.draft.files["recipe.config.json"])["hidden_size"] == 1536
    assert any("by its name, the architecture" in one for one in found.messages)


def test_swanlab_joins_the_other_trackers_and_its_key_is_in_no_comment() -> None:
    more = "use_swanlab: true\nswanlab_run_name: first\nswanlab_mode: local\nswanlab_api_key: abc123\n"
    found = imported(FACTORY + "report_to: wandb\n" + more, *HARDWARE)
    assert not found.errors
    assert found.arguments["report_to"] == ["wandb", "swanlab"]
    assert (found.arguments["run_name"], found.payload["run"]["project"]) == ("first", "llamafactory")
    assert "swanlab_mode: local" in found.text
    assert "abc123" not in found.text
    assert "swanlab" not in imported(FACTORY + "swanlab_project: toys\n", *HARDWARE).text


def test_unsloth_checkpointing_computes_the_same_with_a_warning() -> None:
    found = imported(FACTORY + "use_unsloth_gc: true\n", *HARDWARE)
    assert not found.errors
    assert "use_unsloth_gc" in found.draft.differences
    assert found.draft.settings["memory.checkpointing.reentrant"].text == "true"


def test_the_file_of_a_local_folder_is_the_one_that_is_read() -> None:
    for folder, output in ((".", "./train.jsonl"), ("./data", "./data/train.jsonl"), ("/data", "/data/train.jsonl")):
        text = AXOLOTL.replace("tatsu-lab/alpaca", f"{folder}\n    data_files: train.jsonl")
        found = imported(text, *HARDWARE)
        assert not found.errors
        assert found.payload["data"]["sources"][0]["path"] == output
    for folder, output in (("./data", "./data/{}"), ("json", "{}")):
        several = AXOLOTL.replace("tatsu-lab/alpaca", f"{folder}\n    data_files: [a.jsonl, b.jsonl]")
        found = imported(several, *HARDWARE)
        assert not found.draft.wrong
        assert not found.errors
        paths = [source["path"] for source in found.payload["data"]["sources"]]
        assert paths == [output.format(name) for name in ("a.jsonl", "b.jsonl")]
    for files in ("a.jsonl", "[a.jsonl, b.jsonl]"):
        of_the_hub = AXOLOTL.replace("tatsu-lab/alpaca", f"org/rows\n    data_files: {files}")
        assert "the spec reads all" in imported(of_the_hub, *HARDWARE).draft.differences["data_files"]
    shared = several.replace("    type: alpaca\n", "    type: alpaca\n    shards: 4\n")
    assert imported(shared, *HARDWARE).draft.wrong


def test_dpo_has_its_loss_under_axolotls_names() -> None:
    more = "rl: dpo\ndpo_loss_type: [ipo]\ndpo_label_smoothing: 0.0\n"
    text = AXOLOTL.replace("type: alpaca", "type: passthrough").replace("tatsu-lab/alpaca", "./pairs.jsonl")
    found = imported(text + more, *HARDWARE)
    assert not found.errors
    assert found.arguments["loss_type"] == ["ipo"]


def test_reward_function_of_a_module_is_in_the_file_of_that_module() -> None:
    more = "use_vllm: false\nreward_funcs:\n- my_rewards.short\n- other\nnum_generations: 8\n"
    found = imported(OPEN_R1 + more, *HARDWARE, "--method", "grpo", "--target", "trl-1.16")
    assert '"my_rewards.py:short"' in found.text
    assert '"rewards.py:other"' in found.text


def test_pretraining_reports_how_texts_are_packed() -> None:
    """LLaMA-Factory joins all texts into one stream, and cuts it into rows in which texts attend to each other. With
    flash attention, a bundle keeps packed texts apart; without flash attention, it does not pack. In both cases, the
    import reports the difference.
    """
    text = FACTORY.replace("stage: sft", "stage: pt").replace("template: qwen\n", "template: llama3\n")
    for model, apart in (
        ("Qwen/Qwen3.5-4B", "does not pack and truncates each text"),
        ("Qwen/Qwen2.5-7B", "that do not attend to each other"),
    ):
        found = imported(text.replace("Qwen/Qwen2.5-7B-Instruct", model), *HARDWARE)
        assert not found.errors
        assert apart in found.draft.differences["packing"], found.draft.differences["packing"]
        assert "end_of_text" in found.draft.differences["template"]
        assert not any("its own kernels keep them apart" in one for one in found.messages)
    alone = imported(text + "packing: false\n", *HARDWARE)
    assert "packing" not in alone.draft.differences
    assert "tokenizer" in alone.draft.differences
    assert "cutoff_len" not in alone.draft.differences


def test_pretraining_with_flash_attention_cuts_one_stream_of_texts() -> None:
    text = FACTORY.replace("stage: sft", "stage: pt") + "flash_attn: fa2\n"
    found = imported(text, *HARDWARE)
    assert not found.errors
    assert found.arguments["packing_strategy"] == "wrapped"
    assert "isolate" not in found.text
    assert "drops the incomplete sequence" in found.draft.differences["packing"]
    assert not any(
        "its own kernels keep them apart" in one or "attend to each other in" in one for one in found.messages
    )


def test_segments_with_labels_are_refused_with_the_way_out() -> None:
    found = imported(AXOLOTL.replace("type: alpaca", "type: input_output"), *HARDWARE)
    (output,) = [one for one in found.draft.messages if one.severity == "error"]
    assert "`label` says whether it is trained on" in output.text
    assert "`completion`" in output.help


def test_evaluation_default_is_dropped_without_an_evaluation() -> None:
    found = imported(FACTORY, *HARDWARE)
    assert "eval {" not in found.text
    assert "eval {\n  every = 500\n  micro = 8\n}" in imported(
        FACTORY + "eval_strategy: steps\neval_steps: 500\nval_size: 0.1\n", *HARDWARE
    ).text  # fmt: skip
    assert "eval {" not in imported(FACTORY + "per_device_eval_batch_size: 2\n", *HARDWARE).text


def test_a_value_that_is_left_to_the_default_is_not_written() -> None:
    """A bundle never runs Python code from the model's repository. So `trust_remote_code: true` becomes a comment, not
    a setting.
    """
    found = imported(
        FACTORY.replace("Qwen/Qwen2.5-7B-Instruct", "org/Qwen2.5-7B-mine") + "trust_remote_code: true\n", *HARDWARE
    )
    assert not found.errors
    assert "trust_remote_code = " not in found.text
    assert "# trust_remote_code: LLaMA-Factory runs code" in found.text
    assert found.outcomes["trust_remote_code"] == "reserved"


def test_a_small_number_is_written_as_one_writes_it() -> None:
    found = imported(FACTORY + "learning_rate: 1.0e-5\nadam_epsilon: 1e-10\n", *HARDWARE)
    assert "lr = 1e-5\n" in found.text
    assert "eps = 1e-10\n" in found.text


@pytest.mark.parametrize(
    ("folder", "family"),
    [("/data/models/Qwen1.5-0.5B", "qwen2"), ("models/deepseek-coder-6.7b-base/pt", "llama"),
     ("/m/deepseek-llm-7b-chat", "llama"), ("weight/granite-3.3-8b", "granite")],
)  # fmt: skip
def test_the_name_of_a_folder_gives_the_family(folder: str, family: str) -> None:
    found = imported(FACTORY.replace("Qwen/Qwen2.5-7B-Instruct", folder), *HARDWARE)
    assert not found.errors
    assert json.loads(found.draft.files["recipe.config.json"])["model_type"] == family


def test_folder_that_names_no_model_is_reported_immediately() -> None:
    found = imported(FACTORY.replace("Qwen/Qwen2.5-7B-Instruct", "/data/me"), *HARDWARE)
    assert any("no registered model" in one for one in found.messages)


def test_of_several_kernels_of_attention_axolotls_first_counts() -> None:
    found = imported(AXOLOTL + "sdp_attention: true\nflash_attention: true\n", *HARDWARE)
    assert not found.errors
    assert found.draft.settings["model.attn"].text == "flash2"
    assert found.outcomes["sdp_attention"] == "irrelevant"


def test_linear_layers_and_an_output_layer_are_listed_or_refused() -> None:
    base = AXOLOTL + "adapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\nlora_target_modules:\n"
    every = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "embed_tokens")
    found = imported(base + "".join(f"- {one}\n" for one in every), *HARDWARE)
    assert not found.errors
    assert found.payload["lora"]["targets"] == [*every]
    some = imported(base + "- q_proj\n- embed_tokens\n", *HARDWARE)
    assert any("adds all linear layers to the list" in one for one in some.messages)
    assert imported(base + "- q_proj\n", *HARDWARE).payload["lora"]["targets"] == "all-linear"


def test_wandb_run_id_is_the_name_of_an_unnamed_run() -> None:
    more = "wandb_project: toys\nwandb_run_id: third\n"
    assert imported(AXOLOTL + more, *HARDWARE).arguments["run_name"] == "third"
    assert imported(AXOLOTL + more + "wandb_name: first\n", *HARDWARE).arguments["run_name"] == "first"


def test_a_text_model_ignores_how_pictures_are_read_and_none_of_its_layers_may_be_trained() -> None:
    assert not imported(FACTORY + "image_max_pixels: 262144\nvideo_fps: 2\n", *HARDWARE).errors
    text = FACTORY.replace("finetuning_type: lora", "finetuning_type: freeze")
    found = imported(text + "freeze_trainable_layers: 0\nfreeze_extra_modules: embed_tokens\n", *HARDWARE)
    assert not found.draft.wrong, found.messages
    assert "except_last" not in found.text


def test_unknown_template_of_llamafactory_is_an_error_as_in_the_tool() -> None:
    found = imported(FACTORY.replace("template: qwen", "template: of_mine"), *HARDWARE)
    assert any("no such template, and refuses the file" in one for one in found.messages if "error" in one)


def test_a_mixer_has_a_configuration_for_each_data_set() -> None:
    mixed = OPEN_R1.replace("dataset_name: openai/gsm8k\n", "dataset_mixer:\n  org/more: 1.0\n  org/rows: 0.5\n")
    found = imported(mixed + "dataset_configs:\n- main\n- all\n", *HARDWARE, "--method", "sft")
    assert not found.errors
    assert [one["config"] for one in found.payload["data"]["sources"]] == ["main", "all"]
    assert imported(mixed + "dataset_configs:\n- main\n", *HARDWARE, "--method", "sft").draft.wrong


def test_trl_file_keeps_its_processes_and_a_newer_tracker() -> None:
    found = imported(OPEN_R1 + "num_processes: 4\nreport_to: trackio\n", "--method", "sft")
    assert not found.errors, found.errors
    assert found.draft.settings["hardware"].text == "4 x h100-80gb"
    assert found.arguments["report_to"] == ["trackio"]


def test_keys_of_pretraining_and_of_preferences_change_no_other_run() -> None:
    found = imported(AXOLOTL + "pretrain_multipack_attn: true\nmax_prompt_len: 512\n", *HARDWARE)
    assert not found.draft.wrong, found.messages
    assert not found.errors
    assert found.outcomes["pretrain_multipack_attn"] == "irrelevant"
    streamed = AXOLOTL.replace("datasets:", "pretraining_dataset:") + "sample_packing: true\nflash_attention: true\n"
    mixed = imported(streamed + "pretrain_multipack_attn: false\n", *HARDWARE)
    assert "attend to each other" in mixed.draft.differences["pretrain_multipack_attn"]
    pairs = AXOLOTL.replace("tatsu-lab/alpaca", "org/pairs").replace("type: alpaca", "type: chatml.intel")
    found = imported(pairs + "rl: dpo\nmax_prompt_len: 512\n", *HARDWARE)
    assert "max_prompt" not in found.text, "axolotl 0.19 reads it nowhere"
    assert any("`max_prompt_len`" in one and "older versions cut longer prompts" in one for one in found.messages)


def test_image_keys_are_irrelevant_for_a_text_model_in_a_folder() -> None:
    more = "image_max_pixels: 262144\nvideo_max_pixels: 16384\nfreeze_vision_tower: true\n"
    text = FACTORY.replace("Qwen/Qwen2.5-7B-Instruct", "/data/models/Qwen2.5-7B-Instruct")
    assert not imported(text + more, *HARDWARE).errors
    other = FACTORY.replace("Qwen/Qwen2.5-7B-Instruct", "/data/models/Qwen2.5-VL-7B-Instruct")
    assert imported(other + more, *HARDWARE).draft.wrong
