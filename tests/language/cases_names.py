"""Cases of names, units, files and places (XP1xx)."""

from __future__ import annotations

import json

from case_support import PLAIN, ROW, Case, data, spec, trained
from compile_support import CONFIG
from extra_arguments import NUMBER

PAIRS = trained("qwen2.5-3b on ultrafeedback-binarized")
PROMPTS = trained("qwen2.5-3b on deepmath-103k")
GRPO = "method grpo(rewards=format"

CASES: tuple[Case, ...] = (
    Case("XP101", spec(batch="gbs=128 micr=16"), spec(batch="gbs=128 micro=16")),
    Case("XP101", spec("model(torch_dtype=fp32)"), spec("model(dtype=fp32)"), variant="torch-dtype"),
    Case("XP102", spec("optimizer adamw(seq=2048)"), spec(batch="gbs=128 micro=16 seq=2048")),
    Case("XP103", spec("seed 1", "seed 2"), spec("seed 1")),
    Case("XP104", spec('optimizer adamw(lr="1e-5")'), spec("optimizer adamw(lr=1e-5)")),
    Case("XP104", spec("schedule"), spec("schedule linear"), variant="no-value"),
    Case("XP105", spec(batch="gbs=128 micro=16 seq=2k"), spec(batch="gbs=128 micro=16 seq=2Ki")),
    Case("XP105", spec("data(holdout=1.0)"), spec("data(holdout=1)", "eval(every=epoch)"), variant="count-or-share"),
    Case("XP106", spec("schedule cosin"), spec("schedule cosine")),
    Case(
        "XP106",
        spec("model(attn=flash2)", batch="gbs=128 micro=16 packing(strategy=bfd-requeue)"),
        spec("model(attn=flash2)", batch="gbs=128 micro=16 packing(strategy=bfd_split)"),
        variant="bfd-requeue",
    ),
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
    Case("XP112", spec(hardware="8 x h100-80bg"), spec()),
    Case("XP113", spec("target trl-1.1600"), spec("target trl-1.16")),
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
    Case("XP116", spec('model(rope="yarn")'), spec()),
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
        "XP120",
        spec("extra trl {", "  max_seq_length = 2048", "}"),
        spec(batch="gbs=128 micro=16 seq=2048"),
        variant="renamed",
    ),
    Case(
        "XP120",
        spec("extra trl {", "  gradient_checkpointing = true", "}"),
        spec("memory(checkpointing)"),
        variant="alias",
    ),
    Case(
        "XP120",
        spec("extra trl {", "  gradient_checkpointing = true", "  activation_checkpointing = false", "}"),
        spec("memory(checkpointing=false)", batch="gbs=128 micro=4"),
        variant="both-names",
    ),
    Case(
        "XP120",
        spec("extra trl {", '  pad_token = "<|endoftext|>"', "}"),
        spec('model(pad="<|endoftext|>")'),
        variant="deprecated",
    ),
    Case("XP121", spec("extra trl {", "  save_safetensors = false", "}"), spec(), variant="removed"),
    Case(
        "XP121",
        spec("extra trl {", "  group_by_length = true", "}"),
        spec("extra trl {", "  train_sampling_strategy = group_by_length", "}"),
        variant="renamed",
    ),
    Case("XP121", spec("extra trl {", f"  {NUMBER[:-1]} = 5", "}"), spec("extra trl {", f"  {NUMBER} = 5", "}")),
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
    Case("XP126", spec("method sft(beta=0.1)"), spec("method sft")),
    Case(
        "XP126",
        spec("method dpo", train=PAIRS, batch="gbs=128 micro=16 packing"),
        spec("method dpo", train=PAIRS),
        variant="packing",
    ),
    Case(
        "XP127",
        spec(f"{GRPO}, vllm(mode=colocate, sleep))", "target trl-0.18", train=PROMPTS),
        spec(f"{GRPO}, vllm(mode=colocate, sleep))", train=PROMPTS),
    ),
    Case(
        "XP127",
        spec("method rloo(rewards=format)", "target trl-0.18", train=PROMPTS),
        spec("method rloo(rewards=format)", train=PROMPTS),
        variant="rloo",
    ),
    Case(
        "XP127",
        spec("method dpo(loss=[sigmoid, hinge])", "target trl-0.18", train=PAIRS),
        spec("method dpo(loss=hinge)", "target trl-0.18", train=PAIRS),
        variant="losses",
    ),
    Case(
        "XP127",
        spec(f"{GRPO}, scale_rewards=batch)", "target trl-0.18", train=PROMPTS),
        spec(f"{GRPO}, scale_rewards=group)", "target trl-0.18", train=PROMPTS),
        variant="scale",
    ),
    Case(
        "XP128",
        spec(train=trained("google/flan-t5-xl on ultrachat-200k")),
        spec(train=trained("qwen2.5-3b on ultrachat-200k")),
    ),
    Case(
        "XP128",
        spec(train=trained('"model" on ultrachat-200k')),
        spec(train=trained("qwen2.5-3b on ultrachat-200k")),
        {"model/config.json": '{"model_type": "t5", "d_model": 512, "num_layers": 6}'},
        variant="local",
    ),
    Case("XP190", spec(save=""), spec()),
    Case(
        "XP901",
        spec(strategy="zero2  # xpc: allow XP410 the cluster has only FSDP1"),
        spec(strategy="fsdp1  # xpc: allow XP410 the cluster has only FSDP1"),
    ),
    Case(
        "XP902",
        spec(strategy="zero2  # xpc: allow XP4100 the cluster has only FSDP1"),
        spec(strategy="fsdp1  # xpc: allow XP410 the cluster has only FSDP1"),
    ),
    Case(
        "XP902",
        spec(strategy="zero2  # xpc: allow XP410"),
        spec(strategy="fsdp1  # xpc: allow XP410 the cluster has only FSDP1"),
        variant="no-reason",
    ),
    Case(
        "XP140",
        spec(train=trained("qwen2.5-3b on infinity-instruct[train:0.2]")),
        spec(train=trained("qwen2.5-3b on infinity-instruct[train:20%]")),
    ),
)
