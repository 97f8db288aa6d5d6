"""Small files for several versions of TRL. Each file states some arguments of its version; the other arguments have the
version's defaults.
"""

from __future__ import annotations

HEAD = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: org/rows\n"
BARE = "output_dir: out\nreport_to: none\n"
COMMON = BARE + "gradient_accumulation_steps: 4\nnum_train_epochs: 2\n"
TWO, FOUR, EIGHT = (f"per_device_train_batch_size: {size}\n" for size in (2, 4, 8))

CASES: dict[str, tuple[str, str, str]] = {
    "sft-0.12": ("0.12", "sft", COMMON + TWO + "max_seq_length: 512\nlearning_rate: 2.0e-5\nbf16: true\n"),
    "sft-defaults-0.12": ("0.12", "sft", BARE + "max_seq_length: 256\n"),
    "dpo-0.12": ("0.12", "dpo", COMMON + TWO + "beta: 0.2\nmax_length: 512\nmax_prompt_length: 200\nrpo_alpha: 0.5\n"),
    "kto-0.12": ("0.12", "kto", COMMON + TWO + "desirable_weight: 1.5\nmax_length: 400\nmax_prompt_length: 100\n"),
    "sft-0.14": ("0.14", "sft", COMMON + TWO + "max_seq_length: 512\npacking: false\nlr_scheduler_type: cosine\n"),
    "dpo-0.14": ("0.14", "dpo", COMMON + TWO + "loss_type: ipo\nlearning_rate: 1.0e-6\nwarmup_ratio: 0.1\n"),
    "dpo-defaults-0.14": ("0.14", "dpo", BARE + "reference_free: false\n"),
    "grpo-0.14": ("0.14", "grpo", COMMON + FOUR + "num_generations: 4\nbeta: 0.1\n"),
    "grpo-defaults-0.14": ("0.14", "grpo", BARE + EIGHT + "num_generations: 8\n"),
    "sft-0.22": ("0.22", "sft", COMMON + TWO + "max_length: 512\nassistant_only_loss: false\n"),
    "sft-defaults-0.22": ("0.22", "sft", BARE + "max_length: 1024\n"),
    "dpo-0.22": ("0.22", "dpo", COMMON + TWO + "beta: 0.05\nmax_prompt_length: 300\nprecompute_ref_log_probs: true\n"),
    "grpo-0.22": ("0.22", "grpo", COMMON + EIGHT + "num_generations: 8\nepsilon_high: 0.28\nscale_rewards: none\n"),
    "grpo-defaults-0.22": ("0.22", "grpo", BARE + EIGHT + "num_generations: 8\n"),
    "kto-0.22": ("0.22", "kto", COMMON + TWO + "beta: 0.3\nundesirable_weight: 2.0\n"),
    "rloo-0.22": ("0.22", "rloo", COMMON + EIGHT + "num_generations: 4\nbeta: 0.02\n"),
    "sft-0.18": ("0.18", "sft", COMMON + TWO + "max_length: 512\npacking: false\nlearning_rate: 1.0e-5\n"),
    "sft-defaults-0.18": ("0.18", "sft", BARE + "padding_free: false\n"),
    "dpo-0.18": (
        "0.18",
        "dpo",
        COMMON + TWO + "max_prompt_length: 300\nloss_type: robust\nlabel_smoothing: 0.1\n",
    ),
    "dpo-defaults-0.18": ("0.18", "dpo", BARE + "use_num_logits_to_keep: false\n"),
    "kto-0.18": ("0.18", "kto", COMMON + TWO + "desirable_weight: 1.2\nmax_length: 400\nmax_prompt_length: 100\n"),
    "orpo-0.18": ("0.18", "orpo", COMMON + TWO + "beta: 0.2\nmax_length: 700\nmax_prompt_length: 300\n"),
    "reward-0.18": ("0.18", "reward", COMMON + TWO + "max_length: 300\ncenter_rewards_coefficient: 0.01\n"),
    "grpo-0.18": ("0.18", "grpo", COMMON + EIGHT + "num_generations: 8\nloss_type: dr_grpo\ndelta: 1.5\n"),
    "grpo-defaults-0.18": ("0.18", "grpo", BARE + EIGHT + "num_generations: 8\n"),
    "sft-0.24": ("0.24", "sft", COMMON + TWO + "max_length: 512\npacking: false\nloss_type: dft\n"),
    "sft-defaults-0.24": ("0.24", "sft", BARE + "max_length: 1024\n"),
    "dpo-0.24": ("0.24", "dpo", COMMON + TWO + "beta: 0.05\nmax_prompt_length: 300\nloss_type: [sigmoid, sft]\n"),
    "kto-0.24": ("0.24", "kto", COMMON + TWO + "beta: 0.3\nundesirable_weight: 2.0\n"),
    "cpo-0.24": ("0.24", "cpo", COMMON + TWO + "loss_type: simpo\nsimpo_gamma: 0.4\ncpo_alpha: 0.5\n"),
    "reward-0.24": ("0.24", "reward", COMMON + TWO + "max_length: 300\nlearning_rate: 1.0e-5\n"),
    "grpo-0.24": ("0.24", "grpo", COMMON + EIGHT + "num_generations: 8\ntop_entropy_quantile: 0.2\n"),
    "grpo-defaults-0.24": ("0.24", "grpo", BARE + EIGHT + "num_generations: 8\n"),
    "rloo-0.24": ("0.24", "rloo", COMMON + EIGHT + "num_generations: 4\nbeta: 0.02\n"),
    "sft-1.16": ("1.16", "sft", COMMON + TWO + "max_length: 512\nassistant_only_loss: false\nloss_type: dft\n"),
    "sft-defaults-1.16": ("1.16", "sft", BARE + "max_length: 1024\n"),
    "dpo-1.16": ("1.16", "dpo", COMMON + TWO + "beta: 0.05\nmax_length: 700\nprecompute_ref_log_probs: true\n"),
    "dpo-defaults-1.16": ("1.16", "dpo", BARE + "max_length: 1024\n"),
    "reward-1.16": ("1.16", "reward", COMMON + TWO + "max_length: 300\ncenter_rewards_coefficient: 0.01\n"),
    "grpo-1.16": ("1.16", "grpo", COMMON + EIGHT + "num_generations: 8\nepsilon_high: 0.28\nloss_type: cispo\n"),
    "grpo-defaults-1.16": ("1.16", "grpo", BARE + EIGHT + "num_generations: 8\n"),
    "rloo-1.16": ("1.16", "rloo", COMMON + EIGHT + "num_generations: 4\nbeta: 0.02\n"),
}
"""Maps the name of each case to the TRL version, the method, and the lines of the file."""
