"""Arguments of `extra` for tests that are about something else: none of them can ever become a setting.

A setting that takes over an argument ends its use under `extra`, and with it every test that wrote it as an example.
So write one of these: they change no number of a run, and belong to the inside of the libraries.
"""

from __future__ import annotations

NUMBER = "torch_empty_cache_steps"
"""After how many steps transformers frees the allocator's cache; every class on every stack has it."""
FLAG = "batch_eval_metrics"
"""How predictions reach `compute_metrics`, which no bundle has."""
SFT_TEXT = "dataset_text_field"
"""Of SFTConfig alone: a column that the runtime names."""
DPO_NUMBER = "precompute_ref_batch_size"
"""Of DPOConfig alone: how many rows the reference model reads at once."""
GRPO_NUMBER = "num_completions_to_print"
"""Of GRPOConfig alone: how much of a batch is printed."""
