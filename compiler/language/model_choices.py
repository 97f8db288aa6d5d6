"""The choices of the settings `chat_template` (built-in chat templates) and `rope` (scalings of rotary positions)."""

from __future__ import annotations

from collections.abc import Mapping

TEMPLATES = (
    "chatml", "qwen2.5", "qwen3", "llama3", "llama3.1", "gemma", "gemma3", "mistral", "phi3", "smollm2", "smollm3",
    "zephyr", "vicuna",
)  # fmt: skip
"""The built-in chat templates (compiler/registry/templates). Each of them marks the assistant's answers with `{%
generation %}`.
"""
ROPE: Mapping[str, tuple[str, ...]] = {
    "yarn": ("beta_fast", "beta_slow", "attention_factor"),
    "linear": (),
    "dynamic": (),
    "llama3": ("low_freq_factor", "high_freq_factor"),
}
"""Maps each method of scaling rotary positions to its parameters, except `factor` and `original`, which all methods
have.
"""
