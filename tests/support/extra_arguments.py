"""Trainer arguments for tests that need some argument in an `extra` block, and for which it does not matter which one.

If the language gets a setting for an argument, the argument becomes an error in `extra`, and every test that uses it
there fails. The arguments below will never get a setting, because they change no result of a run.
"""

from __future__ import annotations

NUMBER = "torch_empty_cache_steps"
"""An int that every argument class of every stack has: transformers frees the allocator's cache each N steps."""
FLAG = "batch_eval_metrics"
"""A bool: how predictions are passed to `compute_metrics`, which no bundle uses."""
SFT_TEXT = "dataset_text_field"
"""A str that only SFTConfig has: the column with texts; the runtime names this column itself."""
DPO_NUMBER = "precompute_ref_batch_size"
"""An int that only DPOConfig has: the batch size of the reference model."""
GRPO_NUMBER = "num_completions_to_print"
"""An int that only GRPOConfig has: how many completions of a batch are printed."""
