"""The table of plausible values. For each setting, it has a range that includes the values in published recipes and
papers (XP586).

The published values are those in the recipes of the alignment handbook, open-r1, FastChat, axolotl and LLaMA-Factory,
in the documentation of TRL (`paper_index.md`, `lora_without_regret.md`, `kto_trainer.md`), in the examples of peft, and
in the report of Tulu 3.
"""

from __future__ import annotations

from xpc.compiler.language.optimizers import PACKAGES, SCHEDULE_FREE
from xpc.compiler.language.setting import Path
from xpc.compiler.rules.numerics.batch import LEAST_CLIP, LEAST_RATE, LEAST_TEMPERATURE
from xpc.compiler.spec import Spec
from xpc.grammar.record import record

INFINITE = float("inf")
ADAM = (
    "adamw", "adamw_torch", "adamw_fused", "adamw8bit", "paged_adamw", "paged_adamw8bit", "ademamix", "ademamix8bit",
    "paged_ademamix", "paged_ademamix8bit", "torchao_adamw4bit", "torchao_adamw8bit", "stable_adamw", "grokadamw",
)  # fmt: skip
"""AdamW, and optimizers with updates of about the same size, so that the same learning rates suit them."""
LION = ("lion", "lion8bit", "paged_lion", "paged_lion8bit")
PROJECTED = (*PACKAGES["galore"], *PACKAGES["apollo"])
ONLINE = ("grpo", "rloo")
PREFERENCES = ("dpo", "orpo", "cpo", "kto")
SUPERVISED = ("sft", "reward")
FULL, LOW_RANK = ("",), ("lora", "qlora")
"""Values of `Range.adapters`: FULL stands for runs without adapters, and LOW_RANK for runs with LoRA."""
LARGE = 3_000_000_000
"""Models with at least this many parameters have ranges of their own for some settings, such as the learning rate."""


@record
class Range:
    """The plausible values of a setting: from `low` to `high`, both included. `published` is a text about the published
    values, such as "5e-7 to 5e-6 for kto without adapters"; the range from `low` to `high` is wider. `typed` is the
    setting with the value that the help suggests.

    The range applies to the methods in `methods`, the optimizers in `optimizers`, the losses in `losses` and the kinds
    of adapters in `adapters` (all, if empty; "" stands for a run without adapters), and to models with at least `least`
    parameters. Values up to `handled` and values from `refused` on are checked by other rules. A default is checked
    only if `default_of` names another setting; the finding is then reported at that other setting.
    """

    path: Path
    low: float
    high: float
    typed: str
    published: str
    methods: tuple[str, ...] = ()
    optimizers: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    least: int = 0
    handled: float = 0.0
    refused: float = INFINITE
    default_of: Path | None = None

    def concerns(self, spec: Spec) -> bool:
        """Whether this range applies to the spec, as the docstring of the class explains."""
        if self.default_of is None and not spec.written(self.path):
            return False
        adapter = spec.adapter if spec.lora else ""
        params = spec.model.facts.params if spec.model.facts is not None else 0
        return (
            (not self.methods or spec.text("method") in self.methods)
            and (not self.optimizers or spec.text("optimizer") in self.optimizers)
            and (not self.adapters or adapter in self.adapters)
            and (not self.losses or not set(spec.losses).isdisjoint(self.losses))
            and params >= self.least
        )


RATE: Path = "optimizer.lr"
MOST_EPOCHS = 500
RANGES = (
    # learning rates: the first range that applies is used
    Range(RATE, 1e-8, 1e-4, "lr = 1e-6", "5e-7 to 5e-6 for kto without adapters", ("kto",), ADAM, FULL,
          handled=LEAST_RATE),
    Range(RATE, 1e-8, 2e-4, "lr = 1e-6", "5e-7 to 2e-5 for all weights of models from 3B on",
          ("dpo", "orpo", "cpo", *ONLINE), ADAM, FULL, least=LARGE, handled=LEAST_RATE),
    Range(RATE, 1e-8, 9e-4, "lr = 2e-5", "2e-7 to 5e-4 for all weights of models from 3B on", optimizers=ADAM,
          adapters=FULL, least=LARGE, handled=LEAST_RATE),
    Range(RATE, 1e-8, 1e-2, "lr = 1e-6", "2e-7 to 1e-2 for dpo without adapters", ("dpo",), ADAM, FULL,
          handled=LEAST_RATE),
    Range(RATE, 1e-8, 5e-3, "lr = 2e-5", "2e-7 to 1e-3 without adapters", (), ADAM, FULL, handled=LEAST_RATE),
    Range(RATE, 2e-6, 1e-2, "lr = 2e-4", "1e-5 to 3e-3 with LoRA", SUPERVISED, ADAM, LOW_RANK, handled=LEAST_RATE),
    Range(RATE, 1e-8, 5e-3, "lr = 1e-5", "1e-6 to 5e-4 with LoRA", (*PREFERENCES, *ONLINE, "distill"), ADAM, LOW_RANK,
          handled=LEAST_RATE),
    Range(RATE, 1e-7, 1e-1, "lr = 4e-3", "2e-4 to 2e-2 with VeRA", (), ADAM, ("vera",), handled=LEAST_RATE),
    Range(RATE, 1e-8, 2e-2, "lr = 1e-4", "1e-5 to 3e-3 with adapters", (), ADAM, ("oft", "loha", "miss"),
          handled=LEAST_RATE),
    Range(RATE, 1e-9, 2e-3, "lr = 5e-6", "1e-6 to 1e-4 with Lion", (), LION, handled=LEAST_RATE),
    Range(RATE, 1e-8, 1e-1, "lr = 1e-4", "1e-5 to 1e-2 with Adafactor", (), ("adafactor",), handled=LEAST_RATE),
    Range(RATE, 1e-8, 1e-1, "lr = 1e-4", "1e-5 to 1e-2 with projected gradients", (), PROJECTED, handled=LEAST_RATE),
    Range(RATE, 1e-8, 1e-1, "lr = 1e-4", "1e-5 to 1e-2", (), SCHEDULE_FREE[:2], handled=LEAST_RATE),
    Range(RATE, 1e-7, 2e-1, "lr = 2e-4", "2e-4 to 5e-2 with Muon", (), ("muon",), handled=LEAST_RATE),
    Range(RATE, 1e-4, 1, "lr = 1e-2", "1e-3 to 1 with sgd", (), ("sgd",), handled=LEAST_RATE,
          default_of="optimizer"),
    Range(RATE, 1e-5, 1, "lr = 3e-2", "1e-3 to 3e-2 with LOMO", (), ("lomo",), handled=LEAST_RATE,
          default_of="optimizer"),
    Range("optimizer.adamw_lr", 1e-8, 1e-2, "adamw_lr = 2e-5", "1e-6 to 3e-3", (), ("muon",)),
    Range("lora.embedding_lr", 1e-9, 1e-2, "embedding_lr = 1e-6", "1e-6"),
    Range("lora.lr_ratio", 1, 512, "lr_ratio = 16", "4 to 64"),
    # settings of the optimizer and of the schedule
    Range("optimizer.eps", 1e-20, 1e-3, "eps = 1e-8", "1e-8 to 1e-5; with 0, a gradient of 0 gives NaN", (), ADAM,
          handled=-1),
    Range("optimizer.weight_decay", 0, 1, "weight_decay = 0.1", "0 to 0.5", (), ADAM),
    Range("optimizer.clip", 1e-3, INFINITE, "clip = 1", "0.1 to 2", handled=LEAST_CLIP),
    Range("optimizer.momentum", 0, 0.9995, "momentum = 0.9", "0.9 to 0.99"),
    Range("optimizer.update_proj_gap", 5, INFINITE, "update_proj_gap = 200", "50 to 1000"),
    Range("optimizer.scale", 1e-3, 1e3, "scale = 0.25", "0.25 to 128"),
    Range("schedule.warmup", 0, 0.5, "warmup = 3%", "3 to 10 % of the run"),
    Range("schedule.power", 0.1, 10, "power = 1", "0.5 to 2", handled=-1),
    # settings of the model and of its adapters
    Range("model.rope", 1, 64, "rope = yarn(factor=4)", "factors of 2 to 64"),
    Range("lora.dropout", 0, 0.5, "dropout = 0.05", "0 to 0.2", refused=1),
    # settings of methods for preferences
    Range("method.beta", 1e-4, 100, "beta = 5", "5 for means over tokens", ("dpo",), losses=("sigmoid_norm",)),
    Range("method.beta", 1e-4, 5, "beta = 0.1", "1e-3 to 0.9 for dpo", ("dpo",)),
    Range("method.beta", 1e-4, 5, "beta = 0.1", "0.01 to 0.5 for kto", ("kto",)),
    Range("method.beta", 1e-3, 5, "beta = 0.1", "0.05 to 0.5 for orpo", ("orpo",), handled=-1),
    Range("method.beta", 0.5, 100, "beta = 2.5", "2 to 10 for SimPO", ("cpo",), losses=("simpo",),
          default_of="method.loss"),
    Range("method.beta", 1e-3, 10, "beta = 0.1", "0.01 to 0.5 for cpo", ("cpo",)),
    Range("method.label_smoothing", 0, 0.49, "label_smoothing = 0.1", "0 to 0.3; at 0.5 the loss has no preference",
          ("dpo",), losses=("sigmoid",)),
    Range("method.margin", 0, 20, "margin = 0.5", "0.3 to 5"),
    Range("method.likelihood", 0, 10, "likelihood = 1", "0 to 1"),
    Range("method.rpo", 0, 10, "rpo = 1", "0.005 to 1"),
    Range("method.desirable", 0, 100, "desirable = 1", "0.2 to 4"),
    Range("method.undesirable", 0, 100, "undesirable = 1", "0.2 to 4"),
    Range("method.center", 0, 1, "center = 0.01", "0.01"),
    Range("method.sync_reference.mixup", 1e-2, 1, "mixup = 0.6", "0.6 to 0.9", handled=-1),
    # settings of reinforcement learning
    Range("method.beta", 0, 1, "beta = 0.04", "0 to 0.1 for reinforcement", ONLINE),
    Range("method.epsilon", 1e-5, 10, "epsilon = 0.2", "3e-4 to 10", handled=-1),
    Range("method.epsilon_high", 1e-5, 100, "epsilon_high = 0.28", "4e-4 to 5", handled=-1),
    Range("method.delta", 1, 100, "delta = 4", "1.5 to 4", handled=1),
    Range("method.max_completion", 8, INFINITE, "max_completion = 1024", "256 to 32768"),
    Range("method.max_prompt", 8, INFINITE, "max_prompt = 512", "128 to 32768"),
    Range("method.generations", 2, 1024, "generations = 8", "2 to 64"),
    Range("method.iterations", 1, 64, "iterations = 1", "1 to 16"),
    Range("method.temperature", 0.1, 2, "temperature = 1", "0.6 to 1.2", ONLINE, handled=LEAST_TEMPERATURE),
    Range("method.temperature", 0.1, 10, "temperature = 1", "0.5 to 4", ("distill",), handled=LEAST_TEMPERATURE),
    Range("method.top_p", 0.1, 1, "top_p = 0.95", "0.8 to 1"),
    Range("method.min_p", 0, 0.5, "min_p = 0.05", "0 to 0.1", refused=1),
    Range("method.repetition_penalty", 0.5, 2, "repetition_penalty = 1", "1 to 1.2"),
    # settings of the batch and of the data
    Range("batch.seq", 16, INFINITE, "seq = 2048", "512 to 131072", handled=1),
    Range("batch.gbs", 1, 2**17, "gbs = 128", "8 to 4096"),
    Range("train.epochs", 0, 30, "for 1 epochs", "1 to 6 for preferences", (*PREFERENCES, "reward"), least=LARGE),
    Range("train.epochs", 0, MOST_EPOCHS, "for 3 epochs", "1 to 150"),
    Range("strategy.allgather_bucket", 1e5, INFINITE, "allgather_bucket = 500000000", "50M to 1B elements"),
    Range("strategy.reduce_bucket", 1e5, INFINITE, "reduce_bucket = 500000000", "50M to 1B elements"),
    Range("data.holdout", 0, 0.5, "holdout = 5%", "1 to 20 % of the rows"),
)  # fmt: skip
"""The plausible ranges of settings. Findings are reported in the order of this table. If several ranges of a setting
apply to a spec, the first of them is used. Other rules report a `delta` below 1, a `dropout` of 1 or more, and a
`min_p` of 1.
"""
EXTRA = (
    ("neftune_noise_alpha", 100, "neftune_noise_alpha = 5", "5 to 15"),
    ("label_smoothing_factor", 0.5, "label_smoothing_factor = 0.1", "0 to 0.2"),
    ("router_aux_loss_coef", 1, "router_aux_loss_coef = 0.001", "0.001 to 0.02"),
)
"""Arguments in `extra trl`. Each entry has the argument's name, the largest plausible value, a text with a usual value
for the help, and a text about the values in publications.
"""
LEAST_SCALE, LARGEST_SCALE = 1 / 64, 128
"""The smallest and the largest plausible value of alpha / rank. In publications, this ratio is between 1/16 (rank 256,
alpha 16) and 32 (rank 1, alpha 32).
"""
LEAST_BETAS = (0.5, 0.8)
"""The smallest plausible values of Adam's two betas. In publications, the first beta is between 0.9 and 0.95, and the
second between 0.95 and 0.999.
"""
