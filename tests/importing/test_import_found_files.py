"""Features of public files. In a first sample of 368 files, the import once refused or misread each of them. Each
feature is tested here with a similar file.
"""

from __future__ import annotations

import json

import pytest
from import_support import HARDWARE, HEAD, Imported, imported

from xpc.compiler.importing.text.entries import Unreadable

pytestmark = pytest.mark.slow

GRPO = HEAD + "reward_funcs: [accuracy]\nnum_generations: 4\nper_device_train_batch_size: 4\n"
AXOLOTL = (
    "base_model: Qwen/Qwen2.5-7B\nmicro_batch_size: 1\ngradient_accumulation_steps: 2\nlearning_rate: 1e-4\n"
    "optimizer: adamw_torch\ndatasets:\n  - path: org/rows\n    type: sharegpt\n"
)


@pytest.mark.parametrize(("word", "mark"), [("chatml", "<|im_start|>"), ("llama-3", "<|start_header_id|>")])
def test_conversation_of_sharegpt_is_the_template(word: str, mark: str) -> None:
    found = imported(AXOLOTL + f"    conversation: {word}\n", *HARDWARE)
    assert mark in found.draft.files["recipe.chat_template.jinja"].decode()
    assert found.outcomes["datasets[0].conversation"] == "mapped"


def test_conversation_without_a_template_is_an_error() -> None:
    assert imported(AXOLOTL + "    conversation: vicuna_v1.1\n", *HARDWARE).draft.wrong


@pytest.mark.parametrize(
    ("more", "gpus", "micro"),
    [("num_processes: 7\n", "7 x h100-80gb", 4), ("num_processes: 8\n", "8 x h100-80gb", 4), ("", "8 x h100-80gb", 4)],
)
def test_vllms_gpu_trains_nothing(more: str, gpus: str, micro: int) -> None:
    found = imported(GRPO + "use_vllm: true\nvllm_device: cuda:7\n" + more, *HARDWARE)
    assert f"hardware {gpus}" in found.text
    assert "mode = server" in found.text
    assert found.draft.trl == "0.15"


def test_colocated_vllm_takes_no_gpu_away() -> None:
    found = imported(GRPO + "use_vllm: true\nvllm_mode: colocate\nnum_processes: 7\n", *HARDWARE)
    assert "hardware 8 x h100-80gb" in found.text


@pytest.mark.parametrize(("size", "steps"), [(32, 1), (128, 4)])
def test_generation_batch_size_is_steps(size: int, steps: int) -> None:
    found = imported(GRPO + f"generation_batch_size: {size}\ngradient_accumulation_steps: 4\n", *HARDWARE)
    assert found.arguments["steps_per_generation"] == steps
    assert imported(GRPO + "generation_batch_size: 33\n", *HARDWARE).draft.wrong


def test_older_name_with_the_same_value_is_no_conflict() -> None:
    assert not imported(HEAD + "use_liger: true\nuse_liger_kernel: true\n", *HARDWARE).draft.wrong
    assert imported(HEAD + "use_liger: true\nuse_liger_kernel: false\n", *HARDWARE).draft.wrong


def test_handbook_file_with_dataset_dir_is_no_llamafactory_file() -> None:
    found = imported("model_name_or_path: Qwen/Qwen2.5-3B\ndataset_mixer:\n  a/b: 1.0\ndataset_dir: x\n", *HARDWARE)
    assert "train Qwen/Qwen2.5-3B on" in found.text
    assert "a/b" in found.text


def launched(accelerate: str, tmp_path, *more: str, recipe: str = HEAD) -> Imported:
    (tmp_path / "acc.yaml").write_text(accelerate)
    return imported(recipe, "--accelerate", str(tmp_path / "acc.yaml"), *more)


def test_mesh_counts_the_processes(tmp_path) -> None:
    text = (
        "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
        "parallelism_config:\n  parallelism_config_dp_shard_size: 16\n"
    )
    found = launched(text, tmp_path)
    assert "hardware 8 x h100-80gb\n" in found.text
    assert "nodes 2\n" in found.text
    assert "nodes" not in launched(text.replace("16", "4"), tmp_path).text
    assert "hardware 4 x" in launched(text.replace("16", "4"), tmp_path).text
    assert "hardware 8 x" in launched(text + "num_processes: 8\nnum_machines: 1\n", tmp_path).text
    of_a_gpu = launched(text + "num_processes: 4\nnum_machines: 1\n", tmp_path, "--hardware", "a100-80gb").text
    assert "hardware 4 x a100-80gb" in of_a_gpu


def test_fsdp_recomputes_activations_where_the_trainer_does_not(tmp_path) -> None:
    """transformers refuses FSDP's checkpointing together with the trainer's, so such files turn the trainer's off."""
    text = "distributed_type: FSDP\nfsdp_config:\n  fsdp_activation_checkpointing: {}\nnum_processes: 4\n"
    for off in ("gradient_checkpointing: false\n", ""):
        found = launched(text.format("true"), tmp_path, recipe=HEAD + off)
        assert not found.draft.wrong, found.messages
        assert "memory {\n  checkpointing\n}" in found.text
    found = launched(text.format("false"), tmp_path, recipe=HEAD + "gradient_checkpointing: false\n")
    assert "checkpointing\n" not in found.text.replace("checkpointing = false", "")


def test_deepspeed_file_decides_over_multi_gpu(tmp_path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": {"stage": 3}}))
    found = launched("distributed_type: MULTI_GPU\nnum_processes: 8\n", tmp_path, "--deepspeed",
                     str(tmp_path / "ds.json"))  # fmt: skip
    assert "strategy zero3" in found.text


@pytest.mark.parametrize(("backend", "compiles"), [("INDUCTOR", True), ("NO", False), ("no", False)])
def test_dynamo_inductor_becomes_compilation_and_others_are_refused(backend: str, compiles: bool, tmp_path) -> None:
    text = f"distributed_type: MULTI_GPU\ndynamo_config:\n  dynamo_backend: {backend}\n  dynamo_mode: default\n"
    found = launched(text, tmp_path, *HARDWARE)
    assert not found.draft.wrong, found.messages
    assert found.arguments.get("torch_compile", False) is compiles
    assert launched(text.replace(backend, "EAGER"), tmp_path).draft.wrong


@pytest.mark.parametrize(
    "block",
    [
        '"tensorboard": {"enabled": true, "output_path": "x"}',
        '"csv_monitor": {"enabled": true}',
        '"monitor_config": {"enabled": true, "tag": "x"}',
        '"flops_profiler": {"enabled": true, "profile_step": 5}',
        '"activation_checkpointing": {"partition_activations": true, "cpu_checkpointing": true}',
        '"seq_parallel_communication_data_type": "bf16"',
        '"elasticity": {"enabled": false, "max_train_batch_size": 2000}',
    ],
)
def test_deepspeed_blocks_without_effect_are_ignored(block: str, tmp_path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, ' + block + "}")
    found = imported(HEAD, "--deepspeed", str(tmp_path / "ds.json"), *HARDWARE)
    assert not found.errors
    assert not found.draft.wrong, found.messages


def test_elastic_training_is_refused(tmp_path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "elasticity": {"enabled": true}}')
    found = imported(HEAD, "--deepspeed", str(tmp_path / "ds.json"), *HARDWARE)
    assert any("a fixed number of processes" in one for one in found.messages)


def test_deepspeed_keys_in_accelerates_block_have_no_effect(tmp_path) -> None:
    found = launched(
        "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n  overlap_comm: true\n", tmp_path
    )
    assert not found.draft.wrong
    assert any("does not pass this key on" in one for one in found.messages)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("merge_method: ties\nmodels:\n  - model: a/b\nbase_model: a/c\n", "merge configuration"),
        ("slices:\n  - sources:\n      - model: a/b\ndtype: bfloat16\n", "merge configuration"),
        ("model_name_or_path: a/b\nadapter_name_or_path: x\ntemplate: qwen\nexport_dir: y\n", "exports"),
        ("model_name_or_path: a/b\ntemplate: qwen\ninfer_backend: vllm\n", "inference"),
        ("model_name_or_path: a/b\ntemplate: qwen\nadapter_name_or_path: x\n", "inference"),
        ("model_name_or_path: a/b\nmax_new_tokens: 5\ntemperature: 0.1\n", "inference"),
        ("model_name_or_path: a/b\nstage: sft\ntemplate: qwen\ndo_predict: true\neval_dataset: x\n", "predicts"),
        ("model_name_or_path: a/b\ntask: mmlu_test\nn_shot: 5\ntemplate: qwen\n", "evaluates"),
    ],
)
def test_files_that_train_nothing_are_named(text: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        imported(text)


def test_home_folder_is_not_written() -> None:
    found = imported("model_name_or_path: ~/models/Qwen2.5-3B\ndataset_name: a/b\noutput_dir: ~/out\n", *HARDWARE)
    assert "~" not in found.text
    assert '"./models/Qwen2.5-3B"' in found.text
    assert 'save "out"' in found.text


def test_torchtunes_folder_with_an_underscore_is_the_hubs_model() -> None:
    text = (
        "model:\n  _component_: torchtune.models.qwen2_5.qwen2_5_3b\ncheckpointer:\n"
        "  _component_: torchtune.training.FullModelHFCheckpointer\n  checkpoint_dir: /tmp/Qwen2_5-3B-Instruct\n"
        "dataset:\n  _component_: torchtune.datasets.alpaca_dataset\nbatch_size: 2\nepochs: 1\n"
        "optimizer:\n  _component_: torch.optim.AdamW\n  lr: 2e-5\nloss:\n"
        "  _component_: torchtune.modules.loss.LinearCrossEntropyLoss\n"
    )
    assert "train Qwen/Qwen2.5-3B-Instruct on" in imported(text, *HARDWARE).text


def test_reward_head_of_llamafactory_is_another_one() -> None:
    text = (
        "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\nstage: rm\ndo_train: true\nfinetuning_type: lora\n"
        "dataset: dpo_en_demo\ntemplate: qwen\noutput_dir: out\nbf16: true\n"
    )
    assert "a bias and a dropout of 0.1" in imported(text, *HARDWARE).draft.differences["stage"]
