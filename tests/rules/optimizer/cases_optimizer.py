"""Cases of optimizers, schedules and the batch beside them (XP208 to XP273)."""

from __future__ import annotations

from case_support import ROW, Case, on_cpu, spec, trained
from cases_data import extra
from cases_numerics import SMALL

STEPS = "qwen2.5-3b on infinity-instruct for 100 steps"
EVAL = ("data(holdout=5%)", "eval(every=10)")
ONE = {"hardware": "1 x h100-80gb", "strategy": "ddp"}
UNSAVED = {"save": 'save "out/run" every=never'}
OLD = "target trl-0.18"
GALORE = "optimizer galore_adamw(targets=all-linear)"
ROWS = {"rows.jsonl": ROW * 100}
LOCAL = trained('qwen2.5-3b on "rows.jsonl"')


CASES: tuple[Case, ...] = (
    # the batch
    Case(
        "XP203",
        spec("schedule cosine(warmup=99%)", train=STEPS.replace("100", "10")),
        spec("schedule cosine(warmup=90%)", train=STEPS.replace("100", "10")),
        variant="share",
    ),
    Case(
        "XP203",
        spec("schedule polynomial(warmup=100)", train=STEPS),
        spec("schedule polynomial(warmup=99)", train=STEPS),
        variant="polynomial",
    ),
    Case(
        "XP203",
        spec("schedule cosine(warmup=3)", train=LOCAL, batch="gbs=80 micro=10", strategy="ddp").replace(
            "3 epochs", "1 epochs"
        ),
        spec("schedule cosine(warmup=1)", train=LOCAL, batch="gbs=80 micro=10", strategy="ddp").replace(
            "3 epochs", "1 epochs"
        ),
        ROWS,
        variant="rows",
    ),
    Case(
        "XP204", spec("schedule polynomial(min_lr=100%)"), spec("schedule polynomial(min_lr=10%)"), variant="polynomial"
    ),
    Case(
        "XP206",
        spec(f"{GALORE[:-1]}, weight_decay=0.1)", strategy="ddp"),
        spec(GALORE, strategy="ddp"),
        variant="galore",
    ),
    Case("XP208", spec(train=LOCAL, batch="gbs=128 micro=4"), spec(train=LOCAL, batch="gbs=64 micro=4"), ROWS),
    Case(
        "XP208",
        spec("extra trl(dataloader_drop_last=true)", train=LOCAL, batch="gbs=128 micro=4"),
        spec("extra trl(dataloader_drop_last=true)", train=LOCAL, batch="gbs=64 micro=4"),
        ROWS,
        variant="drop-last",
    ),
    Case(
        "XP208",
        spec(train=LOCAL, batch="gbs=128 micro=16"),
        spec(train=LOCAL, batch="gbs=64 micro=8"),
        ROWS,
        variant="repeated",
    ),
    Case("XP209", spec(batch="gbs=8192 micro=2"), spec(batch="gbs=8192 micro=4")),
    Case(
        "XP210",
        spec(extra("dataloader_drop_last = true"), train=LOCAL, batch="gbs=128 micro=16"),
        spec(extra("dataloader_drop_last = true"), train=LOCAL, batch="gbs=64 micro=8"),
        ROWS,
    ),
    # optimizers
    Case(
        "XP220",
        spec("optimizer stable_adamw", OLD, strategy="ddp", train=SMALL),
        spec("optimizer stable_adamw", strategy="ddp", train=SMALL),
    ),
    Case(
        "XP220",
        spec("optimizer galore_adamw_layerwise(targets=all-linear)", OLD, batch="gbs=16 micro=16", **ONE, **UNSAVED),
        spec("optimizer galore_adamw_layerwise(targets=all-linear)", batch="gbs=16 micro=16", **ONE, **UNSAVED),
        variant="layerwise",
    ),
    Case("XP221", spec("optimizer sgd(targets=all-linear)"), spec("optimizer sgd")),
    Case("XP221", spec("optimizer adamw(momentum=0.9)"), spec("optimizer sgd(momentum=0.9)"), variant="momentum"),
    Case("XP221", spec("optimizer sgd(momentum=0.9)", OLD), spec("optimizer sgd", OLD), variant="0.18"),
    Case("XP222", spec("optimizer galore_adamw", strategy="ddp"), spec(GALORE, strategy="ddp")),
    Case(
        "XP222",
        spec("optimizer apollo_adamw(targets=[c_attn])", strategy="ddp"),
        spec("optimizer apollo_adamw(targets=[attn])", strategy="ddp"),
        variant="names",
    ),
    Case(
        "XP223",
        spec("optimizer galore_adamw_layerwise(targets=all-linear)", batch="gbs=16 micro=8", **ONE, **UNSAVED),
        spec("optimizer galore_adamw_layerwise(targets=all-linear)", batch="gbs=8 micro=8", **ONE, **UNSAVED),
    ),
    Case(
        "XP223",
        spec("optimizer apollo_adamw_layerwise(targets=all-linear)", strategy="ddp", **UNSAVED),
        spec("optimizer apollo_adamw(targets=all-linear)", strategy="ddp"),
        variant="processes",
    ),
    Case(
        "XP223",
        on_cpu("optimizer lomo", strategy="ddp", batch="gbs=4 micro=2"),
        on_cpu("optimizer adamw", strategy="ddp", batch="gbs=4 micro=2"),
        variant="copies",
    ),
    Case(
        "XP223",
        on_cpu("optimizer lomo", strategy="ddp", batch="gbs=4 micro=2").replace("2 x cpu", "1 x cpu"),
        on_cpu("optimizer lomo", strategy="ddp", batch="gbs=2 micro=2").replace("2 x cpu", "1 x cpu"),
        variant="lomo",
    ),
    Case("XP224", spec(GALORE), spec(GALORE, strategy="ddp")),
    Case(
        "XP224",
        on_cpu("optimizer adagrad", batch="gbs=4 micro=2"),
        on_cpu("optimizer adagrad", batch="gbs=4 micro=2", strategy="ddp"),
        variant="adagrad",
    ),
    Case(
        "XP224",
        spec("optimizer lomo"),
        spec("optimizer lomo", strategy="fsdp", batch="gbs=128 micro=16"),
        variant="lomo",
    ),
    Case("XP224", spec("optimizer stable_adamw", strategy="zero3"), spec("optimizer stable_adamw"), variant="stable"),
    Case(
        "XP224",
        spec("optimizer adafactor", strategy="fsdp"),
        spec("optimizer adafactor", strategy="fsdp1"),
        variant="adafactor",
    ),
    Case(
        "XP224",
        spec("optimizer adagrad", strategy="fsdp"),
        spec("optimizer adagrad", strategy="fsdp", save='save "out/run" every=never'),
        variant="states",
    ),
    Case(
        "XP224",
        spec(GALORE, strategy="fsdp1", save='save "out/run"').replace("fsdp1", "zero3"),
        spec(GALORE, strategy="ddp"),
        variant="zero3",
    ),
    Case("XP225", spec(GALORE, "lora(rank=16)", strategy="ddp"), spec("lora(rank=16)", strategy="ddp")),
    Case(
        "XP226",
        spec(
            "optimizer schedule_free_adamw",
            "schedule constant(warmup=3%)",
            strategy="ddp",
            train=trained("qwen2.5-3b on org/rows"),
        ).replace("hardware", "data(format=messages)\nhardware"),
        spec("optimizer schedule_free_adamw", "schedule constant(warmup=100)", strategy="ddp"),
    ),
    Case(
        "XP227",
        spec("optimizer schedule_free_sgd", "schedule cosine(warmup=10)", strategy="ddp"),
        spec("optimizer schedule_free_sgd", "schedule constant(warmup=10)", strategy="ddp"),
    ),
    Case(
        "XP914",
        spec(GALORE.replace("adamw", "adamw_layerwise"), batch="gbs=8 micro=8", **ONE),
        spec(GALORE, batch="gbs=8 micro=8", **ONE),
    ),
    # schedules
    Case("XP240", spec("schedule greedy", *EVAL, OLD), spec("schedule greedy", *EVAL)),
    Case("XP241", spec("schedule linear(cycles=2)"), spec("schedule cosine_with_restarts(cycles=2)")),
    Case(
        "XP241",
        spec("schedule inverse_sqrt(timescale=10)", OLD),
        spec("schedule inverse_sqrt(timescale=10)"),
        variant="0.18",
    ),
    Case(
        "XP241",
        spec("schedule cosine(warmup=10, warmup_lr=10%)"),
        spec("schedule cosine(warmup=10, warmup_lr=10%, min_lr=10%)"),
        variant="warmup-lr",
    ),
    Case("XP242", spec("schedule reduce_lr_on_plateau"), spec("schedule reduce_lr_on_plateau", *EVAL)),
    Case("XP242", spec("schedule greedy"), spec("schedule greedy", *EVAL), variant="greedy"),
    Case(
        "XP243",
        spec("schedule greedy", *EVAL, extra('metric_for_best_model = "bleu"')),
        spec(
            "schedule greedy", *EVAL, extra('metric_for_best_model = "mean_token_accuracy"', "greater_is_better = true")
        ),
    ),
    Case(
        "XP244",
        spec("schedule reduce_lr_on_plateau(factor=1)", *EVAL),
        spec("schedule reduce_lr_on_plateau(factor=0.5)", *EVAL),
    ),
    Case("XP245", spec("schedule polynomial", "optimizer sgd"), spec("schedule polynomial", "optimizer adamw")),
    Case("XP246", spec("schedule greedy(warmup=10)", *EVAL), spec("schedule greedy(warmup=0)", *EVAL)),
    Case(
        "XP247",
        spec("schedule wsd(warmup=20, decay=90)", train=STEPS),
        spec("schedule wsd(warmup=10, decay=90)", train=STEPS),
    ),
    # the escape
    Case(
        "XP270",
        spec("optimizer sgd", extra('optim_args = "dampening"')),
        spec("optimizer sgd", extra('optim_args = "dampening=0.5"')),
    ),
    Case(
        "XP270",
        spec("optimizer sgd", extra('optim_args = "nesterov=true"')),
        spec("optimizer sgd(momentum=0.9)", extra('optim_args = "nesterov=true"')),
        variant="nesterov",
    ),
    Case(
        "XP270",
        spec("optimizer sgd", extra('optim_args = "dampening=much"')),
        spec("optimizer sgd", extra('optim_args = "dampening=0.1"')),
        variant="number",
    ),
    Case(
        "XP270",
        spec("optimizer rmsprop", extra('optim_args = "beta3=0.9"')),
        spec("optimizer rmsprop", extra('optim_args = "alpha=0.9"')),
        variant="unread",
    ),
    Case(
        "XP271",
        spec(extra("auto_find_batch_size = true"), strategy="ddp"),
        spec(extra("auto_find_batch_size = false"), strategy="ddp"),
    ),
    Case(
        "XP271",
        spec(extra("auto_find_batch_size = true"), *EVAL, strategy="ddp"),
        spec(extra("auto_find_batch_size = false"), *EVAL, strategy="ddp"),
        variant="evaluation",
    ),
    Case("XP272", spec(extra("neftune_noise_alpha = -5")), spec(extra("neftune_noise_alpha = 0"))),
    Case(
        "XP273",
        spec(
            extra('train_sampling_strategy = "batch_rebalance"'),
            strategy="fsdp(context_parallel=2)",
            batch="gbs=128 micro=16",
        ),
        spec(extra('train_sampling_strategy = "batch_rebalance"'), strategy="fsdp", batch="gbs=128 micro=16"),
    ),
)
