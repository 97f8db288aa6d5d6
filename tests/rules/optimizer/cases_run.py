"""Cases of batch, optimizer, schedule, evaluation, saving (XP2xx, XP51x to XP54x, XP70x to XP74x)."""

from __future__ import annotations

from case_support import Case, spec

CASES: tuple[Case, ...] = (
    Case("XP107", spec(batch="gbs=128 micro=0"), spec(), variant="micro"),
    Case("XP107", spec("schedule cosine(warmup=-1)"), spec("schedule cosine(warmup=1)"), variant="warmup"),
    Case(
        "XP107",
        spec("eval(every=0)", "data(holdout=5%)"),
        spec("eval(every=1)", "data(holdout=5%)"),
        variant="eval-every",
    ),
    Case(
        "XP105",
        spec("eval(every=2.5)", "data(holdout=5%)"),
        spec("eval(every=2)", "data(holdout=5%)"),
        variant="eval-every",
    ),
    Case("XP105", spec(save='save "out/run" every=2.5'), spec(save='save "out/run" every=2'), variant="save-every"),
    Case("XP201", spec(batch="gbs=512 micro=11"), spec(batch="gbs=528 micro=11")),
    Case("XP201", spec(batch="gbs=512 micro=11 accum=6"), spec(batch="gbs=528 micro=11 accum=6"), variant="all-three"),
    Case("XP202", spec(train="qwen2.5-3b on infinity-instruct for 0 epochs"), spec()),
    Case(
        "XP203",
        spec("schedule cosine(warmup=100)", train="qwen2.5-3b on infinity-instruct for 100 steps"),
        spec("schedule cosine(warmup=99)", train="qwen2.5-3b on infinity-instruct for 100 steps"),
    ),
    Case("XP204", spec("schedule linear(min_lr=10%)"), spec("schedule cosine(min_lr=10%)")),
    Case(
        "XP204",
        spec("schedule cosine(min_lr=1e-4)", "optimizer adamw(lr=1e-5)"),
        spec("schedule cosine(min_lr=1e-5)", "optimizer adamw(lr=1e-5)"),
        variant="above-the-peak",
    ),
    Case("XP205", spec("schedule wsd"), spec("schedule wsd(decay=100)")),
    Case(
        "XP205",
        spec("schedule wsd(decay=10%)"),
        spec("schedule wsd(decay=10%)", train="qwen2.5-3b on infinity-instruct for 1000 steps"),
        variant="share",
    ),
    Case("XP206", spec("optimizer sgd(betas=[0.9, 0.95])"), spec("optimizer sgd")),
    Case("XP207", spec("optimizer adamw(lr=0)"), spec("optimizer adamw(lr=1e-5)")),
    Case(
        "XP702", spec(save='save "out/run" full_state=false'), spec(save='save "out/run" full_state=false resume=never')
    ),
    Case("XP707", spec(save='save "out/run" merge'), spec("lora", save='save "out/run" merge')),
    Case(
        "XP708", spec("lora", save='save "out/run" merge', strategy="zero3"), spec("lora", save='save "out/run" merge')
    ),
    Case(
        "XP708", spec("qlora", save='save "out/run" merge'), spec("lora", save='save "out/run" merge'), variant="bits"
    ),
    Case("XP703", spec(save='save "out/run" keep=1 every=never'), spec(save='save "out/run" keep=1 every=epoch')),
)
