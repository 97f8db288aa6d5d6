"""Models that read images or sound are recognised by their name and by config.json, both in specs and in imported
files.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from compile_support import checked, only, put

from xpc.compiler import registry
from xpc.compiler.registry import build
from xpc.compiler.registry.architecture import facts_from_config
from xpc.compiler.registry.types import IMAGE_FAMILIES

READ_IMAGES = str.split("""
Qwen/Qwen2-VL-7B-Instruct Qwen/Qwen2.5-VL-3B-Instruct Qwen/Qwen3-VL-8B-Instruct Qwen/Qwen2.5-Omni-7B Qwen/Qwen-VL-Chat
Qwen/Qwen2-Audio-7B-Instruct google/gemma-3-4b-it google/gemma-3-12b-pt google/gemma-3-27b-it google/gemma-3n-E4B-it
unsloth/gemma-3-4b-it-bnb-4bit meta-llama/Llama-3.2-11B-Vision-Instruct meta-llama/Llama-4-Scout-17B-16E-Instruct
llava-hf/llava-1.5-7b-hf mistralai/Pixtral-12B-2409 mistralai/Mistral-Small-3.1-24B-Instruct-2503 zai-org/GLM-4.5V
HuggingFaceTB/SmolVLM2-2.2B-Instruct HuggingFaceM4/Idefics3-8B-Llama3 google/paligemma2-3b-pt-224 OpenGVLab/InternVL3-8B
openbmb/MiniCPM-V-2_6 openbmb/MiniCPM-o-2_6 microsoft/Phi-3.5-vision-instruct microsoft/Phi-4-multimodal-instruct
allenai/Molmo-7B-D-0924 THUDM/glm-4v-9b CohereLabs/aya-vision-8b deepseek-ai/deepseek-vl2-small
mistralai/Ministral-3-8B-Instruct-2512 mistralai/Magistral-Small-2509 LGAI-EXAONE/EXAONE-4.5-33B moonshotai/Kimi-K2.5
tencent/HunyuanOCR zai-org/GLM-OCR deepseek-ai/DeepSeek-OCR-2 allenai/olmOCR-7B-0825 rednote-hilab/dots.ocr
ibm-granite/granite-speech-3.3-8b openai/whisper-large-v3 vidore/colqwen2-v1.0 LiquidAI/LFM2-VL-1.6B
""")
READ_TEXT = str.split("""
Qwen/Qwen2.5-7B google/gemma-3-1b-it google/gemma-3-270m Qwen/Qwen3.5-9B mistralai/Mistral-Small-24B-Instruct-2501
meta-llama/Llama-3.2-3B THUDM/glm-4-9b zai-org/GLM-4.5-Air microsoft/Phi-4-mini-instruct google/medgemma-27b-text-it
ibm-granite/granite-3.3-8b-instruct openbmb/MiniCPM3-4B mistralai/Ministral-8B-Instruct-2410 PleIAs/OCRonos-Vintage
LGAI-EXAONE/EXAONE-4.0-32B mistralai/Magistral-Small-2506 moonshotai/Kimi-K2-Instruct deepseek-ai/DeepSeek-V3
""")
TEXT = {
    "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 512,
}  # fmt: skip


def test_names_say_whether_a_model_reads_images():
    assert [one for one in READ_IMAGES if not registry.multimodal(one)] == []
    assert [one for one in READ_TEXT if registry.multimodal(one)] == []
    assert all(
        registry.find_model(one).model_type in IMAGE_FAMILIES
        for one in registry.model_names()
        if registry.multimodal(one)
    )


def test_a_short_name_of_a_model_that_reads_images_is_refused_as_one(tmp_path: Path) -> None:
    found = only(checked("xpc 1\ntrain gemma-3-12b-it on alpaca for 1 epochs\n", tmp_path), "XP130")
    assert found.message.startswith("`gemma-3-12b-it` is the name of a model that reads images or sound")


@pytest.mark.parametrize("key", ["vision_config", "audio_config", "visual"])
def test_config_with_another_sense_is_refused(tmp_path: Path, key: str):
    put(tmp_path, {"m/config.json": json.dumps({**TEXT, key: {"depth": 2}})})
    found = only(checked('xpc 1\ntrain "m" on ultrachat-200k for 3 epochs\n', tmp_path), "XP130")
    assert found.message.startswith(
        f"`m/config.json` has a `{key}`: the model reads images or sound, but xpc trains only "
    )


def test_config_of_a_text_model_overrules_the_name(tmp_path: Path):
    put(tmp_path, {"config.json": json.dumps({**TEXT, "vision_config": None})})
    spec = 'xpc 1\ntrain org/gemma-3-4b-text-only on ultrachat-200k for 3 epochs\nmodel(config=file("config.json"))\n'
    assert "XP130" not in {one.code for one in checked(spec, tmp_path).problems}


@pytest.mark.parametrize(
    ("kind", "refused"), [("qwen2_5_vl", False), ("qwen3_vl", True), ("qwen2_audio", True), ("qwen2_5_vl_text", False)]
)
def test_the_family_of_a_configuration_is_read(tmp_path: Path, kind: str, refused: bool) -> None:
    put(tmp_path, {"m/config.json": json.dumps({**TEXT, "model_type": kind})})
    problems = checked('xpc 1\ntrain "m" on ultrachat-200k for 3 epochs\n', tmp_path).problems
    assert ("XP130" in {one.code for one in problems}) is refused


def test_a_published_and_a_saved_configuration_are_the_same_model():
    """transformers 5 saves the keys of the language model below `text_config`."""
    entries = build.read("models.toml")
    flat = build.model_config(entries, "qwen2.5-vl-3b-instruct")
    own = ("model_type", "vision_config", "tie_word_embeddings", "torch_dtype")
    text = {key: value for key, value in flat.items() if key not in own}
    saved = {key: flat[key] for key in own} | {"text_config": {**text, "model_type": "qwen2_5_vl_text"}}
    facts = facts_from_config(flat, "m", "m")
    assert facts == facts_from_config(saved, "m", "m")
    assert facts.params == 3_754_622_976  # Qwen's published checkpoint has this many parameters


@pytest.mark.slow
def test_no_model_of_transformers_that_reads_images_passes_for_a_text_model():
    """transformers reads images with many model types. All but four of these types are recognised by their default
    configuration. The four are not causal text models either, so a spec with one of them is refused anyway.
    """
    pytest.importorskip("transformers")
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    from xpc.compiler.resolve.model import SENSES

    found, broken = set(), set()
    for kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        try:
            config = CONFIG_MAPPING[kind]().to_dict()
        except ValueError:
            # The default values of this configuration contradict each other.
            broken.add(kind)
            config = {}
        if not (registry.multimodal(kind) or registry.encoder_decoder(kind) or any(map(config.get, SENSES))):
            found.add(kind)
    assert found - broken == {"evolla", "mistral4", "t5gemma2", "udop"}
