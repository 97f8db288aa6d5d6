"""A script may replace parts of its model, such as the attention. The import reports this, because the spec's run uses
the library's own model.
"""

from __future__ import annotations

import pytest
from import_support import convert

from xpc.compiler.importing.draft import Draft

LOADED = "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-3B')\n"


@pytest.mark.parametrize(("change", "key"), [
    ("for n, layer in enumerate(model.model.layers):\n    layer.self_attn = Attention()", "parameters"),
    ("for n, layer in enumerate(model.transformer.h):\n    layer.attn = Attention()", "model.attn"),
    ("for one, two in zip(model.model.layers, others):\n    one.self_attn = two", "parameters"),
    ("for n in range(28):\n    model.model.layers[n].self_attn = Attention()", "model.self_attn"),
    ("for layer in model.model.layers:\n    setattr(layer, 'self_attn', Attention())", "model.self_attn"),
    ("model.lm_head = torch.nn.Linear(8, 8)", "model.lm_head"),
    ("model.forward = types.MethodType(forward, model)", "model.forward"),
    ("model.model.embed_tokens.requires_grad_(False)", "model.requires_grad_"),
    ("transformers.models.qwen2.modeling_qwen2.Qwen2Attention.forward = forward",
     "transformers.models.qwen2.modeling_qwen2.Qwen2Attention.forward"),
    ("[setattr(one, 'requires_grad', False) for one in model.parameters()]", "parameters"),
    ("[one.requires_grad_(False) for name, one in model.named_parameters() if 'embed' in name]", "parameters"),
    ("for one in model.model.layers[:10]:\n    for part in one.parameters():\n        part.requires_grad = False",
     "parameters"),
    ("model.lm_head.weight.data.zero_()", "model.zero_"),
    ("model.lm_head.weight.data[0] = 0", "model.items"),
    ("transformers.Trainer.training_step = forward", "transformers.Trainer.training_step"),
    ("torch.nn.functional.cross_entropy = forward", "torch.nn.functional.cross_entropy"),
    ("del model.model.layers[4:]", "model.items"),
    ("model.load_state_dict(torch.load('w.pt'))", "model.load_state_dict"),
    ("model.load_adapter('org/adapter')", "model.load_adapter"),
    ("model.apply(forward)", "model.apply"),
    ("torch.nn.init.normal_(model.lm_head.weight)", "model.normal_"),
    ("model.to(torch.float32)", "model.to"),
    ("model.float()", "model.float"),
    ("model.config.update({'attention_dropout': 0.1})", "model.update"),
])  # fmt: skip
def test_a_replaced_part_of_the_model_is_an_error(change: str, key: str) -> None:
    assert key in [one.entry.key for one in _changed(change).messages if one.severity == "error" and one.entry]


@pytest.mark.parametrize("change", [
    "for n, layer in enumerate(model.model.layers):\n    print(n, layer)",
    "model.config.use_cache = False",
    "model.generation_config.temperature = 0.5",
    "model.is_parallelizable = True",
    "model.to('cuda')",
    "model = model.to(torch.bfloat16)",
    "for name, one in model.named_parameters():\n    if 'lora' in name:\n        one.requires_grad = True",
])  # fmt: skip
def test_what_replaces_nothing_is_no_error(change: str) -> None:
    assert not _changed(change).wrong


def test_a_replaced_attention_that_computes_the_same_is_a_warning() -> None:
    patch = "def flash_forward(self, x):\n    return x\n"
    found = _changed(f"{patch}transformers.models.llama.modeling_llama.LlamaAttention.forward = flash_forward")
    assert not found.wrong
    assert any("computes the attention by `flash_forward`" in one.text for one in found.messages)


def test_a_checkpoint_from_which_the_script_resumes_is_reported() -> None:
    found = _changed("", train="resume_from_checkpoint='old/checkpoint-5'")
    assert any("only from its own folder" in one.text for one in found.messages)
    assert not any("its own folder" in one.text for one in _changed("", train="resume_from_checkpoint=True").messages)


def test_what_happens_after_the_training_is_no_change() -> None:
    assert not _changed("", "model.load_state_dict(torch.load('w.pt'))\nmodel.to(torch.float32)\n").wrong


def _changed(change: str, after: str = "", train: str = "") -> Draft:
    head = "import types\nimport torch\nimport transformers\nfrom datasets import load_dataset\n"
    head += "from transformers import AutoModelForCausalLM\nfrom trl import SFTConfig, SFTTrainer\n"
    head += "class Attention(torch.nn.Module):\n    pass\ndef forward(self, x):\n    return x\n"
    tail = "\nSFTTrainer(model=model, args=SFTConfig(output_dir='out'), train_dataset=load_dataset('org/rows'))"
    tail += f".train({train})\n"
    return convert(head + LOADED + change + tail + after, name="train.py")[0]
