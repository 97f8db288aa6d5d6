"""Proofs of rules about reinforcement learning."""

from __future__ import annotations

from prove import Proof
from spec_parts import FEW, grpo

GROUPS = ("num_generations", "steps_per_generation", "per_device_train_batch_size")


def few(*settings: str) -> str:
    """A spec of grpo on trl-0.24 on a CPU, with an accumulation of 2."""
    inner = ", ".join(("generations=2, max_completion=8, loss=dapo", *settings))
    made = grpo(inner, "target trl-0.24", hardware="cpu", batch="gbs=4 micro=2", precision="fp32")
    return made.replace("strategy zero2", "strategy ddp")


PROOFS: tuple[Proof, ...] = (
    Proof("G29", "XP337", needs="a GPU of compute capability 7.0 and vllm"),
    Proof("G01", "XP660", raises="ValueError", match="divisible by num_generations"),
    Proof("G01", "XP660", target="trl-0.18", raises="ValueError", match="evenly divisible", variant="0.18"),
    Proof("G01", "XP660", case="XP660-default", raises="ValueError", match="divisible by num_generations", variant="rloo"),
    Proof("G44", "XP676", at="load", measure="online.remembered", expect={"alike": False}),
    Proof("G04", "XP107", case="XP107-generations", onto="legal", arguments={"num_generations": 1}, raises="ValueError",
          match="at least 2 generations"),
    Proof("G05", "XP661", raises="ValueError", match="global eval batch size"),
    Proof("G05", "XP661", target="trl-0.18", raises="ValueError", match="global eval batch size", variant="0.18"),
    Proof("G06", "XP664", at="init", raises="ValueError", match="beta=0.0"),
    Proof("G07", "XP662", at="load", measure="online.rewarded", raises="ValueError", match="No reward source"),
    Proof("G07", "XP662", case="XP662-environment", at="load", measure="online.called", raises="ValueError",
          match="No reward source", variant="environment"),
    Proof("G47", "XP160", at="load", measure="online.called", raises="DocstringParsingException", match="no docstring"),
    Proof("G47", "XP160", case="XP160-argument", at="load", measure="online.called",
          raises="DocstringParsingException", match="no description for the argument", variant="argument"),
    Proof("G47", "XP160", case="XP160-type", at="load", measure="online.called", raises="TypeHintParsingException",
          match="missing a type", variant="type"),
    Proof("G47", "XP160", case="XP160-method", at="load", measure="online.called", raises="DocstringParsingException",
          match="no docstring", variant="method"),
    Proof("G48", "XP162", at="load", measure="online.called", raises="ValueError", match="callable `reset`"),
    Proof("G48", "XP162", case="XP162-arguments", at="load", measure="online.called", raises="TypeError",
          match="missing 1 required positional argument", variant="arguments"),
    Proof("G49", "XP163", at="load", measure="online.called", expect={"described": 2, "callable": 1}),
    Proof("G50", "XP164", at="load", measure="online.called", raises="ValueError", match="tool call"),
    Proof("G51", "XP165", at="load", measure="online.called", expect={"limited": 0}),
    Proof("G08", "XP671", raises="ValueError", match="log_completions_hub_repo"),
    Proof("G10", "XP681", measure="online.vllm", raises="ValueError", match="must divide world size"),
    Proof("G11", "XP106", case="XP106-vllm-mode", onto="legal", arguments={"vllm_mode": "inside"}, measure="online.vllm",
          raises="ValueError", match="vllm_mode must be"),
    Proof("G13", "XP669", raises="ValueError", match="must be less than"),
    Proof("G13", "XP670", at="init", keep=("use_vllm",), raises="ValueError", match="VESPO", legal=grpo("loss=vespo")),
    Proof("G14", "XP668", at="init", warns="effectively weights each sequence by its completion length"),
    Proof("G14", "XP668", case="XP668-luspo", at="init", warns="luspo", variant="luspo"),
    Proof("G52", "XP677", at="init", measure="online.praised", expect=lambda seen: not seen["learned"]),
    Proof("G53", "XP678", at="init", measure="online.praised", expect=lambda seen: not seen["whole"]),
    Proof("G67", "XP628", at="init", measure="online.reproduced", expect={"same": False}),
    Proof("G54", "XP679", at="init", measure="online.clipped", expect={"clips": False}),
    Proof("G68", "XP613", at="init", measure="online.bounded", expect={"read": False}),
    Proof("G69", "XP613", case="XP613-several-rewards", at="init", measure="online.scaled", expect={"read": False},
          legal=grpo("scale_rewards=none")),
    Proof("G55", "XP685", at="init", measure="online.advantages", expect={"grow": False}),
    Proof("G15", "XP667", at="train", raises="ValueError", match="multi_objective_aggregation"),
    Proof("G15", "XP106", case="XP106-grpo-loss", at="train", onto="legal", arguments={"loss_type": "gppo"},
          raises="ValueError", match="loss"),
    Proof("G41", "XP674", at="load", measure="online.own", raises="TypeError", match="unexpected keyword"),
    Proof("G41", "XP674", target="trl-0.18", at="load", measure="online.own", raises="TypeError",
          match="unexpected keyword", variant="0.18"),
    Proof("G41", "XP674", case="XP674-column", at="load", measure="online.own", raises="TypeError", match="solution",
          variant="column"),
    Proof("G32", "XP485", at="init", measure="online.counted", expect={"own": False},
          text=few("steps_per_generation=4"), legal=few()),
    Proof("G42", "XP675", at="load", measure="strategy.frozen", raises="RuntimeError", match="does not require grad",
          text=few().replace("strategy ddp", "freeze(except_last=1)\nmemory(checkpointing(reentrant=false))\nstrategy ddp"),
          legal=few().replace("strategy ddp", "freeze(except_last=1)\nstrategy ddp")),
    Proof("G20", "XP121", case="XP121-grpo-removed", arguments={"vllm_guided_decoding_regex": "a*"}, raises="TypeError",
          match="vllm_guided_decoding_regex"),
    Proof("G21", "XP665", at="train", raises="ValueError", match="temperature"),
    Proof("G21", "XP665", at="train", target="trl-0.18", raises="ValueError", match="temperature", variant="0.18"),
    Proof("G21", "XP665", case="XP665-greedy", at="init", measure="online.spread", expect={"differ": False}, variant="greedy"),
    Proof("G26", "XP663", at="init", measure="losses.moved", expect={"moved": False}),
    Proof("G27", "XP666", at="load", keep=GROUPS, measure="online.few", expect={"steps": 0},
          text=grpo("generations=2", on='qwen2.5-3b on "few.jsonl"', batch="gbs=8 micro=8", hardware="1 x h100-80gb"),
          legal=grpo("generations=8", on='qwen2.5-3b on "few.jsonl"', batch="gbs=8 micro=8", hardware="1 x h100-80gb"),
          files={"few.jsonl": FEW}),
    Proof("B16", "XP672", raises="ValueError", match="auto_find_batch_size"),
    Proof("Q27", "XP682", measure="online.vllm", raises="ValueError", match="8-bit"),
    Proof("G28", "XP680", needs="vLLM"),
    Proof("G30", "XP683", needs="vLLM"),
    Proof("G31", "XP684", needs="vLLM"),
)  # fmt: skip
