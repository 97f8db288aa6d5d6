"""For every published file of axolotl and LLaMA-Factory, the bundle states the arguments with which the tool would
train, or the import reports the difference. `make oracles` has recorded the tools' arguments.
"""

from __future__ import annotations

import glob
import json
import os
import sys

import oracle_support
import pytest
from import_support import ABSENT, HARDWARE, PUBLISHED, WHERE, imported

sys.path.append(oracle_support.FOLDER)

from file_cases import CASES, table

OUT_OF_SCOPE = {
    "axolotl/examples/distributed-parallel/llama-3_1-8b-hsdp-tp.yaml": "tensor parallelism",
    "axolotl/examples/distributed-parallel/qwen3-8b-fsdp-tp-cp.yaml": "tensor parallelism",
    "axolotl/examples/eaft/eaft-example.yml": "a trainer of axolotl's own",
    "axolotl/examples/ebft/llama-1b-ebft-strided-structured.yaml": "a trainer of axolotl's own",
    "axolotl/examples/ebft/qwen35-4b-ebft-structured.yaml": "a trainer of axolotl's own",
    "axolotl/examples/ebft/qwen35-9b-ebft-structured.yaml": "a trainer of axolotl's own",
    "axolotl/examples/expert_parallel/qwen3_30ba3b_ep_fft_4gpu.yaml": "expert parallelism",
    "axolotl/examples/expert_parallel/qwen3_30ba3b_ep_lora_4gpu.yaml": "expert parallelism",
    "axolotl/examples/falcon-e/falcon-e-3b-ft.yaml": "weights of 1.58 bits",
    "axolotl/examples/glm_moe_dsa/glm-5.2-nvfp4-lora.yaml": "expert parallelism",
    "axolotl/examples/llama-3/diffusion/pretrain-1b.yaml": "a trainer of axolotl's own",
    "axolotl/examples/llama-4/do-no-use-fa2/maverick-qlora-fsdp1.yaml": "a model of axolotl's own",
    "axolotl/examples/llama-4/do-no-use-fa2/scout-qlora-fsdp1.yaml": "a model of axolotl's own",
    "axolotl/examples/llama-4/scout-qlora-single-h100-flex.yaml": "a model of axolotl's own",
    "axolotl/examples/qat_nvfp4/Math-Gemma3-12B_qat.yml": "quantization-aware training",
    "axolotl/examples/qat_nvfp4/Math-Gemma3-27B_qat.yml": "quantization-aware training",
    "axolotl/examples/qwen3/8b-qat-fsdp2.yml": "quantization-aware training",
    "axolotl/examples/qwen3-next/qwen3-next-80b-a3b-nvfp4-lora.yaml": "weights of nvfp4",
    "axolotl/examples/mistral4/fft-text.yml": "axolotl refuses the file",
    "llamafactory/examples/extras/asft/qwen2_full_asft.yaml": "a loss of LLaMA-Factory's own",
    "llamafactory/examples/extras/mod/llama3_full_sft.yaml": "a model of LLaMA-Factory's own",
    "llamafactory/examples/ktransformers/train_lora/deepseek_v2_lora_sft_kt.yaml": "KTransformers",
    "llamafactory/examples/ktransformers/train_lora/qwen3_5moe_lora_sft_kt.yaml": "KTransformers",
    "llamafactory/examples/megatron/qwen3_moe_full.yaml": "Megatron",
    "llamafactory/examples/v1/train_batching_strategy/train_full_fsdp2_dynamic_padding_free.yaml":
        "a trainer of LLaMA-Factory's own",
    "llamafactory/examples/v1/train_full/train_full_muon.yaml": "a Muon of LLaMA-Factory's own, for FSDP2",
}  # fmt: skip
"""Maps files that are not counted to the reason. Only two reasons are allowed: the language excludes the file's
parallelism, trainer, weights or model, or the tool itself refuses the file.
"""
REFUSED = {
    "axolotl/examples/glm47-flash/lora_fsdp.yaml": "XP453",  # 8-bit base under FSDP.
    # The tokenizer comes from another repository than the model.
    "axolotl/examples/mamba/config.yml": "tokenizer_config",
    "axolotl/examples/mimo/mimo-7b-qlora.yaml": "XP701",  # Remote code without a pinned commit.
    "llamafactory/examples/ascend/qwen3moe_full_sft_fsdp.yaml": "XP480",  # FSDP is configured in accelerate's file.
}
"""Maps files whose spec does not compile. The value is the code of the error, or the key that the import refuses."""
ALONE = ("llamafactory/examples/extras/galore/llama3_full_sft.yaml",)
"""Files that the tool itself refuses on several GPUs. They are imported for one GPU."""
LEAST = {"axolotl": 0.9, "llamafactory": 0.95}


def files(tool: str) -> list[str]:
    found = glob.glob(os.path.join(PUBLISHED, tool, "**", "*.y*ml"), recursive=True)
    return sorted(os.path.relpath(path, PUBLISHED) for path in found)


def bring(name: str, tool: str = ""):
    if name.startswith("own/"):
        return imported(json.dumps(table(tool, name.removeprefix("own/"))), *HARDWARE)
    path = os.path.join(PUBLISHED, name)
    hardware = ("--hardware", "1 x h100-80gb") if name in ALONE else HARDWARE
    with open(path, encoding="utf-8") as handle:
        return imported(handle.read(), *hardware, name=path, root=os.path.dirname(path))


@pytest.mark.slow
@pytest.mark.parametrize("tool", LEAST)
def test_a_file_of_ours_means_what_the_tool_would_do_with_it(tool):
    own = {f"own/{name}" for name in CASES[tool]}
    known = oracle_support.records(tool)[1]
    assert own == {name for name in known if name.startswith("own/")}, "make oracles"
    for name in sorted(own):
        found = bring(name, tool)
        assert not found.draft.wrong, (name, found.messages)
        assert not found.errors, (name, found.errors)
        theirs = getattr(oracle_support, tool)(name)
        differ = oracle_support.differing(theirs, oracle_support.ours(found), found.draft.differences)
        assert not differ, (name, differ)


@pytest.mark.slow
@pytest.mark.skipif(ABSENT, reason=WHERE)
@pytest.mark.parametrize("tool", LEAST)
def test_what_the_tool_would_train_with_is_what_the_bundle_states(tool):
    _, known = oracle_support.records(tool)
    assert {name for name in known if not name.startswith("own/")} == set(files(tool)), "make oracles"
    compiled, images, unsaid = 0, 0, {}
    for name in files(tool):
        found = bring(name)
        if found.draft.wrong or found.errors:
            why = " ".join((*found.errors, *found.messages))
            if "XP130" in why:  # XP130: the model also reads images
                images += 1
                continue
            assert name in OUT_OF_SCOPE or REFUSED.get(name, "") in why, (name, found.errors, found.messages)
            assert name in OUT_OF_SCOPE or name in REFUSED, (name, found.errors, found.messages)
            continue
        compiled += name not in OUT_OF_SCOPE
        theirs = getattr(oracle_support, tool)(name)
        if theirs is not None:
            differ = oracle_support.differing(theirs, oracle_support.ours(found), found.draft.differences)
            unsaid.update({name: differ} if differ else {})
        for line in found.draft.differences.values():
            assert line.splitlines()[0] in found.text, "the spec must state a difference"
    assert not unsaid
    counted = [name for name in files(tool) if name not in OUT_OF_SCOPE]
    assert compiled >= LEAST[tool] * (len(counted) - images) - 1e-9, (compiled, len(counted), images)
