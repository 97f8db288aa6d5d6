"""Specs that together cover what the compiler can emit: every strategy, method and kind of setting, on each stack.

This module imports only the standard library, attrs and the compiler.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping

from attrs import frozen
from extra_arguments import FLAG, NUMBER
from interpreters import OTHERS, sharded

from xpc.compiler.files.bundle import write
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import compile_text
from xpc.compiler.stacks import DEFAULT, load

TEMPLATE = "{% for message in messages %}{% generation %}{{ message['content'] }}{% endgeneration %}{% endfor %}"
CONFIG = {
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024,
    "max_position_embeddings": 512, "tie_word_embeddings": True, "torch_dtype": "float32",
}  # fmt: skip
TURNS = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
FILES: Mapping[str, str] = {
    "template.jinja": TEMPLATE,
    "tiny/config.json": json.dumps(CONFIG),
    "messages.jsonl": (json.dumps({"messages": TURNS}) + "\n") * 4,
    "pairs.jsonl": '{"prompt": "2 + 2?", "completion": " 4"}\n' * 4,
    "text.jsonl": '{"text": "2 + 2 = 4"}\n' * 4,
    "preferences.jsonl": '{"prompt": "2 + 2?", "chosen": " 4", "rejected": " 5"}\n' * 4,
    "judged.jsonl": '{"prompt": "2 + 2?", "completion": " 4", "label": true}\n' * 4,
    "prompts.jsonl": '{"prompt": "2 + 2?", "solution": "4"}\n' * 4,
    "rewards.py": "def short(completions, **columns):\n    return [-float(len(one)) for one in completions]\n",
    "shared.jsonl": '{"conversations": [{"from": "human", "value": "2?"}, {"from": "gpt", "value": "4"}]}\n' * 4,
}
"""Maps paths of local files that the specs name to their contents."""


@frozen
class Emitted:
    """A spec that compiles without errors. Its name says what it covers, such as "qlora-zero3"."""

    name: str
    text: str
    target: str = DEFAULT


SMALL = "qwen2.5-0.5b on infinity-instruct for 3 epochs"
"""A small model whose weights and optimizer states fit together on a GPU of 32 GB, with data and a length."""


def one(
    name: str, *lines: str, on: str = "8 x h100-80gb", strategy: str = "ddp", precision: str = "bf16",
    batch: str = "gbs=128 micro=4", train: str = "qwen2.5-3b on infinity-instruct for 3 epochs", target: str = DEFAULT,
) -> Emitted:  # fmt: skip
    """A complete spec with the additional lines `more`. Each other parameter replaces a value in one of the usual
    lines, such as the batch.
    """
    head = ["xpc 1", f"train {train}", f"hardware {on}", f"strategy {strategy}", f"precision {precision}"]
    return Emitted(name, "\n".join([*head, f"batch {batch}", f"target {target}", *lines]) + "\n", target)


def cpu(name: str, *lines: str, on: str = "2 x cpu", strategy: str = "ddp", target: str = DEFAULT) -> Emitted:
    """A spec for CPU processes and the tiny model."""
    return one(name, *lines, on=on, strategy=strategy, precision="fp32", batch="gbs=8 micro=2 seq=64",
               train='"tiny" on "messages.jsonl" for 20 steps', target=target)  # fmt: skip


PAIRS = "qwen2.5-3b on ultrafeedback-binarized for 1 epochs"
PROMPTS = "qwen2.5-3b on deepmath-103k for 100 steps"
REWARDS = 'rewards=[accuracy(weight=1), format(weight=0.5), "rewards.py:short"]'
STEPS = "qwen2.5-3b on infinity-instruct for 1000 steps"
DEFAULTS = (
    # strategies, trl-1.16
    one("ddp-one-gpu", on="1 x h100-80gb", batch="gbs=16 micro=4"),
    one("ddp"),
    one("no-shard", strategy="no_shard"),
    one("zero1", strategy="zero1"),
    one("zero2-settings", strategy="zero2(allgather_bucket=500M, reduce_bucket=200M, overlap_comm, "
                                   "round_robin_gradients, reduce_scatter=false, contiguous_gradients=false)"),
    one("zero2-offload", strategy="zero2 offload"),
    one("zero2-one-gpu", on="1 x h100-80gb", strategy="zero2 offload", batch="gbs=16 micro=4"),
    one("zero3", strategy="zero3"),
    one("zero3-offload", strategy="zero3(offload=cpu)"),
    one("zero3-offload-optimizer", strategy="zero3(offload=optimizer)", precision="bf16(tf32)"),
    one("fsdp", strategy="fsdp"),
    one("fsdp-no-reshard-sharded", strategy="fsdp(reshard=false, state_dict=sharded)"),
    one("fsdp-offload", strategy="fsdp(offload=cpu)"),
    one("full-shard", strategy="full_shard"),
    one("shard-grad-op", strategy="shard_grad_op"),
    one("fsdp1", strategy="fsdp1"),
    one("hsdp-two-nodes", "nodes 2", strategy="hsdp", batch="gbs=128 micro=2"),
    one("hsdp-mesh", "nodes 2", strategy="hsdp(shard=4, reshard=false)", batch="gbs=128 micro=2"),
    one("hybrid-shard-zero2", "nodes 2", strategy="hybrid_shard_zero2", batch="gbs=128 micro=2"),
    one("zero3-four-nodes", "nodes 4", "launch local(nccl_timeout=4h)", strategy="zero3", batch="gbs=128 micro=2"),
    # precision, attention, memory
    one("fp32-tf32", "memory(liger)", precision="fp32(tf32)"),
    one("fp16-v100", "memory(checkpointing=false)", on="8 x v100-32gb", precision="fp16", strategy="zero2"),
    one("fp16-ddp", on="8 x t4", precision="fp16", train=SMALL),
    one("flash-packing", "model(attn=flash2)", "memory(checkpointing(reentrant=true), offload_activations)",
        batch="gbs=128 micro=4 seq=8Ki packing mean=global_tokens"),
    one("packing-mask", batch="gbs=128 micro=4 packing(strategy=bfd_split, isolate=mask) mean=local_tokens"),
    one("packing-eval", "data(holdout=5%)", "eval(every=100)",
        batch="gbs=128 micro=4 packing(isolate=mask, eval=true)"),
    one("padding-free", "model(attn=flash2)", batch="gbs=128 micro=4 padding_free"),
    # schedules and optimizers
    one("linear", "schedule linear(warmup=3%)",
        "optimizer adamw(lr=1e-5, betas=[0.8, 0.95], eps=1e-7, weight_decay=0.1)"),
    one("cosine-floor", "schedule cosine(min_lr=1e-6, warmup=40)", "optimizer adamw(clip=0)", strategy="zero1"),
    one("cosine-share", "schedule cosine(min_lr=10%)", "optimizer adafactor"),
    one("cosine-zero", "schedule cosine(min_lr=0)", "optimizer sgd", strategy="zero2"),
    one("constant", "schedule constant", "optimizer adagrad"),
    one("constant-warmup", "schedule constant(warmup=10)", "optimizer lion", train=STEPS),
    one("wsd", "schedule wsd(decay=10%, min_lr=1e-6, warmup=100)", train=STEPS),
    one("wsd-steps", "schedule wsd(decay=100, min_lr=5%)"),
    one("polynomial", "schedule polynomial", "optimizer adamw8bit"),
    one("inverse-sqrt", "schedule inverse_sqrt(warmup=5%)", "optimizer paged_adamw"),
    # these specs vary evaluation, saving, tracking, extra arguments and data
    one("every-share", "data(holdout=2000)", "eval(every=5%, micro=2)", 'save "out/a" every=10% keep=2',
        "track wandb every=5"),
    one("every-epoch", "eval(every=epoch, split=test)", 'save "out/a" every=never',
        'track wandb trackio tensorboard (name="a $(b) \\"c\\"", project="p", every=epoch)'),
    one("weights-only", 'save "out/a" every=50 full_state=false resume=never', "track(every=never)", "seed 7"),
    one("extras", "extra trl {", f"  {NUMBER} = 5", f"  {FLAG} = true", "}",
        "extra accelerate {", "  debug = true", "}",
        "extra deepspeed {", "  zero_optimization.sub_group_size = 1000", "  steps_per_print = 10", "}",
        strategy="zero3"),
    one("extra-fsdp", "extra accelerate {", "  fsdp_cpu_ram_efficient_loading = false", "}", strategy="fsdp"),
    one("mixture", "data mix {", "  infinity-instruct(take=50%)", "  capybara(take=1000)", "  seed = 3",
        "  workers = 4", "}", "method sft(assistant_only)", train="qwen2.5-3b on mix for 1 epochs"),
    one("pairs", "method sft(completion_only)", train='"tiny" on "pairs.jsonl" for 2 epochs',
        batch="gbs=64 micro=4 seq=64"),
    one("text", "data(shuffle=false)", train='"tiny" on "text.jsonl" for 0.5 epochs', batch="gbs=64 micro=4 seq=64"),
    one("shared", 'data(system="be brief")',
        'model(chat_template=file("template.jinja"), eos="<|im_end|>", pad="<|pad|>")',
        train='"tiny" on "shared.jsonl" for 2 epochs', batch="gbs=64 micro=4 seq=64"),
    # methods and adapters
    one("dpo", "method dpo(beta=0.01, max_prompt=512)", strategy="zero3", train=PAIRS),
    one("dpo-losses", "method dpo(loss=[sigmoid(weight=0.8), bco_pair, sft(weight=0.2)], precompute)", train=PAIRS),
    one("dpo-robust", "method dpo(loss=robust, label_smoothing=0.1, sync_reference(every=64, mixup=0.5))", train=PAIRS),
    one("dpo-lora", "method dpo(loss=apo_zero)", "lora", "memory(offload_activations)", strategy="zero3", train=PAIRS),
    one("orpo", "method orpo(beta=0.2)", "memory(liger)", train=PAIRS),
    one("kto", "method kto(desirable=1.3, undesirable=1, loss=apo_zero_unpaired)", "data(holdout=5%)",
        "eval(every=epoch)", train=PAIRS),
    one("kto-judged", "method kto", train='"tiny" on "judged.jsonl" for 2 epochs', batch="gbs=64 micro=4 seq=64"),
    one("reward", "method reward(center=0.01)", "schedule cosine(min_lr=10%)", train=PAIRS),
    one("grpo", f"method grpo({REWARDS}, generations=16, max_completion=1024, beta=0.04, epsilon_high=0.28, "
        "iterations=2, steps_per_generation=4, scale_rewards=batch, loss=dr_grpo, top_p=0.9, top_k=50, min_p=0.1, "
        "mask_truncated, log_completions, delta=1.5)", strategy="zero3", train=PROMPTS),
    one("grpo-colocate", f"method grpo({REWARDS}, vllm(gpu_memory=50%, tensor_parallel=2, max_length=4096, sleep))",
        "data(shuffle=false)", train=PROMPTS),
    one("grpo-server", f"method grpo({REWARDS}, vllm(mode=server, port=8001, timeout=10m))", strategy="zero2",
        train=PROMPTS),
    one("rloo", f"method rloo({REWARDS}, generations=4)", "data(holdout=64)", "eval(every=10)", train=PROMPTS),
    one("lora", "lora(rank=8, alpha=16, targets=[q_proj, v_proj])", strategy="fsdp"),
    one("lora-ddp", "lora"),
    one("qlora-zero3", "qlora", strategy="zero3"),
    one("qlora-8", "qlora(bits=8)", "method dpo", "optimizer paged_adamw", train=PAIRS),
    one("dft", "method sft(loss=dft)"),
    one("cpu-grpo", 'method grpo(rewards="rewards.py:short", generations=2, max_completion=16)', on="cpu",
        precision="fp32", batch="gbs=8 micro=2", train='"tiny" on "prompts.jsonl" for 20 steps'),
    # bundles with another launcher, and bundles for a CPU
    one("torchrun", "launch local(launcher=torchrun, nccl_timeout=10m)", strategy="zero2"),
    one("torchrun-nodes", "nodes 2", "launch local(launcher=torchrun)", batch="gbs=128 micro=2"),
    cpu("cpu", on="cpu"),
    cpu("cpu-zero2", on="cpu", strategy="zero2"),
    cpu("cpu-ddp"),
    cpu("cpu-ddp-torchrun", "launch local(launcher=torchrun)"),
    cpu("cpu-zero1", strategy="zero1"),
    cpu("cpu-zero3", strategy="zero3"),
)  # fmt: skip
"""Specs for the default stack. Together, their bundles contain everything that can be emitted for this stack."""


def of_another(target: str) -> Iterator[Emitted]:
    """Specs for a stack other than the default one. They cover the main strategies, methods and settings that this
    stack supports.
    """
    stack = load(target)
    assert stack is not None

    def its(name: str, *lines: str, **around: str) -> Emitted:
        return one(f"{target}-{name}", *lines, **around, target=target)

    two = sharded(target, "zero2")
    yield its("ddp", "schedule linear(warmup=3%)")
    yield its("zero2", "memory(liger)", "schedule cosine(min_lr=10%, warmup=40)", strategy=two)
    yield its("zero3-offload", strategy="zero3 offload")
    yield its("fsdp1", "model(attn=flash2)", strategy="fsdp1", batch="gbs=128 micro=4 packing")
    if stack.facts.fsdp2:
        yield its("fsdp", strategy="fsdp")
    yield its("hsdp", "nodes 2", strategy="hsdp", batch="gbs=128 micro=2")
    yield its("fp16", "memory(checkpointing=false)", on="8 x v100-32gb", train=SMALL, precision="fp16")
    yield its("every", "data(holdout=5%)", "eval(every=20)", 'save "out/a" every=5% keep=1', "schedule wsd(decay=100)",
              "track wandb", train=STEPS, batch="gbs=128 micro=4 mean=global_tokens")  # fmt: skip
    yield its("pairs", "method sft(completion_only)", "schedule constant(warmup=5%)",
              train='"tiny" on "pairs.jsonl" for 2 epochs', batch="gbs=64 micro=4 seq=64")  # fmt: skip
    rpo = ", rpo=0.5" if "rpo_alpha" in stack.fields(stack.config("dpo")) else ""
    yield its("dpo", f"method dpo(beta=0.01, max_prompt=512{rpo}, loss=ipo)", strategy="zero3", train=PAIRS)
    yield its("orpo", "method orpo", train=PAIRS)
    yield its("kto", "method kto(desirable=1.5)", train=PAIRS)
    yield its("reward", "method reward", train=PAIRS)
    settings = "generations=16, max_prompt=512, max_completion=1024, scale_rewards=none"
    for method in ("grpo", "rloo"):
        if stack.refused(method) is None:
            yield its(method, f"method {method}({REWARDS}, {settings if method == 'grpo' else 'generations=16'})",
                      train=PROMPTS)  # fmt: skip
    yield its("grpo-server", f"method grpo({REWARDS}, vllm)", "data(shuffle=false)", train=PROMPTS)
    free = "(reference_free)" if "reference_free" in stack.fields(stack.config("dpo")) else ""
    yield its("lora", "lora", f"method dpo{free}", train=PAIRS)
    yield its("qlora", "qlora", strategy=two)
    yield cpu(f"{target}-cpu", on="cpu", target=target)
    yield cpu(f"{target}-cpu-ddp", target=target)
    yield cpu(f"{target}-cpu-zero2", strategy=two, target=target)


SPECS: tuple[Emitted, ...] = (*DEFAULTS, *(one for target in OTHERS for one in of_another(target)))


def put(folder: str, files: Mapping[str, str | bytes]) -> str:
    """Write files below a folder and return the folder's path."""
    for name, data in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as handle:
            handle.write(data.encode() if isinstance(data, str) else data)
    return folder


def compiled(text: str, folder: str, out: str, name: str = "spec.xp") -> str:
    """Compile a spec whose local files are in ``folder``, write its bundle to ``out``, and return ``out``.

    Fails with the diagnostics if the spec has errors.
    """
    files, found = compile_text(text.encode(), name, Workspace(folder, allow_oom=True))
    problems = "\n".join(f"{one.severity} {one.code}: {one.message} ({one.help})" for one in found.problems)
    assert files is not None, f"{text}\n{problems}"
    write(files, out)
    return out
