"""Published files of TRL's recipes: every key has an outcome, and the bundle has the recipe's arguments."""

from __future__ import annotations

import glob
import json
import os

import pytest
from import_support import ABSENT, HARDWARE, PUBLISHED, REPOSITORY, WHERE, convert, imported, unaccounted

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.importing.text import yaml as yamltext
from xpc.compiler.pipeline import compile_text

pytestmark = pytest.mark.skipif(ABSENT, reason=WHERE)


def files(pattern: str) -> list[str]:
    return sorted(glob.glob(os.path.join(PUBLISHED, pattern), recursive=True))


RECIPES = [one for one in files("*/recipes/**/*.yaml") if "accelerate_configs" not in one]
AXOLOTL, LLAMAFACTORY = files("axolotl/**/*.y*ml"), files("llamafactory/**/*.yaml")


def short(path: str) -> str:
    return os.path.relpath(path, PUBLISHED)


def text_of(path: str) -> str:
    with open(path, encoding="utf-8") as handle:
        return handle.read()


def bring(path: str, *arguments: str):
    return imported(text_of(path), *HARDWARE, *arguments, name=path, root=os.path.dirname(path))


RENAMED = {"max_seq_length": "max_length", "torch_dtype": None, "gradient_checkpointing": "activation_checkpointing",
           "gradient_checkpointing_kwargs": "activation_checkpointing_kwargs", "hub_model_revision": "hub_revision",
           "warmup_ratio": "warmup_steps"}  # fmt: skip
"""Maps arguments of the recipes to their names on trl-1.16. On trl-0.18, they have the same names as in the recipes."""
ELSEWHERE = {
    "hub_model_id": "stated where something is pushed", "hub_strategy": "stated where something is pushed",
    "hub_private_repo": "stated where something is pushed", "hub_model_revision": "stated where something is pushed",
    "lr_scheduler_type": "the language's cosine is cosine_with_min_lr where it has a floor",
    "lr_scheduler_kwargs": "with the defaults of the schedule beside it",
    "use_liger_kernel": "trl-1.16 applies it in the runtime", "trust_remote_code": "stated with the model on trl-1.16",
    "num_train_epochs": "steps decide where they are set", "padding_free": "trl-1.16 pads in DPO",
    "packing_strategy": "no TRL has ffd", "eos_token": "stated with the tokenizer, too",
    "reward_weights": "beside the rewards", "max_prompt_length": "stated with the data on trl-1.16",
    "evaluation_strategy": "an older name", "eval_steps": "read where steps decide",
    "average_tokens_across_devices": "off on one process", "per_device_eval_batch_size": "whole groups in GRPO",
    "dataset_kwargs": "no version of the targets reads these keys of it", "loss_type": "a list on trl-1.16",
    "do_eval": "follows eval_strategy", "optim": "by its name in the target",
}  # fmt: skip
"""Maps keys whose value the bundle states in another form or place to this form or place. The tests of single keys
check these values.
"""


@pytest.mark.parametrize("path", RECIPES, ids=short)
def test_a_recipe_of_the_hugging_face_family_keeps_its_arguments(path):
    # The handbook's README launches adapters with accelerate's plain data parallelism.
    launched = "ddp.yaml" if "qlora" in path else "zero3.yaml"
    family = os.path.join(PUBLISHED, short(path).split(os.sep)[0], "recipes", "accelerate_configs", launched)
    found = bring(path, "--accelerate", family)
    table = yamltext.read(text_of(path), path)
    assert unaccounted(found.draft, table) == []
    assert unaccounted(found.draft, yamltext.read(text_of(family), family)) == []
    assert not found.draft.wrong, found.messages
    if "code" in path:
        judged = [one for one in found.errors if "rewards.py" not in one and "groups of 14" not in one]
        # Two errors are expected: the user must supply these rewards, and a group of 14 completions does not fit seven
        # processes.
        assert not judged, judged
        return
    stated = found.arguments
    for key, entry in table.items():
        name = key if key in stated else RENAMED.get(key)
        if name is None or name not in stated or key in ELSEWHERE or entry.value is None:
            continue
        value = entry.value
        if isinstance(value, dict):
            value = {inner: one.value for inner, one in value.items()}
        elif isinstance(value, list):
            value = [one.value for one in value]
        elif value is False and key.endswith("_strategy"):
            value = "no"
        assert stated[name] == value, key


@pytest.mark.parametrize("path", files("*/recipes/accelerate_configs/*.yaml"), ids=short)
def test_an_accelerate_file_becomes_a_strategy(path):
    draft, spec = convert(text_of(path), name=path)
    assert unaccounted(draft, yamltext.read(text_of(path), path)) == []
    assert not draft.wrong
    assert "strategy " in spec


IMPOSSIBLE = {
    "axolotl/examples/distributed-parallel/llama-3_1-8b-hsdp-tp.yaml": "tensor_parallel_size",
    "axolotl/examples/distributed-parallel/qwen3-8b-fsdp-tp-cp.yaml": "tensor_parallel_size",
    "axolotl/examples/eaft/eaft-example.yml": "use_eaft",
    "axolotl/examples/ebft/llama-1b-ebft-strided-structured.yaml": "ebft",
    "axolotl/examples/ebft/qwen35-4b-ebft-structured.yaml": "ebft",
    "axolotl/examples/ebft/qwen35-9b-ebft-structured.yaml": "ebft",
    "axolotl/examples/expert_parallel/qwen3_30ba3b_ep_fft_4gpu.yaml": "expert_parallel_size",
    "axolotl/examples/expert_parallel/qwen3_30ba3b_ep_lora_4gpu.yaml": "expert_parallel_size",
    "axolotl/examples/falcon-e/falcon-e-3b-ft.yaml": "use_onebitllms",
    "axolotl/examples/glm_moe_dsa/glm-5.2-nvfp4-lora.yaml": "expert_parallel_size",
    "axolotl/examples/llama-3/diffusion/pretrain-1b.yaml": "diffusion",
    "axolotl/examples/llama-4/do-no-use-fa2/maverick-qlora-fsdp1.yaml": "llama4_linearized_experts",
    "axolotl/examples/llama-4/do-no-use-fa2/scout-qlora-fsdp1.yaml": "llama4_linearized_experts",
    "axolotl/examples/llama-4/scout-qlora-single-h100-flex.yaml": "llama4_linearized_experts",
    "axolotl/examples/mamba/config.yml": "tokenizer_config",
    "axolotl/examples/qat_nvfp4/Math-Gemma3-12B_qat.yml": "qat",
    "axolotl/examples/qat_nvfp4/Math-Gemma3-27B_qat.yml": "qat",
    "axolotl/examples/qwen3/8b-qat-fsdp2.yml": "qat",
    "axolotl/examples/qwen3-next/qwen3-next-80b-a3b-nvfp4-lora.yaml": "nvfp4_merge_aware",
    "llamafactory/examples/extras/asft/qwen2_full_asft.yaml": "use_asft_loss",
    "llamafactory/examples/extras/mod/llama3_full_sft.yaml": "mixture_of_depths",
    "llamafactory/examples/ktransformers/train_lora/deepseek_v2_lora_sft_kt.yaml": "use_kt",
    "llamafactory/examples/ktransformers/train_lora/qwen3_5moe_lora_sft_kt.yaml": "use_kt",
    "llamafactory/examples/megatron/qwen3_moe_full.yaml": "pipeline_model_parallel_size",
    "llamafactory/examples/v1/train_batching_strategy/train_full_fsdp2_dynamic_padding_free.yaml": "batching_strategy",
}
"""Maps each file to its key that has no equivalent in TRL, PEFT and accelerate."""


@pytest.mark.slow
@pytest.mark.parametrize("paths", [AXOLOTL, LLAMAFACTORY], ids=["axolotl", "llamafactory"])
def test_the_examples_of_other_tools_are_accounted_for(paths):
    refused = {}
    for path in paths:
        draft, _ = convert(text_of(path), *HARDWARE, name=path, folder=os.path.dirname(path))
        assert unaccounted(draft, yamltext.read(text_of(path), path)) == [], path
        wrong = {one.key for one in draft.outcomes.values() if one.outcome == "error"}
        if short(path) in IMPOSSIBLE:
            assert IMPOSSIBLE[short(path)] in wrong, (path, wrong)
        elif wrong:
            refused[short(path)] = wrong
    assert not refused


PAIRS = {
    "open-r1/recipes/OlympicCoder-7B/sft/config_v00.00.yaml": "qwen2.5-coder-7b-codeforces-cots-8xh100",
    "open-r1/recipes/OpenR1-Distill-7B/sft/config_distill.yaml": "qwen2.5-math-7b-mixture-of-thoughts-8xh100",
    "alignment-handbook/recipes/zephyr-7b-beta/dpo/config_full.yaml": "zephyr-7b-sft-ultrafeedback-dpo-8xh100",
    "alignment-handbook/recipes/smollm3/dpo/apo.yaml": "smollm3-3b-apo-16xh100",
    "alignment-handbook/recipes/smollm3/sft/sft.yaml": "smollm3-3b-sft-64xh100",
}
OTHERWISE = ("push_to_hub", "hub_", "run_name", "hub_model_id")
"""Arguments that the hand-written specs do not state: those for the hub, and the name of the run."""


@pytest.mark.parametrize(("path", "spec"), PAIRS.items(), ids=lambda one: os.path.basename(one))
def test_the_arguments_are_those_of_the_spec_written_by_hand(path, spec):
    recipe = os.path.join(PUBLISHED, path)
    family = os.path.join(PUBLISHED, path.split("/")[0], "recipes", "accelerate_configs", "zero3.yaml")
    with open(os.path.join(REPOSITORY, "specs", f"{spec}.xp"), "rb") as handle:
        bundle, checked = compile_text(handle.read(), f"{spec}.xp", Workspace(os.path.join(REPOSITORY, "specs")))
    assert bundle is not None, checked.problems
    theirs = json.loads(bundle["trainer_args.json"])
    nodes = str(theirs["run"]["nodes"])
    ours = bring(recipe, "--accelerate", family, "--nodes", nodes).payload
    for section in ("model", "method", "lora", "run"):
        assert ours[section] == theirs[section], section
    differ = {
        name: (value, theirs["arguments"].get(name))
        for name, value in ours["arguments"].items()
        if value != theirs["arguments"].get(name) and not name.startswith(OTHERWISE)
    }
    if ours["arguments"]["eval_strategy"] == "no":
        # if a recipe has no evaluation, the importer does not state transformers' default batch size for evaluations
        differ.pop("per_device_eval_batch_size", None)
    assert not differ
