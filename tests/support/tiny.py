"""Build a tiny model and its tokenizer when a test needs them, without a download.

``build(folder)`` writes a Qwen2 model with random weights (2 layers, hidden size 64). It also trains a byte-level BPE
tokenizer on the given texts, and writes it with a ChatML template. This works with transformers 4.52 and 5.23. As a
script: ``python tiny.py FOLDER [SEED]``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ message['content'] }}<|im_end|>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
COLOURS = ("red", "green", "blue", "black", "white", "brown", "yellow", "grey")
THINGS = ("apple", "river", "house", "stone", "cloud", "horse", "chair", "lamp")


def conversations(rows: int) -> list[list[dict[str, str]]]:
    """Make ``rows`` conversations of questions and answers. Their pattern is so simple that a tiny model learns it in a
    few steps.
    """
    made = []
    for i in range(rows):
        thing, colour = THINGS[i % len(THINGS)], COLOURS[(i // len(THINGS)) % len(COLOURS)]
        made.append(
            [
                {"role": "user", "content": f"What colour is the {colour} {thing}?"},
                {"role": "assistant", "content": f"The {thing} is {colour}."},
            ]
        )
    return made


def write_messages(path: str, rows: int) -> None:
    """Write a JSON Lines file of ``rows`` conversations, each as ``{"messages": [...]}``."""
    with open(path, "w", encoding="utf-8", newline="\n") as out:
        for conversation in conversations(rows):
            out.write(json.dumps({"messages": conversation}) + "\n")


def build(
    folder: str,
    texts: Sequence[str] | None = None,
    *,
    vocab: int = 1024,
    context: int = 512,
    seed: int = 0,
    **sizes: int,
) -> int:
    """Write config.json, model.safetensors (float32) and the tokenizer's files into ``folder``.

    ``sizes`` are arguments of Qwen2Config, such as ``hidden_size=256``. Returns the number of parameters.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    os.makedirs(folder, exist_ok=True)
    if texts is None:
        texts = [message["content"] for row in conversations(64) for message in row]
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    tokenizer: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call, unused-ignore]
        tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=context
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = Qwen2Config(
        **{**SIZES, **sizes},
        vocab_size=vocab,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen2ForCausalLM(config)
    model.save_pretrained(folder)
    return sum(one.numel() for one in model.parameters())


def store_in_fp8(folder: str, out: str, block: int = 32) -> None:
    """Copy the model in ``folder`` to ``out``, with the weights of its projections in fp8. Each block of ``block`` x
    ``block`` values has a scale. DeepSeek-V3 and the `-FP8` versions of Qwen3 are published in this format.
    """
    import shutil

    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, out, dirs_exist_ok=True)
    weights, stored = load_file(os.path.join(folder, "model.safetensors")), {}
    for name, one in weights.items():
        if not name.endswith("_proj.weight"):
            stored[name] = one
            continue
        rows, columns = one.shape
        blocks = one.reshape(rows // block, block, columns // block, block)
        scale = blocks.abs().amax((1, 3)) / torch.finfo(torch.float8_e4m3fn).max
        packed = (blocks / scale[:, None, :, None]).reshape(rows, columns)
        stored[name], stored[f"{name}_scale_inv"] = packed.to(torch.float8_e4m3fn), scale
    save_file(stored, os.path.join(out, "model.safetensors"), metadata={"format": "pt"})
    path = os.path.join(out, "config.json")
    with open(path, encoding="utf-8") as handle:
        config = json.load(handle)
    how = {"quant_method": "fp8", "weight_block_size": [block, block], "modules_to_not_convert": ["lm_head"]}
    with open(path, "w", encoding="utf-8") as handle:
        json.dump(config | {"quantization_config": how}, handle)


def store_in_mxfp4(out: str) -> None:
    """Write a tiny gpt-oss with random values into ``out``. As in the published model, the experts are stored in MXFP4:
    32 values of 4 bits take 16 bytes, and share an exponent. All other weights are float32.
    """
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import AutoModelForCausalLM, GptOssConfig

    torch.manual_seed(0)
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    experts_of = {"num_local_experts": 4, "num_experts_per_tok": 2}
    config = GptOssConfig(
        hidden_size=64, intermediate_size=64, num_hidden_layers=2, vocab_size=300, **heads, **experts_of
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(out)
    stored = {}
    for name, one in load_file(os.path.join(out, "model.safetensors")).items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            stored[name] = one
            continue
        experts, columns, rows = one.shape
        blocks = (experts, rows, columns // 32)
        stored[f"{name}_blocks"] = torch.randint(0, 256, (*blocks, 16), dtype=torch.uint8)
        stored[f"{name}_scales"] = torch.full(blocks, 120, dtype=torch.uint8)
    save_file(stored, os.path.join(out, "model.safetensors"), metadata={"format": "pt"})
    path = os.path.join(out, "config.json")
    with open(path, encoding="utf-8") as handle:
        written = json.load(handle)
    plain = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    with open(path, "w", encoding="utf-8") as handle:
        json.dump(written | {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": plain}}, handle)


if __name__ == "__main__":
    build(sys.argv[1], seed=int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    write_messages(os.path.join(sys.argv[1], "messages.jsonl"), 64)
