"""Builds the quickstart's model on the spot: random weights and a tokenizer trained on the shipped data; no download.

    python specs/quickstart/build_model.py [OUT] [--force]

OUT (default: `model` next to this script) becomes a normal model folder: config.json, model.safetensors, the
tokenizer's files and a ChatML template. The same seed gives the same weights. An existing folder is kept;
`--force` builds it again, but never replaces a folder with other files. The model is built in a
folder next to OUT and moved there when complete, so OUT is complete or absent. Runs on transformers 4.52 and 5.x.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sys
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "data.jsonl")

SEED = 8
VOCABULARY = 512
CONTEXT = 128
HIDDEN = 128
LAYERS = 4
HEADS = 4
INTERMEDIATE = 384
# The usual value is 0.02, for wide models. With 0.02, the loss of this narrow model hardly falls in the first hundred
# steps.
INITIALIZER_RANGE = 0.06

PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
# ChatML; with the generation markers a trainer can compute the loss on the assistant's tokens only.
CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{%- if message['role'] == 'assistant' %}"
    "{{- '<|im_start|>assistant\\n' }}{% generation %}{{- message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{{- '\\n' }}"
    "{%- else %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)

REQUIRED = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
WRITTEN = REQUIRED | {"generation_config.json", "special_tokens_map.json", "chat_template.jinja"}


def train_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE that splits every number into digits, also one that it has not seen: 347 becomes 3, 4, 7."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=END,
        pad_token=PAD,
        model_max_length=CONTEXT,
        padding_side="right",
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def build(folder: str) -> int:
    """Write the model and its tokenizer into an existing folder; return the number of parameters."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    with open(DATA, encoding="utf-8") as lines:
        rows = [json.loads(line)["messages"] for line in lines]
    tokenizer = train_tokenizer([text for row in rows for message in row for text in message.values()])
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=CONTEXT,
        initializer_range=INITIALIZER_RANGE,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(SEED)
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder, safe_serialization=True)
    tokenizer.save_pretrained(folder)
    # transformers 5 writes the name of a tokenizer class that 4.x does not know. Both know PreTrainedTokenizerFast.
    settings = os.path.join(folder, "tokenizer_config.json")
    with open(settings, encoding="utf-8") as file:
        stated = json.load(file)
    with open(settings, "w", encoding="utf-8", newline="\n") as file:
        json.dump({**stated, "tokenizer_class": "PreTrainedTokenizerFast"}, file, indent=2)
        file.write("\n")
    return sum(p.numel() for p in model.parameters())


def state(folder: str) -> str:
    """The state of a path: `absent`, `model` (a complete model of this script), or a sentence about other contents."""
    if not os.path.lexists(folder):
        return "absent"
    if not os.path.isdir(folder):
        return f"{folder} exists and is not a folder"
    names = set(os.listdir(folder))
    foreign = sorted(names - WRITTEN)
    if foreign:
        return f"{folder} holds files that this script did not write: {', '.join(foreign)}"
    return "model" if names >= REQUIRED else f"{folder} exists and is not a complete model; --force replaces it"


def main(arguments: list[str] | None = None) -> int:
    """Build the model. Return 0 if its folder contains it at the end, 2 if the folder exists and has other contents."""
    parser = argparse.ArgumentParser(description="Build the quickstart's tiny model.")
    parser.add_argument("out", nargs="?", default=os.path.join(HERE, "model"))
    parser.add_argument("--force", action="store_true", help="build it again where it is already there")
    options = parser.parse_args(arguments)
    out = os.path.normpath(options.out)
    found = state(out)
    if found == "model" and not options.force:
        print(f"{out}: already there")
        return 0
    replaceable = found in ("absent", "model") or (options.force and found.endswith("--force replaces it"))
    if not replaceable:
        print(found, file=sys.stderr)
        return 2

    parent = os.path.dirname(os.path.abspath(out))
    os.makedirs(parent, exist_ok=True)
    beside = tempfile.mkdtemp(prefix=f".{os.path.basename(out)}-", dir=parent)
    try:
        made = os.path.join(beside, "made")
        os.mkdir(made)
        parameters = build(made)
        if found != "absent":
            os.rename(out, os.path.join(beside, "replaced"))
        os.rename(made, out)
    finally:
        shutil.rmtree(beside)
    print(f"{out}: built, {parameters:,} parameters")
    return 0


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # hides the libraries' warnings about a missing GPU
    sys.exit(main())
