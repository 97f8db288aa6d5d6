"""A tiny model with a tokenizer like that of a family of chat models. The tests build both. The result is the same in
every environment.

As in a real byte-level BPE, tokens are bytes and some merged pairs of bytes. Some of these pairs join the last
character of a text with the first character that the chat template writes after it. So the tokens can depend on whether
text and template are encoded separately or together.
"""

from __future__ import annotations

import json
import os
from typing import Any

MERGES = (
    ("Ċ", "Ċ"), (":", "Ċ"), (".", "Ċ"), (".", "ĊĊ"), ("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("e", "r"),
    ("Ġ", "a"), ("o", "n"), ("u", "s"), ("us", "er"), (":", "Ġ"), ("Ġ", "I"), ("?", "Ċ"),
)  # fmt: skip
"""The merges of the tokenizers: each pair has two texts that become one token. `Ċ` stands for a line break and `Ġ` for
a space, as in byte-level tokenizers.
"""
SPLIT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""The regular expression by which Qwen's and Llama's tokenizers split a text before they merge bytes."""
MARKED = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
FAMILIES: dict[str, dict[str, Any]] = {
    "chatml": {
        "special": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], "words": ["<think>", "</think>"],
        "eos": "<|im_end|>", "pad": "<|endoftext|>", "bos": None, "template": MARKED,
    },
    "chatml-base": {
        "special": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], "words": ["<think>", "</think>"],
        "eos": "<|endoftext|>", "pad": "<|endoftext|>", "bos": None, "template": MARKED,
    },
    "llama3": {
        "special": ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        "words": [], "eos": "<|eot_id|>", "pad": "<|end_of_text|>", "bos": "<|begin_of_text|>", "template": None,
    },
    "plain": {"special": ["<s>", "</s>", "<unk>", "<pad>", "<end_of_turn>", "<|end|>"],
              "words": [], "eos": "</s>", "pad": "<pad>", "bos": "<s>",
              "template": None},
}  # fmt: skip
"""Maps each family of tokenizers to a dict: its control tokens, the words that are a single token, its end, padding and
begin tokens, and its chat template.
"""


def build(folder: str, family: str) -> None:
    """Write the tokenizer and the configuration of a tiny Llama into a folder."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    facts = FAMILIES[family]
    vocabulary: dict[str, int] = {}
    for piece in [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(one + two for one, two in MERGES)]:
        vocabulary.setdefault(piece, len(vocabulary))
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=list(MERGES)))
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(False, False, False),
    ])  # fmt: skip
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in facts["special"]])
    made.add_tokens([AddedToken(one, special=False, normalized=False) for one in facts["words"]])
    if facts["bos"]:
        made.post_processor = processors.TemplateProcessing(
            single=f"{facts['bos']} $A", pair=f"{facts['bos']} $A {facts['bos']} $B",
            special_tokens=[(facts["bos"], made.token_to_id(facts["bos"]))],
        )  # fmt: skip
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token=facts["bos"], eos_token=facts["eos"], pad_token=facts["pad"],
        chat_template=facts["template"], model_max_length=4096,
    )  # fmt: skip
    tokenizer.save_pretrained(folder)
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8, "intermediate_size": 16,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": len(tokenizer),
        "max_position_embeddings": 4096, "tie_word_embeddings": True, "torch_dtype": "float32",
        "bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }  # fmt: skip
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as handle:
        json.dump(config, handle)
