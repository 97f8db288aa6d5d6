"""Trainer arguments for tests that need some argument in an `extra` block, and for which it does not matter which one.

As soon as the language has a setting for an argument, the argument is an error in `extra`, and every test with the
argument in `extra` fails. The arguments below will never get a setting, because they change no result of a run.
"""

from __future__ import annotations

NUMBER = "torch_empty_cache_steps"
"""An integer argument of every class on every stack. After this number of steps, transformers frees the allocator's
cache.
"""
FLAG = "batch_eval_metrics"
"""A boolean argument. It changes how predictions are passed to `compute_metrics`, which no bundle uses."""
SFT_TEXT = "dataset_text_field"
"""A text argument that only SFTConfig has. It names the column with texts; the runtime sets this name itself."""
DPO_NUMBER = "precompute_ref_batch_size"
"""An integer argument that only DPOConfig has. It is the batch size of the reference model."""
GRPO_NUMBER = "num_completions_to_print"
"""An integer argument that only GRPOConfig has. It is the number of completions of a batch that are printed."""
