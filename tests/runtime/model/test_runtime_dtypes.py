"""The weights of a model get the dtypes that the bundle states. Cases are adapters that TRL has rounded, bases of
another dtype, and dtypes that the libraries cannot keep.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_features import read
from runtime_bundles import LORA, plan, source, write

from xpc.runtime.core.errors import RunError
from xpc.runtime.core.feature import Bundle
from xpc.runtime.features.model import adapters, weight_dtypes

pytestmark = pytest.mark.slow


def made(tmp_path: Path, dtype: str = "float32", **changes: Any) -> Bundle:
    """A bundle with adapters on a 4-bit base."""
    facts = plan("tiny", [source("rows.jsonl")])
    facts["lora"] = {**LORA, "bits": 4}
    facts["model"]["dtype"] = dtype
    facts["arguments"].update(bf16=False, fp16=False)
    facts["arguments"].update(changes)
    return read(write(str(tmp_path / "made.bundle"), facts))


def small(**more: Any) -> Any:
    """A model with two layers and seeded random weights."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(1)
    sizes = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return Qwen2ForCausalLM(Qwen2Config(**sizes, **heads, **more))


def rounded(model: Any) -> None:
    """Convert the trained weights of a model with a quantized base to bf16, as trl 1.16 does (sft_trainer.py, "When
    using QLoRA").
    """
    import torch

    for name, weight in model.named_parameters():
        if weight.requires_grad and "lora_magnitude_vector" not in name:
            weight.data = weight.data.to(torch.bfloat16)


@pytest.mark.parametrize("kept_in", ["float32", "bfloat16"])
def test_adapters_are_what_peft_made_where_the_bundle_says_float32(tmp_path: Path, kept_in: str) -> None:
    import torch
    from peft import LoraConfig, get_peft_model

    bundle = made(tmp_path)
    assert bundle.lora is not None
    bundle.lora["adapter_dtype"] = kept_in
    module = SimpleNamespace(get_peft_model=get_peft_model)
    config = LoraConfig(target_modules=["q_proj"], modules_to_save=["lm_head"])
    kept: dict[str, Any] = {}
    with weight_dtypes.unrounded(bundle, module, kept):
        model = module.get_peft_model(small(), config)
        first = {name: weight.detach().clone() for name, weight in model.named_parameters() if weight.requires_grad}
        rounded(model)
    assert module.get_peft_model is get_peft_model
    weight_dtypes.restore(model, kept)
    weights = dict(model.named_parameters())
    # `modules_to_save` makes copies of base weights, and rounding would change these copies
    assert any("modules_to_save" in name for name in first)
    assert {weights[name].dtype for name in first} == {getattr(torch, kept_in)}
    assert all(torch.equal(weights[name], first[name]) for name in first) is (kept_in == "float32")


def test_adapters_are_wide_again_before_deepspeed_shards_them(tmp_path: Path) -> None:
    """If the reference is precomputed, TRL's DPO and KTO trainers already prepare the model for DeepSpeed in their
    constructors. The adapters must be float32 again before that.
    """
    import torch
    from peft import LoraConfig, get_peft_model

    bundle, seen = made(tmp_path), []
    assert bundle.lora is not None
    bundle.lora["adapter_dtype"] = "float32"

    def prepare(model: Any, accelerator: Any) -> Any:
        seen.extend(weight.dtype for weight in model.parameters() if weight.requires_grad)
        return accelerator

    module = SimpleNamespace(get_peft_model=get_peft_model, prepare_deepspeed=prepare)
    with weight_dtypes.unrounded(bundle, module, {}):
        model = module.get_peft_model(small(), LoraConfig(target_modules=["q_proj"]))
        rounded(model)
        assert module.prepare_deepspeed(model, "an accelerator") == "an accelerator"
    assert seen
    assert set(seen) == {torch.float32}
    assert module.prepare_deepspeed is prepare


@pytest.mark.parametrize(("fp16", "computed"), [(False, "float32"), (True, "float16")])
def test_a_base_that_was_quantized_before_computes_in_the_precision(tmp_path: Path, fp16: bool, computed: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    plain, packed = str(tmp_path / "plain"), str(tmp_path / "packed")
    small().to(torch.bfloat16).save_pretrained(plain)
    four = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16, bnb_4bit_quant_type="nf4")
    AutoModelForCausalLM.from_pretrained(plain, dtype=torch.bfloat16, quantization_config=four).save_pretrained(packed)
    model = AutoModelForCausalLM.from_pretrained(packed, dtype=torch.float32)
    layer = model.model.layers[0].mlp.up_proj
    assert (layer.compute_dtype, layer.weight.quant_state.dtype) == (torch.bfloat16, torch.bfloat16)
    codes = layer.weight.data.clone()
    bundle = made(tmp_path, fp16=fp16)
    weight_dtypes.WeightDtypes().model_loaded(bundle, model, None)
    stated = getattr(torch, computed)
    assert (layer.compute_dtype, layer.weight.quant_state.dtype) == (stated, stated)
    assert layer.weight.dtype == torch.uint8
    assert torch.equal(layer.weight.data, codes)
    assert torch.bfloat16 not in {one.dtype for one in (*model.parameters(), *model.buffers())}
    weight_dtypes.check(bundle, model)
    if not fp16:
        assert model(input_ids=torch.arange(1, 20)[None]).logits.dtype == torch.float32


def test_a_weight_that_is_narrowed_without_a_word_stops_the_run(tmp_path: Path) -> None:
    import torch

    model = small()
    model.lm_head.weight.data = model.lm_head.weight.data.to(torch.bfloat16)
    with pytest.raises(RunError, match=r"lm_head\.weight is bfloat16, and this bundle trains in float32 without bf16"):
        weight_dtypes.check(made(tmp_path / "fp32"), small(), model)
    weight_dtypes.check(made(tmp_path / "bf16", bf16=True), model)
    weight_dtypes.check(made(tmp_path / "weights", dtype="bfloat16"), model)
    weight_dtypes.WeightDtypes().model_loaded(made(tmp_path / "settled"), model, None)
    weight_dtypes.check(made(tmp_path / "again"), model)


def test_four_bits_on_a_cpu_still_send_gradients_back_after_an_evaluation(tmp_path: Path) -> None:
    """After an evaluation, the adapters of lower layers still learn: a 4-bit layer on a CPU passes the same gradient to
    its input as before the evaluation.
    """
    import bitsandbytes
    import torch

    def gradient(layer: Any) -> torch.Tensor:
        given = torch.ones(2, 64, dtype=torch.bfloat16, requires_grad=True)
        layer(given).float().square().sum().backward()
        assert given.grad is not None
        return given.grad

    torch.manual_seed(1)
    layer = bitsandbytes.nn.Linear4bit(64, 64, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4").to("cpu")
    # act as a CPU with AVX512-BF16, on which bitsandbytes packs weights in another layout
    layer.support_avx512bf16_for_cpu = True
    # before the trainer is made: kto's trainer computes its reference when it is made
    adapters.Adapters().trainer_options(made(tmp_path), torch.nn.Sequential(layer), dict, {})
    assert not layer.support_avx512bf16_for_cpu
    before = gradient(layer)
    layer.eval()
    with torch.no_grad():
        layer(torch.ones(2, 64, dtype=torch.bfloat16))
    layer.train()
    assert before.abs().sum() > 0
    assert torch.equal(gradient(layer), before)
