"""A model that is not in the registry is recognised by its name as a member of a model family."""

import pytest

from xpc.compiler import registry


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("openai/gpt-oss-120b", "gpt_oss"),
        ("unsloth/gpt-oss-20b-BF16", "gpt_oss"),
        ("EleutherAI/gpt-j-6b", "gptj"),
        ("EleutherAI/gpt-neox-20b", "gpt_neox"),
        ("EleutherAI/gpt-neo-1.3B", "gpt_neo"),
        ("tiiuae/falcon-7b", "falcon"),
        ("tiiuae/Falcon-H1-7B", "falcon_h1"),
        ("tiiuae/falcon-mamba-7b", "falcon_mamba"),
        ("tiiuae/Falcon3-7B-Base", None),  # a Llama
        ("ai21labs/Jamba-v0.1", "jamba"),
        ("state-spaces/mamba-130m-hf", "mamba"),
        ("nvidia/Nemotron-H-8B", "nemotron_h"),
        ("google/recurrentgemma-2b", "recurrent_gemma"),
        ("google/gemma-3-4b-it", "gemma3_text"),
        ("Qwen/Qwen3-Next-80B-A3B", "qwen3_next"),
        ("Qwen/Qwen3.5-9B", "qwen3_5_text"),
        ("Qwen/Qwen2.5-7B", "qwen2"),
        ("swiss-ai/Apertus-70B-Instruct-2509", "apertus"),
        ("zai-org/GLM-4.5-Air", "glm4_moe"),
        ("zai-org/GLM-4.7-Flash", "glm4_moe_lite"),
        ("THUDM/GLM-4-9B-0414", "glm4"),
        ("tencent/Hunyuan-1.8B-Instruct", "hunyuan_v1_dense"),
        ("tencent/Hunyuan-A13B-Instruct", "hunyuan_v1_moe"),
        ("LGAI-EXAONE/EXAONE-4.0-1.2B", "exaone4"),
        ("LGAI-EXAONE/K-EXAONE-236B-A23B", "exaone_moe"),
        ("LGAI-EXAONE/EXAONE-3.5-7.8B-Instruct", "exaone"),
        ("sarvamai/sarvam-30b", "sarvam_moe"),
        ("swiss-ai/Apertus-v1.5-8B", "apertus1p5"),
        ("tencent/Youtu-LLM-2B", "youtu"),
        ("baidu/ERNIE-4.5-0.3B-PT", "ernie4_5"),
        ("baidu/ERNIE-4.5-21B-A3B-PT", "ernie4_5_moe"),
        ("LiquidAI/LFM2-1.2B", "lfm2"),
        ("LiquidAI/LFM2-8B-A1B", "lfm2_moe"),
        ("rednote-hilab/dots.llm1.inst", "dots1"),
        ("MiniMaxAI/MiniMax-M2", "minimax_m2"),
        ("naver-hyperclovax/HyperCLOVAX-SEED-Think-14B", "hyperclovax"),
        ("someone/adopt-7b", None),
        ("mamba/nothing-of-it", None),
    ],
)
def test_a_family_is_read_off_the_last_part_of_a_name(name: str, family: str | None):
    assert registry.family_named(name) == family
