"""Texts in another form than the language's are understood, such as misspelt blocks and sources without quotes.

Each finding has an edit. After the edit, the spec says what the user meant, and has no more findings about names or
values.
"""

from __future__ import annotations

import pytest
from compile_support import checked
from test_unknown_names import edited

from xpc.grammar.diagnostic import NOTE

LINE = "train qwen2.5-3b on infinity-instruct"
HEAD = f"xpc 1\n{LINE}\n"
MIX = "xpc 1\ntrain qwen2.5-3b on mix\ndata mix {\n"
CASES = [
    ('save "o" merge_adapter\n', 'save "o" merge\n'),
    ("method sft assistant\n", "method sft assistant_only\n"),
    ("optimizer paged adamw 8bit\n", "optimizer paged_adamw8bit\n"),
    ("optimizer adamw learning_rate=1e-5\n", "optimizer adamw lr=1e-5\n"),
    ("lorra\n", "lora\n"),
    ("lorra {\n  rank = 8\n}\n", "lora {\n  rank = 8\n}\n"),
    ("dpoo {\n  beta = 0.1\n}\n", "dpo {\n  beta = 0.1\n}\n"),
    ("gprpo {\n  generations = 8\n}\n", "grpo {\n  generations = 8\n}\n"),
    ("optimzer { lr = 1e-5 }\n", "optimizer { lr = 1e-5 }\n"),
    ("lora = 16\n", "lora(rank=16)\n"),
    ("lora = False\n", "lora = false\n"),
    ("track false\n", "track none\n"),
    ("holdout = 95/5\n", "holdout = 5%\n"),
    ("holdout = [0.95, 0.05]\n", "holdout = 5%\n"),
    ("gbs = 8 x 8\n", "gbs = 64\n"),
    ("nodes 2x\n", "nodes 2\n"),
    ("hardware = 8 h100-80gb\n", "hardware = 8 x h100-80gb\n"),
    ("eval { adapter = qlora }\n", "qlora\n"),
    ("qlora = 4bit\n", "qlora\n"),
    ("method grpo {\n  vllm = colocate\n}\n", "method grpo {\n  vllm(mode=colocate)\n}\n"),
    ("method grpo {\n  vllm { colocate }\n}\n", "method grpo {\n  vllm { mode = colocate }\n}\n"),
    ("packing = bfd\n", "packing(strategy=bfd)\n"),
    ('track = ["wandb", "tensorboard"]\n', "track = [wandb, tensorboard]\n"),
    ("optimizer._component_ = torch.optim.AdamW\n", "optimizer=adamw\n"),
    ("template_path = qwen.jinja\n", 'chat_template=file("qwen.jinja")\n'),
    ("train_type = lora\n", "lora\n"),
    ('save "out" every 100 steps\n', 'save "out" every=100\n'),
    ("launch slurm time 12h requeue\n", "launch slurm time=12h requeue\n"),
    ("lora rank 8\n", "lora rank=8\n"),
    (f"{LINE} with lorra(rank=8) bf16\n", f"{LINE} with lora(rank=8) bf16\n"),
    (f"{LINE} with micro batch 4\n", f"{LINE} with micro=4\n"),
    (f"{LINE} with rank 16 lora\n", f"{LINE} with lora(rank=16)\n"),
    (f"{LINE} with lora r 16\n", f"{LINE} with lora(rank=16)\n"),
    (f"{LINE} with adamw 8bit\n", f"{LINE} with adamw8bit\n"),
    (f"{LINE} with cosine decay\n", f"{LINE} with cosine\n"),
    (f"{LINE} with cosine warmup 3%\n", f"{LINE} with cosine warmup=3%\n"),
    (f"{LINE} with sdpa attention\n", f"{LINE} with attn=sdpa\n"),
    (f"{LINE} with activation checkpointing\n", f"{LINE} with checkpointing\n"),
    (f"{LINE} in bf16\n", f"{LINE} with bf16\n"),
    (f"{LINE} for 2 epochs at 1e-5\n", f"{LINE} for 2 epochs with lr=1e-5\n"),
    ("train qwen2.5-3b on the first 500 rows of alpaca\n", "train qwen2.5-3b on alpaca[train:500]\n"),
    (
        f"{MIX}  alpaca: 0.7\n  capybara {{ share = 30% }}\n}}\n",
        f"{MIX}  alpaca {{ share = 70% }}\n  capybara {{ share = 30% }}\n}}\n",
    ),
    (
        "method grpo {\n  rewards = [accuracy: 1, format * 0.5]\n}\n",
        "method grpo {\n  rewards = [accuracy(weight=1), format(weight=0.5)]\n}\n",
    ),
    ('model {\n  chat_template = "llama-3"\n}\n', "model {\n  chat_template = llama3\n}\n"),
    ("adapter = dora\n", "lora(dora)\n"),
    ('trainer = "DPOTrainer"\n', "method=dpo\n"),
    ('validation_split = "test"\n', 'eval(split="test")\n'),
    (f"{LINE} with gradient checkpointing\n", f"{LINE} with checkpointing\n"),
    (f"{LINE} with deepspeed stage 3 bf16\n", f"{LINE} with strategy=zero3 bf16\n"),
    (f"{LINE} with max length 2048 zero3\n", f"{LINE} with seq=2048 zero3\n"),
    (f"{LINE} with qlora rank 64\n", f"{LINE} with qlora rank=64\n"),
    ("gbs = 64/8\n", "gbs = 8\n"), ("gbs = 64 + 64\n", "gbs = 128\n"), ("lr = 1e-5 * 2\n", "lr = 2e-5\n"),
    ("gbs == 64\n", "gbs = 64\n"), ("gbs := 64\n", "gbs = 64\n"), ("lr => 1e-5\n", "lr = 1e-5\n"),
    ("lr -> 1e-5\n", "lr = 1e-5\n"), ("gbs = [64]\n", "gbs = 64\n"),
    ("load_in_8bit = true\n", "lora(bits=8)\n"),
    ("min_learning_rate = 1e-6\nschedule cosine\n", "min_lr = 1e-6\nschedule cosine\n"),
    ("method sft_trainer\n", "method sft\n"), ("optimizer { decay = 0.1 }\n", "optimizer { weight_decay = 0.1 }\n"),
    ("train https://huggingface.co/Qwen/Qwen2.5-3B on no-robots\n", "train Qwen/Qwen2.5-3B on no-robots\n"),
    ("train qwen2.5-3b on no-robots [train]\n", "train qwen2.5-3b on no-robots[train]\n"),
    ("train qwen2.5-3b on smoltalk :all\n", "train qwen2.5-3b on smoltalk:all\n"),
    ("train qwen2.5-3b on no-robots:\n", "train qwen2.5-3b on no-robots\n"),
    ("sweep { optimizer { lr = [1e-6, 2e-6] } }\n", "sweep { optimizer.lr = [1e-6, 2e-6] }\n"),
    ("lr = 1e-5; gbs = 64\n", "lr = 1e-5\ngbs = 64\n"), ("lr = 1e-5 // peak\n", "lr = 1e-5 # peak\n"),
    ("/* tuned */\nlr = 1e-5\n", "# tuned\nlr = 1e-5\n"), ("betas = (0.9, 0.95)\n", "betas = [0.9, 0.95]\n"),
    ("batch { gbs: 64, micro: 2 }\n", "batch { gbs = 64, micro = 2 }\n"),
    ("batch(gbs: 64, micro: 2)\n", "batch(gbs = 64, micro = 2)\n"),
    ("optimizer adamw\n{\n  lr = 1e-5\n}\n", "optimizer adamw {\n  lr = 1e-5\n}\n"),
    ('warmup = "100 steps"\n', "warmup = 100\n"), ("gbs = 64 sequences\n", "gbs = 64\n"),
    ("seq = 8_192 tokens\n", "seq = 8_192\n"), ("hardware 4 A100 80GB GPUs\n", "hardware 4 x a100-80gb\n"),
    ("hardware 2 L4 gpus\n", "hardware 2 x l4\n"), ("dtype = torch.float32\n", "dtype = fp32\n"),
    (f"{LINE}, 3 epochs, lr 2e-5\n", f"{LINE} for 3 epochs with lr=2e-5\n"),
    (f"please {LINE}\n", f"{LINE}\n"), (f"{LINE} in 4bit\n", f"{LINE} with qlora\n"),
    ("train --model qwen2.5-3b --dataset no-robots\n", "train qwen2.5-3b on no-robots\n"),
    ("train model=qwen2.5-3b data=no-robots lr=1e-5\n", "train qwen2.5-3b on no-robots with lr=1e-5\n"),
    (f"{LINE} with save every epoch\n", f"{LINE} with save(every=epoch)\n"),
    (f"{LINE} on 4 h200s\n", f"{LINE} with 4 x h200\n"),
    (f"{LINE} on cpu\n", f"{LINE}\nhardware cpu\n"),
    (f"{LINE} for a single epoch\n", f"{LINE} for 1 epoch\n"),
    ("run sft of qwen2.5-3b on no-robots\n", "train qwen2.5-3b on no-robots\n"),
    (f"{LINE} with lora on 4 a100-80gb\n", f"{LINE} with lora 4 x a100-80gb\n"),
    (
        "method grpo {\n  rewards {\n    accuracy: 1.0\n  }\n}\n",
        "method grpo {\n  rewards = [accuracy(weight=1.0)]\n}\n",
    ),
]  # fmt: skip


def full_text(text: str) -> str:
    return text if text.startswith(("xpc", "train ", "qwen", "please", "run")) else HEAD + text


@pytest.mark.parametrize(("typed", "right"), CASES)
def test_other_shape_is_corrected(typed: str, right: str) -> None:
    text = full_text(typed)
    reported = [one for one in checked(text).problems if one.edits and one.severity != NOTE]
    assert len(reported) == 1, reported
    after = edited(text, reported[0])
    assert after == full_text(right)
    assert not [one for one in checked(after).problems if one.code[:3] in ("XP0", "XP1") and one.severity != NOTE
                and one.code not in ("XP114", "XP125")]  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("hardware { type = gtx9999, count = 4 }\n", "not a GPU of the registry"),
        ("precision true\n", "write one of bf16"),
        ("train_split = train[:5000]\n", "DATA[train:5000]"),
        ('split = "train[:5000]"\n', "DATA[train:5000]"),
        ("seq = 2kb\n", "such as `seq = 4096`"),
        ("output_dir = 3\n", "`save` decides it"),
        ("hardware cuda:0\n", "with the name of your GPU"),
        ('hardware "8 x h100-80gb"\n', "write `hardware 8 x h100-80gb`, without quotes"),
        ("hardware = 4 a100\n", "write `hardware 4 x a100-40gb`, `hardware 4 x a100-80gb`"),
        ("custom_reward_function.path = reward.py\n", 'write `rewards = [file("reward.py:FUNCTION")]`'),
        (
            "optimizer = bnb.optim.PagedAdamW8bit(model.parameters(), lr=1e-5)\n",
            "write `optimizer paged_adamw8bit(lr=1e-5)`",
        ),
        ("eval { split = 0.1 }\n", "write `data(holdout=10%)` outside of `eval`"),
        ("fsdp { use_orig_params = true }\n", "which only `strategy fsdp1` reads; with FSDP2 it is always on"),
        ("seq { max = 4k }\n", "such as `seq = 4096`"),
        ("sequence_parallel = true\n", "no equivalent"),
        ("zero3_offload = true\n", "write `strategy zero3(offload=cpu)`"),
        ('accum = "auto"\n', "leave `accum` out"),
        ("hardware 2 x p4d.24xlarge\n", "write `hardware 8 x a100-40gb`, and `nodes 2`"),
        ("hardware 8 H100 GPUs\n", "write `hardware 8 x h100-80gb`, `hardware 8 x h100-nvl-94gb` or"),
        ("actor._target_ = verl.workers.Actor\n", "leave `actor._target_` out: a spec names no class"),
        ("CUDA_VISIBLE_DEVICES=0,1\n", "CUDA_VISIBLE_DEVICES names the cards"),
        ("grpo.reward_scaling.source_max = 1.0\n", "rescale or penalize them inside of a function"),
        (f"{LINE} on gpu\n", "write `hardware N x GPU` on a line of its own"),
        (f"{LINE} until it converges\n", "`eval(patience=3)` ends a run that no longer improves"),
        (f"{LINE} train split\n", "write `infinity-instruct[train]`"),
        (f"{LINE} with no adapters\n", "leave `no adapters` out"),
        ("data(long=drop)\n", "or `max_tokens=4096` in `data` to drop longer rows"),
        ("lr = $LR\n", "a spec has no variables"),
        ("lr = {{ lr }}\n", "a spec has no variables"),
        ('save "out/$USER"\n', "leave `$USER` out"),
        ("seq = 2GB\n", "such as `seq = 4096`"),
        ("gbs = 50%\n", "such as `gbs = 128`"),
        ("lora { rank = 0 }\n", "of at least 1 and at most 65536, such as `rank = 16`"),
        ("qlora { bits = 3 }\n", "write `bits = 4`, or `bits = 8`"),
        ("lr = [1e-5, 2e-5]\n", "write `sweep { lr = [1e-5, 2e-5] }`"),
        ("train qwen2.5-3b on alpaca on 8 h100\n", "write `hardware 8 x h100-80gb`, `hardware 8 x h100-nvl-94gb` or"),
        ("method ppo\n", "it has no equivalent, because it trains a second model"),
        ("method sft(train_on=responses)\n", "write `assistant_only` for rows of conversations, or `completion_only`"),
        ("freeze(first=10)\n", "write `freeze(except_last=N)`, where N is how many of the last layers are trained"),
        ("stop early\n", "write `eval(patience=3)`"),
        ("launch torchrun\n", "write `launch(launcher=torchrun)`"),
        ("qlora_rank = 64\n", "write `qlora(rank=64)`"),
        ('save "o" safe\n', "because weights are always safetensors"),
        ("data(subset=1000)\n", "write `SOURCE(take=1000)` on the source's line"),
        ("hardware 2 nodes\n", "write `nodes 2` on a line of its own"),
        ("method dpo(loss=simpo)\n", "write `method cpo(loss=simpo, likelihood=0)`: SimPO is a loss of cpo"),
        ("method dpo(loss=cpo)\n", "write `method cpo`, a separate method"),
        ("method lora\n", "write `lora` on a line of its own"),
        ("target latest\n", "`target trl-0.18` or `target trl-0.24` or `target trl-1.16`"),
        ("target trl-2.0\n", "write `target trl-1.16`"),
        ("nope = 3\n", "`xpc list settings` prints them all"),
        ("eval { tasks = [no_such_task] }\n", "write `leaderboard`, another task"),
        ("num_workers = 8\n", "`extra trl { dataloader_num_workers = 8 }` for those that load batches"),
        ("train_on_inputs = false\n", "write `assistant_only` for rows of conversations, or `completion_only`"),
        ("train qwen2.5-3b on train[:20%]\n", "write `[train:20%]`"),
        ("train qwen2.5-3b on ultrafeedback-binarized\n", "`method dpo` trains on such rows"),
        (
            "fsdp\nextra accelerate { fsdp_config { fsdp_activation_checkpointing = true } }\n",
            "write `memory(checkpointing)` instead",
        ),
    ],
)
def test_uncertain_intent_gives_no_edit(typed: str, says: str) -> None:
    found = [one for one in checked(full_text(typed)).problems if one.severity != NOTE]
    reported = [one for one in found if says in (one.help or "")]
    assert reported, found
    assert not reported[0].edits
