"""Cases of reinforcement and of vLLM (XP66x to XP68x)."""

from __future__ import annotations

from case_support import Case, spec, trained
from cases_data import extra

PROMPTS = "qwen2.5-3b on deepmath-103k"
FEW = '{"prompt": "2 + 2?"}\n'


def grpo(
    settings: str = "", *more: str, method: str = "grpo", batch: str = "gbs=128 micro=16",
    hardware: str = "8 x h100-80gb", on: str = PROMPTS, precision: str = "bf16",
    strategy: str = "zero2",
) -> str:  # fmt: skip
    inner = ", ".join(one for one in ("rewards=[accuracy]", settings) if one)
    return spec(
        f"method {method}({inner})",
        *more,
        train=trained(on),
        batch=batch,
        hardware=hardware,
        precision=precision,
        strategy=strategy,
    )


def paged(hardware: str = "8 x h100-80gb", *, batch: str = "gbs=128 micro=16", precision: str = "fp32",
          strategy: str = "ddp") -> str:  # fmt: skip
    """Continuous batching as trl 0.24 calls it."""
    return grpo("", "target trl-0.24", extra("use_transformers_paged = true"), hardware=hardware, batch=batch,
                precision=precision, strategy=strategy)  # fmt: skip


OWN_REWARDS = {
    "sums.jsonl": '{"prompt": "2 + 2?", "answer": "4"}\n' * 256,
    "rewards.py": "def strict(completions, answer):\n    return [0.0 for _ in completions]\n\n\n"
    "def open(completions, answer, **others):\n    return [0.0 for _ in completions]\n\n\n"
    "def asks(completions, solution, **others):\n    return [0.0 for _ in completions]\n\n\n"
    "def reads(prompts, answer, solution=None, **others):\n    return [0.0 for _ in prompts]\n",
}


def grpo_own(reward: str) -> str:
    """A run with a reward of the spec's own, on rows of a file."""
    return spec(
        f'method grpo(rewards=["{reward}"])', train=trained('qwen2.5-3b on "sums.jsonl"'), batch="gbs=128 micro=16"
    )


EVALUATED = "data(holdout=25%)\neval(every=1)"

ONLINE = (
    Case("XP107", grpo("generations=1"), grpo("generations=2"), variant="generations"),
    Case("XP106", grpo("loss=gppo"), grpo("loss=grpo"), variant="grpo-loss"),
    Case("XP106", grpo("vllm(mode=inside)"), grpo("vllm(mode=colocate)"), variant="vllm-mode"),
    Case("XP121", grpo("", extra('vllm_guided_decoding_regex = "a*"')), grpo(), variant="grpo-removed"),
    Case("XP660", grpo("generations=12"), grpo("generations=16")),
    Case("XP660", grpo("generations=16", batch="gbs=8 micro=1"), grpo("generations=16", batch="gbs=16 micro=1"),
         variant="written"),
    Case("XP660", grpo("", method="rloo", batch="gbs=3 micro=1", hardware="3 x h100-80gb"),
         grpo("", method="rloo", batch="gbs=6 micro=1", hardware="3 x h100-80gb"), variant="default"),
    Case("XP661", grpo("generations=16", "eval(every=epoch, split=test, micro=1)"),
         grpo("generations=16", "eval(every=epoch, split=test, micro=2)")),
    Case("XP662", spec("method grpo", train=trained(PROMPTS)), grpo()),
    Case("XP663", spec("method grpo(rewards=[accuracy(weight=0)])", train=trained(PROMPTS)),
         spec("method grpo(rewards=[accuracy(weight=1)])", train=trained(PROMPTS))),
    Case("XP674", grpo_own("rewards.py:strict"), grpo_own("rewards.py:open"), OWN_REWARDS),
    Case("XP674", grpo_own("rewards.py:asks"), grpo_own("rewards.py:reads"), OWN_REWARDS, variant="column"),
    Case("XP664", grpo("sync_reference"), grpo("sync_reference, beta=0.04")),
    Case("XP675", grpo("", "target trl-0.24", "memory(checkpointing(reentrant=false))"),
         grpo("", "target trl-0.24", "memory(checkpointing(reentrant=true))")),
    Case("XP676", grpo("", "target trl-0.18", "memory(checkpointing=true)", on="opt-125m on deepmath-103k"),
         grpo("", "target trl-0.18", "memory(checkpointing=false)", on="opt-125m on deepmath-103k")),
    Case("XP439", grpo("", "target trl-0.24", EVALUATED, method="rloo", strategy="zero3", batch="gbs=256 micro=16"),
         grpo("", "target trl-0.24", EVALUATED, method="rloo", strategy="zero3")),
    Case("XP439", grpo("iterations=2", "target trl-0.18", EVALUATED, strategy="zero3", batch="gbs=256 micro=16"),
         grpo("iterations=1", "target trl-0.18", EVALUATED, strategy="zero3", batch="gbs=256 micro=16"),
         variant="iterations"),
    Case("XP665", grpo("temperature=0"), grpo("temperature=1")),
    Case("XP665", grpo("top_k=1"), grpo("top_k=50"), variant="greedy"),
    Case("XP666", grpo("generations=16", on='qwen2.5-3b on "few.jsonl"', batch="gbs=128 micro=16"),
         grpo("generations=128", on='qwen2.5-3b on "few.jsonl"', batch="gbs=128 micro=16"), {"few.jsonl": FEW}),
    Case("XP667", grpo("", extra("multi_objective_aggregation = sum")),
         grpo("", extra("multi_objective_aggregation = normalize_then_sum"))),
    Case("XP667", grpo("", extra("importance_sampling_level = word")),
         grpo("loss=grpo", extra("importance_sampling_level = sequence")), variant="level"),
    Case("XP668", grpo("loss=dapo", extra("importance_sampling_level = sequence")),
         grpo("loss=grpo", extra("importance_sampling_level = sequence"))),
    Case("XP668", grpo("loss=luspo"), grpo("loss=luspo", extra("importance_sampling_level = sequence")),
         variant="luspo"),
    Case("XP485", grpo("steps_per_generation=2", "target trl-0.24"),
         grpo("steps_per_generation=2, loss=bnpo", "target trl-0.24")),
    Case("XP669", grpo("vllm", extra("vllm_importance_sampling_clip_min = 4")),
         grpo("vllm", extra("vllm_importance_sampling_clip_min = 0.5"))),
    Case("XP670", grpo("loss=vespo, vllm"),
         grpo("loss=vespo, vllm", extra("vllm_importance_sampling_mode = token_mask"))),
    Case("XP671", grpo("", extra('log_completions_hub_repo = "me/told"')),
         grpo("log_completions", extra('log_completions_hub_repo = "me/told"'))),
    Case("XP672", grpo("", extra("auto_find_batch_size = true")), grpo("", extra("auto_find_batch_size = false"))),
    Case("XP673", grpo("", "seed 4294967295"), grpo("", "seed 4294967288")),
    Case("XP325", grpo("", extra("use_transformers_continuous_batching = true")),
         grpo("", extra("use_transformers_continuous_batching = true"), precision="fp32")),
    Case("XP325", paged("1 x h100-80gb", precision="bf16"), paged("1 x h100-80gb"), variant="paged"),
    Case("XP575", paged(), paged("1 x h100-80gb")),
    Case("XP575", paged(strategy="zero1"), paged("1 x h100-80gb"), variant="deepspeed"),
    Case("XP575", paged("cpu", batch="gbs=16 micro=4"), paged("1 x h100-80gb"), variant="cpu"),
    Case("XP337", grpo("vllm", hardware="8 x v100-32gb  # xpc: allow XP801 the wheels are installed", precision="fp32",
              on="qwen2.5-0.5b on deepmath-103k"),
         grpo("vllm", hardware="8 x t4", precision="fp32", on="qwen2.5-0.5b on deepmath-103k")),
    Case("XP680", grpo("vllm", batch="gbs=16 micro=4", hardware="2 x cpu", precision="fp32"),
         grpo("", batch="gbs=16 micro=4", hardware="2 x cpu", precision="fp32")),
    Case("XP681", grpo("vllm(tensor_parallel=3, mode=colocate)"), grpo("vllm(tensor_parallel=4, mode=colocate)")),
    Case("XP682", grpo("vllm", "lora(bits=8)"), grpo("vllm", "lora(bits=4)")),
    Case("XP683", grpo("vllm(max_length=512), max_completion=512"), grpo("vllm(max_length=2048), max_completion=512")),
    Case("XP684", grpo("vllm(port=8001)"), grpo("vllm(port=8001, mode=server)")),
)  # fmt: skip
