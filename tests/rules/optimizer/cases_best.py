"""Cases of the best checkpoint, evaluation at the start and determinism (XP51x, XP704, XP705)."""

from __future__ import annotations

from case_support import Case, on_cpu, spec, trained
from cases_numerics import SMALL, VOLTA, extra

BEST = "load_best_model_at_end = true"
HELD = "data(holdout=5%)"
EPOCHS = "eval(every=epoch)"
SHORT = "qwen2.5-3b on infinity-instruct for 20 steps"
PAIRS = trained("qwen2.5-3b on ultrafeedback-binarized")


QUIET = "def even(completions, **_):\n    return [float(len(one) % 2 == 0) for one in completions]\n"
TELLING = """\
def even(completions, log_metric=None, **_):
    found = [float(len(one) % 2 == 0) for one in completions]
    log_metric("share", sum(found) / len(found))
    return found
"""


def best(evaluated: str, saved: str, *more: str) -> str:
    """A spec that loads its best checkpoint, with the two intervals."""
    return spec(HELD, f"eval(every={evaluated})", *more, *extra(BEST), save=f'save "out/run" every={saved}')


CASES: tuple[Case, ...] = (
    Case(
        "XP107",
        spec(save='save "out/run" every=100%'),
        spec(save='save "out/run" every=50%'),
        variant="every-whole",
    ),
    Case("XP510", spec(HELD, "eval(every=50)", *extra(BEST)), spec(HELD, EPOCHS, *extra(BEST))),
    Case("XP510", spec(*extra(BEST)), spec(HELD, EPOCHS, *extra(BEST)), variant="without-evaluation"),
    Case("XP510", best("epoch", "never"), best("epoch", "epoch"), variant="without-checkpoints"),
    Case("XP511", best("60", "100"), best("60", "120")),
    Case("XP511", best("5%", "33.3%"), best("5%", "35%"), variant="shares"),
    Case("XP511", best("10%", "30%", "target trl-0.18"), best("10%", "30%"), variant="rounding"),
    Case("XP511", best("5%", "100"), best("50", "100"), variant="mixed"),
    Case(
        "XP512",
        spec(HELD, EPOCHS, *extra('metric_for_best_model = "accuracy"')),
        spec(HELD, EPOCHS, *extra('metric_for_best_model = "mean_token_accuracy"')),
    ),
    Case(
        "XP512",
        spec(HELD, EPOCHS, "target trl-0.18", *extra('metric_for_best_model = "mean_token_accuracy"')),
        spec(HELD, EPOCHS, "target trl-0.18", *extra('metric_for_best_model = "eval_loss"')),
        variant="0.18",
    ),
    Case(
        "XP512",
        spec(HELD, EPOCHS, "method dpo", *extra('metric_for_best_model = "rewards/accuracy"'), train=PAIRS),
        spec(HELD, EPOCHS, "method dpo", *extra('metric_for_best_model = "rewards/accuracies"'), train=PAIRS),
        variant="dpo",
    ),
    Case(
        "XP512",
        spec(
            HELD,
            EPOCHS,
            "method grpo(rewards=[accuracy])",
            *extra('metric_for_best_model = "rewards/accuracy/mean"'),
            train=trained("qwen2.5-3b on deepmath-103k"),
        ),
        spec(
            HELD,
            EPOCHS,
            "method grpo(rewards=[accuracy])",
            *extra('metric_for_best_model = "rewards/accuracy_reward/mean"'),
            train=trained("qwen2.5-3b on deepmath-103k"),
        ),
        variant="rewards",
    ),
    Case(
        "XP512",
        spec(
            HELD,
            EPOCHS,
            'method grpo(rewards=["quiet.py:even"])',
            *extra('metric_for_best_model = "share"'),
            train=trained("qwen2.5-3b on deepmath-103k"),
        ),
        spec(
            HELD,
            EPOCHS,
            'method grpo(rewards=["telling.py:even"])',
            *extra('metric_for_best_model = "share"'),
            train=trained("qwen2.5-3b on deepmath-103k"),
        ),
        {"quiet.py": QUIET, "telling.py": TELLING},
        variant="own-reward",
    ),
    Case("XP793", spec("eval(patience=2)"), spec(HELD, "eval(every=epoch, patience=2)", *extra(BEST))),
    Case(
        "XP794",
        spec(HELD, "eval(every=epoch, patience=2)"),
        spec(HELD, "eval(every=epoch, patience=2)", *extra(BEST)),
    ),
    Case(
        "XP514",
        spec(HELD, EPOCHS, *extra(BEST), save='save "out/run" keep=1'),
        spec(HELD, EPOCHS, *extra(BEST), save='save "out/run" keep=2'),
    ),
    Case(
        "XP515",
        spec(HELD, EPOCHS, *extra(BEST), "nodes 2", strategy="ddp", batch="gbs=256 micro=16"),
        spec(
            HELD, EPOCHS, *extra(BEST, "save_on_each_node = true"), "nodes 2", strategy="ddp", batch="gbs=256 micro=16"
        ),
    ),
    Case("XP516", spec(*extra("eval_on_start = true")), spec(HELD, *extra("eval_on_start = true"))),
    Case(
        "XP517",
        spec(HELD, "eval(every=5)", *extra("eval_delay = 100", BEST), train=SHORT, save='save "out/run" every=5'),
        spec(HELD, "eval(every=5)", *extra("eval_delay = 10", BEST), train=SHORT, save='save "out/run" every=5'),
    ),
    Case(
        "XP517",
        spec(HELD, EPOCHS, *extra("eval_delay = 100")),
        spec(HELD, EPOCHS, *extra("eval_delay = 2")),
        variant="epochs",
    ),
    Case(
        "XP350",
        spec(*extra("bf16_full_eval = true"), train=SMALL, hardware=VOLTA, precision="fp16", strategy="ddp"),
        spec(train=SMALL, hardware=VOLTA, precision="fp16", strategy="ddp"),
        variant="before-ampere",
    ),
    Case(
        "XP356",
        spec(*extra('half_precision_backend = "apex"'), "target trl-0.18"),
        spec(*extra('half_precision_backend = "auto"'), "target trl-0.18"),
        variant="zero",
    ),
    Case(
        "XP494",
        on_cpu(*extra("aio.use_gds = true", block="deepspeed")),
        on_cpu(*extra("aio.block_size = 1048576", block="deepspeed")),
    ),
    Case("XP704", spec(*extra("full_determinism = true")), spec("seed 7")),
    Case("XP705", spec("target trl-0.18", *extra("save_safetensors = false")), spec("target trl-0.18")),
)
