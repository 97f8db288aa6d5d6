"""For each code a spec that gets it, and the nearest spec that does not: data for the rules' tests and the goldens."""

from __future__ import annotations

import json
from collections.abc import Mapping

from attrs import field, frozen
from compile_support import CONFIG


@frozen
class Case:
    """`rejected` gives `code` and no other error or warning; `accepted` does not give it and has no error."""

    code: str
    rejected: str
    accepted: str
    files: Mapping[str, str] = field(factory=dict)
    variant: str = ""

    @property
    def title(self) -> str:
        return f"{self.code}-{self.variant}" if self.variant else self.code


def spec(
    *more: str,
    train: str = "qwen2.5-3b on infinity-instruct for 3 epochs",
    hardware: str = "8 x h100-80gb",
    strategy: str = "zero2",
    precision: str = "bf16",
    batch: str = "gbs=128 micro=16",
    save: str = 'save "out/run"',
) -> str:
    """A spec that states everything that would else be assumed in a note."""
    lines = [
        "xpc 1",
        "",
        f"train {train}",
        "",
        f"hardware {hardware}",
        f"strategy {strategy}",
        f"precision {precision}",
        f"batch {batch}",
        save,
        *more,
    ]
    return "\n".join(lines) + "\n"


def on_cpu(*more: str, strategy: str = "zero2", precision: str = "fp32", batch: str = "gbs=8 micro=4") -> str:
    return spec(*more, hardware="2 x cpu", strategy=strategy, precision=precision, batch=batch)


def data(*lines: str, name: str = "") -> str:
    return "\n".join([f"data {name} {{".replace("  ", " "), *(f"  {line}" for line in lines), "}"])


def trained(what: str) -> str:
    return f"{what} for 3 epochs"


ROW = json.dumps({"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}) + "\n"
PLAIN = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
MARKED = PLAIN.replace("{{ message", "{% generation %}{{ message").replace(
    "}}{% endfor", "}}{% endgeneration %}{% endfor"
)

CASES: tuple[Case, ...] = (
    # names and units
    Case("XP101", spec(batch="gbs=128 micr=16"), spec(batch="gbs=128 micro=16")),
    Case("XP102", spec("optimizer adamw(seq=2048)"), spec(batch="gbs=128 micro=16 seq=2048")),
    Case("XP103", spec("seed 1", "seed 2"), spec("seed 1")),
    Case("XP104", spec('optimizer adamw(lr="1e-5")'), spec("optimizer adamw(lr=1e-5)")),
    Case("XP104", spec("schedule"), spec("schedule linear"), variant="no-value"),
    Case("XP105", spec(batch="gbs=128 micro=16 seq=2k"), spec(batch="gbs=128 micro=16 seq=2Ki")),
    Case("XP106", spec("schedule cosin"), spec("schedule cosine")),
    Case("XP107", spec("optimizer adamw(lr=-1)"), spec("optimizer adamw(lr=1)")),
    Case("XP108", spec(train=trained("qwen2.5-3bb on infinity-instruct")), spec()),
    Case(
        "XP109",
        spec(train=trained("org/model on infinity-instruct")),
        spec('model(config=file("config.json"))', train=trained("org/model on infinity-instruct")),
        {"config.json": json.dumps(CONFIG)},
    ),
    Case("XP110", spec(train=trained("qwen2.5-3b on infinity-instrct")), spec()),
    Case(
        "XP111",
        spec(train=trained("qwen2.5-3b on org/rows")),
        spec("data(format=messages)", train=trained("qwen2.5-3b on org/rows")),
    ),
    Case("XP112", spec(hardware="8 x h100-80g"), spec()),
    Case("XP113", spec("target trl-1.17"), spec("target trl-1.16")),
    Case(
        "XP114",
        spec('model(chat_template=file("chatlm.jinja"))'),
        spec('model(chat_template=file("chatml.jinja"))'),
        {"chatml.jinja": PLAIN},
    ),
    Case(
        "XP115",
        spec().replace("xpc 1\n", 'xpc 1\nextends "t.xp"\n'),
        spec().replace("xpc 1\n", 'xpc 1\nextends "base.xp"\n'),
        {"base.xp": "seed 7\n", "t.xp": "seed 7\n"},
    ),
    Case("XP116", spec("method dpo"), spec("method sft")),
    Case("XP117", "xpc 1\n\nseed 1\n", spec("seed 1")),
    Case(
        "XP118",
        spec(train=trained('"models/none" on infinity-instruct')),
        spec(train=trained('"models/tiny" on infinity-instruct'), batch="gbs=128 micro=16 seq=512"),
        {"models/tiny/config.json": json.dumps(CONFIG)},
    ),
    Case(
        "XP119",
        spec(data("infinity-instruct", name="mix")),
        spec(data("infinity-instruct", name="mix"), train=trained("qwen2.5-3b on mix")),
    ),
    Case("XP120", spec("extra trl {", "  learning_rate = 1e-5", "}"), spec("optimizer adamw(lr=1e-5)")),
    Case(
        "XP121", spec("extra trl {", "  neftune_noise = 5", "}"), spec("extra trl {", "  neftune_noise_alpha = 5", "}")
    ),
    Case(
        "XP122",
        spec("model(revision=v2)", train=trained("qwen2.5-3b@main on infinity-instruct")),
        spec("model(revision=v2)"),
    ),
    Case(
        "XP123",
        spec(train=trained('qwen2.5-3b on "roes.jsonl"')),
        spec(train=trained('qwen2.5-3b on "rows.jsonl"')),
        {"rows.jsonl": ROW},
    ),
    Case(
        "XP124",
        spec(train=trained('qwen2.5-3b on "odd.jsonl"')),
        spec(
            data('"odd.jsonl" {\n    columns = [story]\n  }', "format = text", name="mix"),
            train=trained("qwen2.5-3b on mix"),
        ),
        {"odd.jsonl": '{"story": "once", "id": 1}\n'},
    ),
    Case("XP125", spec().removeprefix("xpc 1\n\n"), spec()),
    Case("XP190", spec(save=""), spec()),
    # batch and schedule
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
    # precision, attention, kernels
    Case("XP301", spec(hardware="8 x t4"), spec(hardware="8 x t4", precision="fp32")),
    Case(
        "XP301",
        spec("model(dtype=bf16)", hardware="8 x t4", precision="fp16"),
        spec(hardware="8 x t4", precision="fp16"),
        variant="weights",
    ),
    Case("XP302", spec(hardware="8 x t4", precision="fp32 tf32"), spec(hardware="8 x t4", precision="fp32")),
    Case("XP303", on_cpu(precision="fp16"), on_cpu(precision="fp32")),
    Case("XP304", spec("model(dtype=fp16)", strategy="ddp", precision="fp16"), spec(strategy="ddp", precision="fp16")),
    Case("XP306", on_cpu(precision="bf16"), on_cpu(precision="bf16", strategy="ddp")),
    Case("XP305", spec("model(dtype=bf16)", strategy="ddp"), spec(strategy="ddp")),
    Case(
        "XP305",
        spec("model(dtype=bf16)", "optimizer adamw(lr=1e-6)", strategy="ddp"),
        spec("optimizer adamw(lr=1e-6)", strategy="ddp"),
        variant="small-rate",
    ),
    Case("XP310", spec(batch="gbs=128 micro=16 packing"), spec(batch="gbs=128 micro=16 packing(isolate=mask)")),
    Case(
        "XP311",
        spec(train=trained("falcon-7b on alpaca"), batch="gbs=128 micro=16 packing(isolate=mask)"),
        spec(train=trained("gpt2 on alpaca"), batch="gbs=128 micro=16 packing(isolate=mask)"),
    ),
    Case(
        "XP311",
        spec("model(attn=flash2)", batch="gbs=128 micro=16 packing(isolate=mask)"),
        spec("model(attn=flash2)", batch="gbs=128 micro=16 packing"),
        variant="beside-flash",
    ),
    Case(
        "XP312",
        spec(batch="gbs=128 micro=16 packing(strategy=wrapped, isolate=mask)"),
        spec(batch="gbs=128 micro=16 packing(strategy=bfd, isolate=mask)"),
    ),
    Case(
        "XP312",
        spec("model(attn=flash2)", "target trl-0.18", batch="gbs=128 micro=16 packing"),
        spec("model(attn=flash2)", "target trl-1.16", batch="gbs=128 micro=16 packing"),
        variant="older-target",
    ),
    Case(
        "XP313",
        spec(batch="gbs=128 micro=16 packing(strategy=ffd, isolate=mask)"),
        spec(batch="gbs=128 micro=16 packing(strategy=bfd, isolate=mask)"),
    ),
    Case(
        "XP314",
        spec("model(attn=flash3)", hardware="8 x a100-80gb"),
        spec("model(attn=flash2)", hardware="8 x a100-80gb"),
    ),
    Case("XP314", spec("model(attn=flash2)", precision="fp32"), spec("model(attn=flash2)"), variant="fp32"),
    Case(
        "XP315",
        spec("model(attn=sdpa)", train=trained("gemma-2-2b on alpaca")),
        spec("model(attn=eager)", train=trained("gemma-2-2b on alpaca")),
    ),
    Case("XP316", on_cpu("model(attn=flex)"), on_cpu("model(attn=sdpa)")),
    Case("XP317", spec(batch="gbs=128 micro=16 padding_free seq=2048"), spec(batch="gbs=128 micro=16 padding_free")),
    Case(
        "XP318",
        spec(train=trained("falcon-7b on alpaca"), batch="gbs=128 micro=16 padding_free"),
        spec(train=trained("gpt2 on alpaca"), batch="gbs=128 micro=16 padding_free"),
    ),
    Case("XP319", spec(batch="gbs=128 micro=16 seq=64Ki"), spec(batch="gbs=128 micro=16 seq=32Ki")),
    Case("XP330", on_cpu("memory(liger)"), on_cpu()),
    Case("XP331", spec("memory(liger)", train=trained("gpt2 on alpaca")), spec(train=trained("gpt2 on alpaca"))),
    Case("XP332", on_cpu("memory(offload_activations)"), on_cpu()),
    Case("XP334", on_cpu("optimizer adamw8bit"), on_cpu("optimizer adamw")),
    # sharding
    Case("XP401", spec(strategy="fsdp(activation_checkpointing)"), spec("memory(checkpointing)", strategy="fsdp")),
    Case("XP402", on_cpu(strategy="fsdp"), on_cpu(strategy="zero3")),
    Case("XP403", spec(hardware="1 x h100-80gb", strategy="fsdp"), spec(hardware="2 x h100-80gb", strategy="fsdp")),
    Case("XP404", spec(strategy="ddp(allgather_bucket=500M)"), spec(strategy="zero2(allgather_bucket=500M)")),
    Case(
        "XP404",
        spec(strategy="zero3(round_robin_gradients)"),
        spec(strategy="zero2(round_robin_gradients)"),
        variant="of-another-stage",
    ),
    Case("XP405", spec(strategy="ddp offload"), spec(strategy="zero2 offload")),
    Case("XP405", spec(strategy="fsdp(offload=optimizer)"), spec(strategy="fsdp(offload=cpu)"), variant="fsdp"),
    Case("XP406", spec("optimizer sgd", strategy="zero2 offload"), spec("optimizer adamw", strategy="zero2 offload")),
    Case("XP407", spec("optimizer adamw8bit", strategy="fsdp"), spec("optimizer adamw", strategy="fsdp")),
    Case(
        "XP408",
        spec("nodes 2", strategy="hsdp(shard=3)", batch="gbs=128 micro=8"),
        spec("nodes 2", strategy="hsdp(shard=8)", batch="gbs=128 micro=8"),
    ),
    Case(
        "XP408", spec(strategy="hsdp"), spec("nodes 2", strategy="hsdp", batch="gbs=128 micro=8"), variant="one-group"
    ),
    Case("XP409", spec("target trl-0.18", strategy="fsdp"), spec("target trl-0.18", strategy="fsdp1")),
    Case("XP410", spec(strategy="fsdp1"), spec(strategy="fsdp")),
    Case(
        "XP411",
        spec(strategy="fsdp(state_dict=sharded)", save='save "out/run" full_state=false resume=never'),
        spec(strategy="fsdp(state_dict=full)", save='save "out/run" full_state=false resume=never'),
    ),
    # data and method
    Case("XP501", spec("eval(every=epoch)"), spec("eval(every=epoch)", "data(holdout=5%)")),
    Case("XP502", spec("data(holdout=5%)"), spec("data(holdout=5%)", "eval(every=epoch)")),
    Case("XP503", spec(train=trained("qwen2.5-3b on ultrafeedback-binarized")), spec()),
    Case("XP503", spec(train=trained("qwen2.5-3b on deepmath-103k")), spec(), variant="prompts"),
    Case(
        "XP504",
        spec("method sft(completion_only)"),
        spec("method sft(completion_only)", train=trained("qwen2.5-3b on alpaca")),
    ),
    Case("XP505", spec(train=trained("gpt2 on infinity-instruct")), spec(train=trained("gpt2 on alpaca"))),
    Case(
        "XP506",
        spec('model(chat_template=file("plain.jinja"))', "method sft(assistant_only)"),
        spec('model(chat_template=file("marked.jinja"))', "method sft(assistant_only)"),
        {"plain.jinja": PLAIN, "marked.jinja": MARKED},
    ),
    Case(
        "XP507",
        spec(train=trained("qwen2.5-3b on infinity-instruct[test]")),
        spec(train=trained("qwen2.5-3b on infinity-instruct[train]")),
    ),
    Case(
        "XP508",
        spec(data("infinity-instruct", "c4", name="mix"), train=trained("qwen2.5-3b on mix")),
        spec(data("infinity-instruct", "capybara", name="mix"), train=trained("qwen2.5-3b on mix")),
    ),
    Case(
        "XP601",
        spec("method sft(assistant_only)", "target trl-0.18"),
        spec("method sft(assistant_only)", "target trl-1.16"),
    ),
    Case("XP601", spec("data(shuffle=false)", "target trl-0.18"), spec("data(shuffle=false)"), variant="shuffle"),
    Case(
        "XP601",
        spec("method sft(completion_only)", "memory(liger)", "target trl-0.18", train=trained("qwen2.5-3b on alpaca")),
        spec("method sft(completion_only)", "target trl-0.18", train=trained("qwen2.5-3b on alpaca")),
        variant="lost-mask",
    ),
    # saving and launch
    Case("XP701", spec("model(trust_remote_code)"), spec('model(trust_remote_code, revision="3aab1f1")')),
    Case(
        "XP702", spec(save='save "out/run" full_state=false'), spec(save='save "out/run" full_state=false resume=never')
    ),
    Case("XP703", spec(save='save "out/run" keep=1 every=never'), spec(save='save "out/run" keep=1 every=epoch')),
    Case("XP802", spec("launch local(launcher=torchrun)", strategy="fsdp"), spec("launch local(launcher=torchrun)")),
    Case("XP801", spec(hardware="8 x v100-32gb", precision="fp16"), spec(hardware="8 x t4", precision="fp16")),
)

SYNTAX: tuple[Case, ...] = (
    Case("XP005", "seed = " + "[" * 70 + "]" * 70 + "\n", ""),
    Case("XP006", "]\n" * 22, ""),
    Case("XP010", 'save "out\n', ""),
    Case("XP011", 'save "out\\run"\n', ""),
    Case("XP012", "batch {\n  gbs = 8\n", ""),
    Case("XP013", "seed 1\n}\n", ""),
    Case("XP014", "seed = 1; nodes 2\n", ""),
    Case("XP020", "train qwen2.5-3b infinity-instruct\n", ""),
    Case("XP021", "seed =\n", ""),
    Case("XP022", "batch { gbs = 8 }\n", ""),
    Case("XP023", "seed = 1 nodes = 2\n", ""),
    Case("XP024", "optimizer adamw(betas=[0.9 0.95])\n", ""),
    Case("XP025", "= 1\n", ""),
    Case("XP030", "train qwen2.5-3b on with for 3 epochs\n", ""),
    Case("XP031", "train qwen2.5-3b on infinity-instruct with zero2 for 3 epochs\n", ""),
    Case("XP032", "train gpt2 on alpaca\ntrain gpt2 on c4\n", ""),
    Case("XP033", 'seed 1\nextends "base.xp"\n', ""),
    Case("XP034", "seed 1\nxpc 1\n", ""),
    Case("XP035", "xpc 2\n", ""),
    Case("XP040", "seed = 1__0\n", ""),
    Case("XP041", "seed = 1e999\n", ""),
    Case("XP042", "seed = " + "9" * 400 + "\n", ""),
    Case("XP043", "hardware 8x h100-80gb\n", ""),
)
"""Texts that do not parse: one a code of the grammar, for the goldens. `accepted` is not used."""
