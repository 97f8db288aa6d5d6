"""Proofs of rules about the batch, optimizers and schedules."""

from __future__ import annotations

from case_support import ROW, spec
from prove import Proof
from spec_parts import extra, grpo

from violations.strategy import cpu, two

EVAL = ("data(holdout=5%)", "eval(every=10)")
OLD = "target trl-0.18"
GALORE = "optimizer galore_adamw(targets=all-linear)"
KEPT = ("optim", "optim_args", "optim_target_modules")
FSDP = {"keep": ("fsdp", "save_strategy", *KEPT), "processes": 2}
LENGTH = ("max_steps",)
STEPS = "qwen2.5-3b on infinity-instruct for {} steps"
STATES = 'save "out/run" every=1'
UNSAVED = 'save "out/run" every=never'


def one(*more: str, batch: str = "gbs=4 micro=2", train: str = "qwen2.5-3b on infinity-instruct for 1 epochs") -> str:
    """A spec of one CPU process."""
    head = f"xpc 1\ntrain {train}\nhardware 1 x cpu\nstrategy ddp\nprecision fp32\nbatch {batch}\n"
    return head + "\n".join([*more, 'save "out/run" every=never']) + "\n"


def pair(*more: str, batch: str = "gbs=4 micro=2") -> str:
    """A spec for two CPU processes that train one epoch of a file of rows."""
    head = 'xpc 1\ntrain qwen2.5-3b on "rows.jsonl" for 1 epochs\nhardware 2 x cpu\nstrategy ddp\nprecision fp32\n'
    return head + "\n".join([f"batch {batch}", *more, 'save "out/run" every=never']) + "\n"


DROP = extra("dataloader_drop_last = true")
SUM = 'extra deepspeed {\n  data_types.grad_accum_dtype = "fp32"\n}'
REBALANCE = extra('train_sampling_strategy = "batch_rebalance"')

MANY = {"rows.jsonl": ROW * 32}

BATCH: tuple[Proof, ...] = (
    Proof("B07", "XP107", case="XP107-micro", at="train", onto="legal", arguments={"per_device_train_batch_size": 0},
          raises="ValueError", match="batch_size should be a positive integer"),
    Proof("B08", "XP210", at="train", files=MANY, keep=LENGTH, raises="ValueError", match="max_steps must be set",
          text=pair(DROP, batch="gbs=128 micro=64"), legal=pair(DROP, batch="gbs=32 micro=16")),
    Proof("B09", "XP208", at="init", files=MANY, measure="batch.steps", expect=lambda seen: seen["largest"] < seen["asked"],
          text=pair(batch="gbs=64 micro=4"), legal=pair(batch="gbs=32 micro=4")),
    Proof("B10", "XP208", case="XP208-repeated", at="init", rows=4, files={"rows.jsonl": ROW * 4}, measure="batch.served",
          expect=lambda seen: seen["served"] > seen["rows"], text=pair(batch="gbs=8 micro=4"), legal=pair()),
    Proof("B14", "XP202", at="init", keep=LENGTH, measure="losses.moved", expect={"moved": False, "steps": 0},
          text=one(train="qwen2.5-3b on infinity-instruct for 0 epochs"), legal=one()),
    Proof("B17", "XP271", case="XP271-evaluation", at="init", measure="batch.shrunk",
          expect={"train": True, "evaluation": False}, variant="evaluation"),
    Proof("B17", "XP271", case="XP271-evaluation", at="init", target="trl-0.18", measure="batch.shrunk",
          expect={"train": True, "evaluation": False}, variant="0.18"),
    Proof("B18", "XP201", case="XP201-all-three", measure="batch.product", expect={"same": False}),
    Proof("B19", "XP273", at="init", keep=("fsdp",), processes=2, measure="batch.readers", expect={"same": False},
          text=two(REBALANCE, strategy="fsdp(context_parallel=2)").replace("gbs=4", "gbs=2"), legal=two(REBALANCE)),
    Proof("B20", "XP209", at="deepspeed", measure="batch.sums", expect={"lost": True}),
    Proof("B20", "XP209", at="deepspeed", measure="batch.sums", expect={"lost": True}, target="trl-0.18", variant="0.18"),
    Proof("B20", "XP209", at="deepspeed", measure="batch.sums", expect={"lost": True}, variant="fp32",
          legal=spec(SUM, batch="gbs=8192 micro=2")),
    Proof("C07", "XP702", at="init", common={"save_strategy": "steps", "save_steps": 1}, measure="saved.resumed",
          expect={"adam": 1, "steps": 2}, legal=spec()),
    Proof("C37", "XP687", at="init", common={"save_strategy": "steps", "save_steps": 1}, measure="saved.again",
          expect={"again": True}, legal=spec()),
    Proof("O37", "XP914", at="init", common={"save_strategy": "steps", "save_steps": 1}, keep=KEPT, measure="saved.states",
          expect={"states": 0}),
    Proof("C16", "XP105", case="XP105-save-every", onto="legal", arguments={"save_steps": 2.5}, raises="ValueError",
          match="save_steps must be an integer"),
    Proof("E02", "XP107", case="XP107-eval-every", onto="legal", arguments={"eval_steps": 0},
          measure="evaluation.interval", expect={"steps": 10}),
    Proof("E03", "XP105", case="XP105-eval-every", onto="legal", arguments={"eval_steps": 2.5}, raises="ValueError",
          match="eval_steps must be an integer"),
    Proof("G25", "XP673", at="init", processes=2, text=grpo("", "seed 4294967295"), legal=grpo("", "seed 4294967288"),
          raises="ValueError", match="between 0 and 2"),
)  # fmt: skip

MUON = "optimizer muon"
ORIGINAL = "optimizer muon(adjust_lr=original, clip=0)"
MUONS: tuple[Proof, ...] = (
    Proof("O39", "XP135", at="init", text=two(MUON), legal=two("optimizer adamw_torch"), measure="muon.sharded",
          expect=lambda seen: seen["off"] > 0.01, keep=("fsdp",), processes=2),
    Proof("O39", "XP135", case="XP135-0.18", at="init", text=cpu(ORIGINAL, OLD), legal=cpu(ORIGINAL, OLD, strategy="ddp"),
          measure="muon.trained", raises="ModuleNotFoundError", match="muon", variant="0.18"),
    Proof("O39", "XP135", at="init", text=cpu(ORIGINAL, "target trl-0.24", strategy="zero1"), measure="muon.trained",
          legal=cpu(ORIGINAL, "target trl-0.24", strategy="ddp"), raises="TypeError", match="adam_optimizer", variant="0.24"),
    Proof("O40", "XP136", at="init", eager=True, measure="muon.moved", expect=lambda seen: seen["uneven"] > 1.3),
    Proof("O41", "XP137", at="init", eager=True, measure="muon.moved", expect=lambda seen: seen["share"] < 0.2),
    Proof("O42", "XP139", at="init", text=one(MUON, "oft(block_size=8)"), legal=one(MUON, "lora"),
          measure="muon.separate", expect=lambda seen: seen["separate"]),
    Proof("O42", "XP139", case="XP139-vera", at="init", text=one(MUON, "vera"), legal=one(MUON, "miss"),
          measure="muon.all_trained", raises="ValueError", match="only supports 2D", variant="vera"),
    Proof("O42", "XP139", case="XP139-experts", at="init", family="qwen3_moe", legal_family="qwen3", measure="muon.all_hidden",
          raises="ValueError", match="only supports 2D", variant="experts"),
    Proof("O43", "XP141", needs="torch before 2.9"),
)  # fmt: skip

OPTIMIZERS: tuple[Proof, ...] = (
    Proof("O01", "XP106", case="XP106-lamb", onto="legal", arguments={"optim": "lamb"}, raises="ValueError", match="lamb"),
    Proof("O04", "XP222", at="train", keep=KEPT, raises="ValueError", match="define .optim_target_modules"),
    Proof("O04", "XP222", case="XP222-names", at="train", keep=KEPT, raises="ValueError", match="No target modules found",
          variant="names"),
    Proof("O05", "XP223", at="train", text=one("optimizer galore_adamw_layerwise(targets=all-linear, rank=8)"),
          legal=one("optimizer galore_adamw_layerwise(targets=all-linear, rank=8)", batch="gbs=2 micro=2"),
          raises="ValueError", match="gradient accumulation"),
    Proof("O05", "XP223", at="train", text=cpu("optimizer apollo_adamw_layerwise(targets=all-linear, rank=8)", strategy="ddp"),
          legal=cpu("optimizer apollo_adamw(targets=all-linear, rank=8)", strategy="ddp"), raises="NotImplementedError",
          match="does not support DDP", variant="processes"),
    Proof("O05", "XP223", case="XP223-copies", at="init", measure="optimizer.copies", expect={"same": False},
          text=cpu("optimizer lomo(lr=0.1)", strategy="ddp"), legal=cpu("optimizer sgd(lr=0.1)", strategy="ddp"),
          variant="copies"),
    Proof("O05", "XP223", case="XP223-lomo", at="init", text=one("optimizer lomo"), legal=one("optimizer sgd"),
          measure="optimizer.early", expect={"early": True}, variant="lomo"),
    Proof("O06", "XP224", at="train", text=cpu(f"{GALORE[:-1]}, rank=8)"),
          legal=cpu(f"{GALORE[:-1]}, rank=8)", strategy="ddp"), raises="IndexError", match="out of range"),
    Proof("O06", "XP224", at="train", text=cpu("optimizer apollo_adamw(targets=all-linear, rank=8)", strategy="zero3"),
          legal=cpu("optimizer apollo_adamw(targets=all-linear, rank=8)", strategy="ddp"), raises="IndexError",
          match="out of range", variant="apollo"),
    Proof("O06", "XP224", at="train", text=two(f"{GALORE[:-1]}, rank=8)", UNSAVED, strategy="fsdp1"), raises="IndexError",
          legal=two("optimizer adamw_torch", UNSAVED, strategy="fsdp1"), match="out of range", variant="fsdp1",
          keep=("fsdp", *KEPT), processes=2),
    Proof("O06", "XP224", at="train", text=two(f"{GALORE[:-1]}, rank=8)", STATES), raises="ValueError",
          legal=two("optimizer adamw_torch", STATES), match="GaLoreProjector", variant="states", **FSDP),
    Proof("O06", "XP224", case="XP224-adagrad", at="train", raises="IndexError", match="out of range", variant="zero"),
    Proof("O06", "XP224", case="XP224-adagrad", at="train", target="trl-0.18", raises="IndexError",
          match="out of range", variant="zero-0.18"),
    Proof("O06", "XP224", case="XP224-adagrad-lora-plus", at="train", raises="IndexError", match="out of range",
          variant="lora-plus"),
    Proof("O06", "XP224", case="XP224-adagrad-norms", at="train", raises="IndexError", match="out of range",
          variant="norms"),
    Proof("O06", "XP224", at="train", text=cpu("optimizer lomo"), legal=cpu("optimizer sgd"), raises="TypeError",
          match="learning_rate", variant="lomo"),
    Proof("O06", "XP224", at="train", text=cpu("optimizer stable_adamw", strategy="zero3"), raises="RuntimeError",
          legal=cpu("optimizer stable_adamw"), match="nested_tensorlist", variant="stable"),
    Proof("O06", "XP224", at="train", text=two("optimizer adafactor"), legal=two("optimizer adamw_torch"),
          raises="RuntimeError", match="mixed torch.Tensor and DTensor", variant="adafactor", **FSDP),
    Proof("O06", "XP224", at="train", text=two("optimizer adagrad", STATES), raises="KeyError", match="",
          legal=two("optimizer adagrad", UNSAVED), variant="adagrad-states", **FSDP),
    Proof("O07", "XP225", at="init", measure="optimizer.states", expect={"fewer": False},
          text=one(f"{GALORE[:-1]}, rank=8)", "lora(rank=8)"), legal=one(f"{GALORE[:-1]}, rank=8)")),
    Proof("O09", "XP221", at="init", keep=KEPT, measure="optimizer.groups",
          text=one("optimizer sgd(targets=all-linear)"), legal=one(GALORE),
          arguments={"optim_target_modules": "all-linear"}, expect=lambda seen: "rank" not in seen),
    Proof("O09", "XP221", case="XP221-0.18", at="init", target="trl-0.18", measure="optimizer.groups",
          text=one("optimizer sgd(momentum=0.9)"), legal=one("optimizer adamw_torch"), expect={"momentum": 0},
          variant="momentum"),
    Proof("O10", "XP270", at="train", raises="ValueError", match="not enough values to unpack"),
    Proof("O10", "XP270", at="train", target="trl-0.18", raises="ValueError", match="not enough values to unpack",
          legal=spec("optimizer sgd"), variant="0.18"),
    Proof("O10", "XP270", case="XP270-number", at="train", raises="ValueError", match="could not convert", variant="number"),
    Proof("O10", "XP270", case="XP270-nesterov", at="train", raises="ValueError", match="Nesterov momentum requires",
          variant="nesterov"),
    Proof("O10", "XP270", case="XP270-unread", at="init", measure="optimizer.groups", variant="unread",
          expect=lambda seen: 0.9 not in seen.values()),
    Proof("O19", "XP226", at="init", keep=KEPT, measure="optimizer.groups",
          expect=lambda seen: 0 < seen["warmup_steps"] < 1),
    Proof("O24", "XP206", at="init", measure="optimizer.groups", expect=lambda seen: "betas" not in seen,
          legal=spec("optimizer adamw(betas=[0.9, 0.95])")),
    Proof("O24", "XP206", case="XP206-galore", at="init", keep=KEPT, measure="optimizer.groups",
          expect={"weight_decay": 0.0}, legal=spec("optimizer adamw_torch(weight_decay=0.1)"), variant="galore"),
    Proof("O27", "XP272", at="train", raises="RuntimeError", match="uniform_ expects"),
    Proof("O27", "XP272", at="train", target="trl-0.18", raises="RuntimeError", match="uniform_ expects", variant="0.18"),
    Proof("O29", "XP220", onto="legal", legal=spec(OLD), arguments={"optim": "stable_adamw"}, raises="ValueError",
          match="stable_adamw"),
    Proof("K21", "XP334", at="train", text=one("optimizer adalomo", batch="gbs=2 micro=2"), raises="AssertionError",
          legal=one("optimizer lomo", batch="gbs=2 micro=2"), match="Torch not compiled with CUDA enabled"),
    Proof("O44", "XP228", at="init", measure="optimizer.averaged", expect={"averaged": False},
          text=cpu("optimizer schedule_free_adamw(lr=1e-2)", strategy="zero1"),
          legal=cpu("optimizer schedule_free_adamw(lr=1e-2)", strategy="ddp")),
    Proof("O30", "XP227", at="init", measure="optimizer.rates", expect=lambda seen: seen["highest"] < 1,
          text=one("optimizer schedule_free_sgd", "schedule cosine(warmup=10)"),
          legal=one("optimizer schedule_free_sgd", "schedule constant(warmup=10)")),
)  # fmt: skip

SCHEDULES: tuple[Proof, ...] = (
    Proof("O02", "XP106", onto="legal", arguments={"lr_scheduler_type": "cosin"}, raises="ValueError", match="cosin"),
    Proof("O11", "XP242", raises="ValueError", match="requires an eval strategy"),
    Proof("O11", "XP242", target="trl-0.18", raises="ValueError", match="requires an eval strategy", variant="0.18"),
    Proof("O11", "XP242", case="XP242-greedy", raises="ValueError", match="requires an eval strategy", variant="greedy"),
    Proof("O12", "XP243", at="train", raises="KeyError", match="eval_bleu",
          text=one("schedule greedy", "eval(every=1, split=test)", extra('metric_for_best_model = "bleu"')),
          legal=one("schedule greedy", "eval(every=1, split=test)", extra('metric_for_best_model = "entropy"'))),
    Proof("O15", "XP204", at="train", raises="TypeError", match="min_lr",
          text=one("schedule linear(min_lr=1e-6)"), legal=one("schedule linear"), arguments={"lr_scheduler_kwargs": {"min_lr": 1e-6}}),
    Proof("O15", "XP204", case="XP204-polynomial", at="train", raises="ValueError", match="must be smaller than",
          variant="polynomial"),
    Proof("O16", "XP107", case="XP107-warmup", onto="legal", arguments={"warmup_steps": -1}, raises="ValueError",
          match="warmup_steps >= 0|0 or more|non-negative"),
    Proof("O17", "XP203", at="init", keep=LENGTH, measure="optimizer.rates", expect=lambda seen: seen["highest"] < 1,
          text=one("schedule cosine(warmup=4)", train=STEPS.format(4)),
          legal=one("schedule cosine(warmup=3)", train=STEPS.format(4))),
    Proof("O17", "XP203", case="XP203-polynomial", at="train", keep=LENGTH, raises="ZeroDivisionError",
          text=one("schedule polynomial(warmup=99%)", train=STEPS.format(2)),
          legal=one("schedule polynomial(warmup=50%)", train=STEPS.format(2)), variant="polynomial"),
    Proof("O33", "XP240", raises="ValueError", match="greedy is not a valid SchedulerType", text=spec("schedule greedy", *EVAL, OLD),
          legal=spec("schedule cosine", *EVAL, OLD)),
    Proof("O34", "XP241", text=spec("schedule cosine(warmup=10, warmup_lr=10%, min_lr=10%)", OLD),
          legal=spec("schedule cosine(warmup=10, min_lr=10%)", OLD), raises="ValueError",
          match="cosine_warmup_with_min_lr is not a valid", variant="cosine"),
    Proof("O35", "XP244", at="train", raises="ValueError", match="Factor should be < 1.0"),
    Proof("O31", "XP246", at="init", measure="optimizer.rates", expect=lambda seen: seen["rates"][0] > 0,
          text=one("schedule greedy(warmup=2)", "eval(every=1, split=test)"), legal=one("schedule cosine(warmup=2)")),
    Proof("O32", "XP247", at="init", keep=LENGTH, measure="optimizer.rates", expect=lambda seen: seen["highest"] < 1,
          text=one("schedule wsd(warmup=2, decay=4)", train=STEPS.format(4)),
          legal=one("schedule wsd(warmup=2, decay=2)", train=STEPS.format(4))),
    Proof("O36", "XP245", at="train", text=cpu("schedule polynomial", "optimizer sgd"), legal=cpu("schedule polynomial"),
          raises="AttributeError", match="no attribute 'defaults'"),
)  # fmt: skip

PROOFS: tuple[Proof, ...] = (*BATCH, *OPTIMIZERS, *MUONS, *SCHEDULES)
