"""Build a tiny Qwen2.5-VL with its processor when a test needs it, in an interpreter that can import torchvision.

``build(folder)`` writes random weights (two layers of width 32 in the vision and the language part), a byte-level
tokenizer, and a processor with the family's chat template. It needs transformers 5, trl 1.16 and torchvision.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache

HERE = os.path.dirname(os.path.abspath(__file__))
TORCHVISION = os.path.join(os.path.dirname(os.path.dirname(HERE)), ".venv-vision")
"""The environment into which `make .venv-vision/ready` installs torchvision. torchvision is not in .venv, because
transformers imports an installed torchvision in every test, and fails if it does not load.
"""
SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
    "<|video_pad|>",
)  # fmt: skip
TEXTS = ("system\nYou are a helpful assistant.", "user\nWhich colour is this?", "assistant\nIt is red, green, blue.")


def environment() -> dict[str, str]:
    """This process's environment variables, but with two more folders on PYTHONPATH: the folder of torchvision, and
    vision_site/, without which torchvision cannot be imported.
    """
    path = [os.path.join(HERE, "vision_site"), HERE, *filter(None, [os.environ.get("PYTHONPATH")])]
    if os.path.exists(os.path.join(TORCHVISION, "ready")):
        path.insert(0, TORCHVISION)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "HF_HUB_OFFLINE": "1"}


def python() -> str:
    """The path of a program that acts as an interpreter with torchvision. It runs each Python program in a fork of a
    warm interpreter (forks.Forks).
    """
    from forks import of_python

    return of_python(sys.executable, environment()["PYTHONPATH"]).python


@cache
def missing() -> str:
    """Why the processor of a model that reads images cannot be loaded on this machine; "" if it can."""
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "program.py")
        with open(program, "w", encoding="utf-8") as handle:
            handle.write("import torchvision; from trl.chat_template_utils import qwen2_5_vl_chat_template\n")
        done = subprocess.run([python(), program], env=environment(), capture_output=True, text=True, check=False)
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""


def build(folder: str) -> None:
    """Write config.json, model.safetensors, the tokenizer and the processor into ``folder``."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import AutoModelForImageTextToText, PreTrainedTokenizerFast, Qwen2_5_VLConfig, Qwen2_5_VLProcessor
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
    from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
    from trl.chat_template_utils import qwen2_5_vl_chat_template as template

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=[*SPECIAL], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    core.train_from_iterator([*TEXTS] * 3, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=512
    )
    reader = Qwen2VLImageProcessor(min_pixels=56 * 56, max_pixels=64 * 28 * 28)
    processor = Qwen2_5_VLProcessor(reader, tokenizer, Qwen2VLVideoProcessor(), chat_template=template)
    processor.save_pretrained(folder)
    end, pad, image, video, first, last = tokenizer.convert_tokens_to_ids(
        ["<|im_end|>", "<|endoftext|>", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
    )
    text = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 384, "max_position_embeddings": 1024, "bos_token_id": None,
        "eos_token_id": end, "pad_token_id": pad,
        "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0},
    }  # fmt: skip
    seen = {
        "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4, "out_hidden_size": 32,
        "fullatt_block_indexes": [1], "window_size": 56,
    }  # fmt: skip
    config = Qwen2_5_VLConfig(
        text_config=text, vision_config=seen, image_token_id=image, video_token_id=video, vision_start_token_id=first,
        vision_end_token_id=last,
    )  # fmt: skip
    torch.manual_seed(0)
    AutoModelForImageTextToText.from_config(config).save_pretrained(folder)


if __name__ == "__main__":
    build(sys.argv[1])
