"""Generate random specs from seeds, over the whole schema. Common values are generated often, and rare ones sometimes.

Of ten specs, seven are `tidy`, as an experienced user would write them: for example, bf16 only on a GPU that supports
bf16, and a batch that divides evenly. The other three can have any combination of values.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from random import Random

import generated
import generated_extras
import typed
from attrs import field, mutable
from interpreters import OTHERS

from xpc.compiler import registry, stacks
from xpc.compiler.language import kinds as k
from xpc.compiler.language import schema
from xpc.compiler.language.optimizers import LOW_RANK, MADE_BY_RUNTIME, TORCH
from xpc.compiler.language.strategies import OLD_STRATEGIES
from xpc.compiler.registry.types import Gpu
from xpc.compiler.stacks import DEFAULT, Stack

TIDY = 0.7
ROOM = 0.8
"""The model states of a `tidy` spec may take this share of a GPU's memory."""
SHARDING = ("zero3", "fsdp", "fsdp1", "full_shard")
HAND = frozenset({"hardware", "nodes", "target", "batch.gbs", "batch.micro", "batch.accum", "method", "model.config",
                  "precision", "strategy", "save", "batch.mean", *schema.ADAPTERS, "freeze", "freeze.except_last",
                  "lora.block_size", "lora.parameters", "lora.lr_ratio", "lora.embedding_lr"})  # fmt: skip
"""Settings that the code of this module generates one by one, because other settings depend on them. All other settings
are generated from the table of settings.
"""
FITTING: Mapping[str, tuple[str, ...]] = {
    "strategy.overlap_comm": ("zero1", "zero2", "zero3"), "strategy.allgather_bucket": ("zero1", "zero2"),
    "strategy.reduce_bucket": ("zero1", "zero2", "zero3"), "strategy.round_robin_gradients": ("zero1", "zero2"),
    "strategy.reduce_scatter": ("zero1", "zero2", "zero3"), "strategy.contiguous_gradients": ("zero2", "zero3"),
    "strategy.offload": ("zero1", "zero2", "zero3", "fsdp"), "strategy.reshard": ("fsdp", "hsdp"),
    "strategy.state_dict": ("fsdp", "fsdp1", "hsdp"), "strategy.shard": ("hsdp",),
    "strategy.context_parallel": ("fsdp", "zero1", "zero2", "zero3"),
    "schedule.min_lr": ("cosine", "wsd", "polynomial", "reduce_lr_on_plateau", "greedy"), "schedule.decay": ("wsd",),
    "schedule.max_lr": ("greedy",), "schedule.warmup_lr": ("cosine",), "schedule.decay_type": ("wsd",),
    "schedule.cycles": ("cosine_with_restarts",), "schedule.power": ("polynomial",),
    "schedule.timescale": ("inverse_sqrt",), "schedule.factor": ("reduce_lr_on_plateau", "greedy"),
    "schedule.patience": ("reduce_lr_on_plateau", "greedy"), "optimizer.momentum": ("sgd", "rmsprop", "muon"),
    "optimizer.adamw_lr": ("muon",), "optimizer.adjust_lr": ("muon",),
    "optimizer.targets": LOW_RANK, "optimizer.rank": LOW_RANK, "optimizer.scale": LOW_RANK,
    "optimizer.update_proj_gap": LOW_RANK, "precision.tf32": ("fp32", "bf16"),
    "optimizer.betas": ("adamw", "adamw8bit", "paged_adamw", "lion"), "optimizer.eps": ("adamw", "adamw8bit"),
    **{row.path: row.engines for row in schema.children("launch") if row.engines},
}  # fmt: skip
"""Maps each setting that is legal only with some values of its clause to these values."""


def pick(draw: Random, weights: Mapping[str, int]) -> str:
    """Choose one of the names at random. A name with a larger weight is chosen more often."""
    return draw.choices(list(weights), weights=list(weights.values()))[0]


@mutable
class Draft:
    """A spec while it is generated: the value of each clause, and the settings inside."""

    draw: Random
    stack: Stack
    tidy: bool
    method: str = "sft"
    model: str = ""
    gpu: Gpu | None = None
    world: int = 1
    states: float = 0.0
    local: bool = False
    shape: str = ""
    generations: str = ""
    header: str = ""
    heads: dict[str, str] = field(factory=dict)
    inside: dict[str, list[str]] = field(factory=dict)
    blocks: list[str] = field(factory=list)

    def chance(self, share: float) -> bool:
        return self.draw.random() < share

    def add(self, clause: str, item: str) -> None:
        self.inside.setdefault(clause, []).append(item)

    def build(self) -> None:
        """Generate all clauses of a spec. If a clause depends on another one, the other clause is generated first."""
        self._method()
        self._machines()
        self._subject()
        self._numerics()
        self._batch()
        for row in schema.TABLE:
            if row.head and row.path not in HAND and self.chance(generated.OFTEN.get(row.path, 0.3)):
                self._head(row)
        for clause in schema.CLAUSES:
            if clause not in ("train", "extra", "qlora", "oft", "vera", "loha", "miss", "batch"):
                self._settings(clause)
        self._settings("batch")
        self._repair()
        self._extras()

    def _method(self) -> None:
        known = {m: w for m, w in generated.METHODS.items() if not self.tidy or self.stack.refused(m) is None}
        self.method = pick(self.draw, known)
        if self.method != "sft" or self.chance(0.3):
            self.heads["method"] = self.method
        adapter = self.draw.random()
        if adapter < 0.12:
            self.heads["lora"] = ""
        elif adapter < 0.18:
            self.heads["qlora"] = ""
        elif adapter < 0.2:
            self.heads["oft"] = ""
        elif adapter < 0.22:
            self.heads["freeze"] = ""
            self.add("freeze", "except_last=2")
        elif adapter < 0.24:
            self.heads[self.draw.choice(("vera", "loha", "miss"))] = ""

    def _machines(self) -> None:
        written = pick(self.draw, generated.HARDWARE)
        if self.chance(0.1):
            written = f"{self.draw.choice((1, 2, 4, 8))} x {self.draw.choice(registry.gpu_names())}"
        count, _, name = written.rpartition(" x ")
        nodes = self.draw.choice((1, 1, 1, 1, 1, 2, 4)) if name != "cpu" and (count == "8" or not self.tidy) else 1
        self.gpu = registry.find_gpu(name)
        self.world = int(count or 1) * nodes
        self.heads["hardware"] = written
        if nodes > 1:
            self.heads["nodes"] = str(nodes)

    def _subject(self) -> None:
        draw = self.draw
        model = pick(draw, generated.MODELS) if self.chance(0.8) else draw.choice(registry.model_names())
        for _ in range(20):
            self.states = self._states(model)
            if not self.tidy or self.gpu is None or self.states / self.world < ROOM * self.gpu.memory_gib:
                break
            model = pick(draw, generated.MODELS)
        facts, self.model = registry.find_model(model), model
        shapes = generated.SHAPES[self.method]
        hub = [name for name in registry.dataset_names() if _shape(name) in shapes]
        self.local = self.chance(0.35) or not hub
        if self.local:
            name = draw.choice(generated.LOCAL[self.method])
            data, self.shape = (
                f'"{name}.jsonl"',
                {"pairs": "prompt_completion", "shared": "conversations"}.get(name, name),
            )
        else:
            data = draw.choice(hub if self.tidy or self.chance(0.8) else registry.dataset_names())
            self.shape = _shape(data)
        chats = self.shape in ("messages", "conversations")
        if self.tidy and chats and facts is not None and not facts.chat:
            self.add("model", 'chat_template=file("template.jinja")')
        if self.chance(0.08):
            more = [data, *draw.sample(hub, min(len(hub), 1))] if hub else [data]
            taken = [f"{one} {{\n    take = {draw.choice(('50%', '75%', '2'))}\n  }}" for one in more]
            rows = [draw.choice(pair) for pair in zip(more, taken, strict=True)]
            self.inside["data"] = rows
            self.blocks.append("data")
            data = "mix"
        length = pick(draw, generated.LENGTHS)
        self.header = f"train {model} on {data}" + (f" for {length}" if length else "")

    def _states(self, model: str) -> float:
        """GiB of weights, gradients and optimizer states of a model without sharding."""
        facts = registry.find_model(model)
        each = 16 if not {*schema.ADAPTERS} & set(self.heads) else 5
        return 0.0 if facts is None else facts.params * each / 2**30

    def _numerics(self) -> None:
        modern = self.gpu is not None and self.gpu.capability >= (8, 0)
        strategies = dict(generated.STRATEGIES)
        if self.tidy:
            if self.gpu is None:
                strategies = {
                    name: weight for name, weight in strategies.items() if name in ("ddp", "zero1", "zero2", "zero3")
                }
            elif self.world == 1:
                strategies = {"ddp": 6, "zero2": 2, "zero3": 1, "no_shard": 1}
            if "nodes" not in self.heads:
                strategies = {
                    name: weight for name, weight in strategies.items() if not name.startswith(("hsdp", "hybrid"))
                }
            if not self.stack.facts.fsdp2:
                strategies = {
                    name: weight
                    for name, weight in strategies.items()
                    if name not in ("fsdp", "full_shard", "shard_grad_op")
                }
        if self.tidy and self.gpu is not None and self.states > ROOM * self.gpu.memory_gib:
            strategies = {name: weight for name, weight in strategies.items() if name in SHARDING} or strategies
        self.heads["strategy"] = pick(self.draw, strategies)
        weights = {"bf16": 10, "fp16": 1, "fp32": 2} if modern else {"bf16": 1, "fp16": 5, "fp32": 5}
        if self.gpu is None:
            weights = {"fp32": 8, "bf16": 1, "fp16": 1}
        if self.tidy and self.method in ("grpo", "rloo"):
            self.generations = self.draw.choice(("2", "4", "8"))
        if self.tidy:
            weights = weights if modern else {"fp32": 1} if self.gpu is None else {"fp16": 1, "fp32": 1}
        self.heads["precision"] = pick(self.draw, weights)

    def _batch(self) -> None:
        draw = self.draw
        micro, accum = draw.choice((1, 2, 4, 8)), draw.choice((1, 1, 2, 4, 5))
        if self.generations:  # the completions of one prompt are in one batch
            micro = int(self.generations)
            self.add("method", f"generations={micro}")
        gbs = self.world * micro * accum
        if not self.tidy and self.chance(0.15):
            gbs += draw.choice((1, 7, 64))
        items = [f"gbs={gbs}"]
        if self.chance(0.75) or self.local:
            items.append(f"micro={micro}")
        if self.chance(0.15):
            items.append(f"accum={accum}")
        self.inside["batch"] = items
        if self.chance(0.1):
            items.append(f"mean={draw.choice(('global_tokens', 'local_tokens'))}")

    def _head(self, row: schema.Setting) -> None:
        typed = self.value(row)
        popular = {"optimizer": generated.OPTIMIZERS, "schedule": generated.SCHEDULES}.get(row.path)
        if popular is not None and (self.tidy or self.chance(0.85)):
            typed = pick(self.draw, popular)
        if self.tidy and row.path == "optimizer" and self.chance(0.1):
            typed = self.draw.choice(sorted((*self.stack.optimizers, *MADE_BY_RUNTIME)))
        if typed is not None:
            self.heads[row.path] = typed

    def _settings(self, clause: str) -> None:
        """Generate the settings of a clause, each with its own probability."""
        clause_to = clause
        if clause in ("lora", "freeze"):
            there = [name for name in (*schema.ADAPTERS, "freeze") if name in self.heads]
            if not there or (there == ["freeze"]) is not (clause == "freeze"):
                return
            clause_to = there[0]
        for row in _children(clause):
            if row.head or row.path in HAND or not self._fits(row):
                continue
            if self.chance(generated.OFTEN.get(row.path, generated.SELDOM)):
                item = self._item(row)
                if item:
                    self.add(clause_to, item)

    def _item(self, row: schema.Setting) -> str | None:
        typed = self.value(row)
        below = [one for one in _children(row.path) if self._fits(one)]
        if typed is None:
            return None
        if row.kind is not k.FLAG or not below or typed == "false":
            if row.kind is k.FLAG and typed == "true" and self.chance(0.5):
                return row.name
            return f"{row.name}={typed}"
        inner = []
        for one in below:
            value = self.value(one) if self.chance(0.6 if row.path == "batch.packing" else 0.3) else None
            if value is not None:
                inner.append(f"{one.name}={value}")
        return f"{row.name}({', '.join(inner)})" if inner else row.name

    def _fits(self, row: schema.Setting) -> bool:
        head = self.heads.get(row.path.partition(".")[0], "")
        for old, (now, _) in OLD_STRATEGIES.items():
            head = now if head == old else head
        fitting = row.path not in FITTING or head in FITTING[row.path]
        of_method = not row.methods or self.method in row.methods
        if not self.tidy:
            return (of_method or self.chance(0.05)) and (fitting or self.chance(0.2))
        if not of_method or not fitting:
            return False
        facts = self.stack.facts
        if row.path in ("method.generations", "method.steps_per_generation"):
            return False
        if row.path.startswith("lora.") and row.name in schema.OF_ONE_KIND:
            return not schema.OF_KIND.keys() & self.heads.keys()
        if row.path in ("method.rpo", "method.reference_free"):
            return row.args[0] in self.stack.fields(self.stack.config(self.method))
        if row.path == "method.assistant_only":
            return facts.assistant_only_loss
        if row.path == "batch.packing.strategy":
            return len(self.stack.packing) > 1
        if row.path == "model.trust_remote_code":
            return self.stack.name == stacks.DEFAULT
        if row.path == "method.completion_only":
            return self.shape == "prompt_completion"
        if row.path in ("memory.liger", "memory.offload_activations", "method.vllm", "lora.bits"):
            return self.gpu is not None
        if row.path == "batch.padding_free":
            return not any(one.startswith("seq") for one in self.inside["batch"])
        if row.path == "data.long":
            return self.shape == "text"
        if row.path.endswith("_roles"):
            return self.shape in ("messages", "conversations")
        return row.path not in (
            "strategy.activation_checkpointing", "eval.split", "data.format", "data.prompt", "data.columns",
            "data.documents", "data.max_pixels", "lora.init_iterations", "lora.init_rows",
        )  # fmt: skip

    def value(self, row: schema.Setting) -> str | None:
        """A random value of the setting, as a user would type it. Returns None for kinds of settings for which no
        values are generated.
        """
        name = row.kind.name
        if row.path == "method.loss":
            return self._loss()
        if row.path == "eval.data":
            names = [f'"{one}.jsonl"' for one in generated.LOCAL[self.method]]
            own = self.draw.choice([*names, f'"{generated.EVALUATED}{self.method}.jsonl"'])
            return own if self.chance(0.7) else f'[{own}, "{generated.EVALUATED}{self.method}.jsonl"]'
        if row.path == "method.teacher":  # the student itself as teacher: the same vocabulary
            return self.model if self.chance(0.9) else self.draw.choice(registry.model_names())
        if row.path in generated.POOLS:
            return self.draw.choice(generated.POOLS[row.path])
        if name in (k.CHOICE.name, k.CHOICES.name):
            return self.draw.choice(row.choices)
        pool = generated.KINDS.get(name)
        return self.draw.choice(pool) if pool else None

    def _loss(self) -> str | None:
        names = list(self.stack.losses(self.method)) if self.stack.refused(self.method) is None else []
        if not names:
            return None
        if self.method == "dpo" and self.chance(0.2):
            two = self.draw.sample(names, 2)
            return f"[{two[0]}(weight=1), {two[1]}(weight=0.5)]" if self.chance(0.5) else f"[{two[0]}, {two[1]}]"
        return self.draw.choice(names)

    def _repair(self) -> None:
        """Make the settings of a tidy spec fit together, as an experienced user would."""
        batch, modern = self.inside["batch"], self.gpu is not None and self.gpu.capability >= (8, 0)
        if "schedule" not in self.heads:
            self.inside.pop("schedule", None) if self.inside.get("schedule") and self.chance(0.5) else None
        if not self.tidy:
            return
        engine, written = self.heads.get("launch"), [one.partition("=")[0] for one in self.inside.get("launch", ())]
        for name in ("image", "volume"):
            if engine == "k8s" and name not in written:
                self.add("launch", f"{name}={generated.POOLS[f'launch.{name}'][0]}")
        packed = next((one for one in batch if one.startswith("packing")), "")
        if packed and "isolate=mask" not in packed and packed != "packing=false":
            if modern and self.heads["precision"] != "fp32" and self.chance(0.6):
                self.inside["model"] = [one for one in self.inside.get("model", []) if not one.startswith("attn")]
                self.add("model", "attn=flash2")
                batch[batch.index(packed)] = packed.replace("isolate=mask", "isolate=flash")
            else:
                batch[batch.index(packed)] = "packing(isolate=mask)"
        kernels = self.heads.get("optimizer", "adamw") not in TORCH
        sharded = self.heads["strategy"].startswith(("fsdp", "hsdp", "full", "shard_", "hybrid"))
        offload = any(one.startswith("offload") for one in self.inside.get("strategy", []))
        if (kernels and (sharded or self.gpu is None)) or (offload and self.heads.get("optimizer", "adamw") != "adamw"):
            self.heads["optimizer"] = "adamw"
        if self.heads.get("track") == "trackio" and not self.stack.facts.trackio:
            self.heads["track"] = "wandb"
        if self.local and self.inside.get("data"):
            few = {"holdout=2000": "holdout=1", "holdout=5%": "holdout=25%"}
            self.inside["data"] = [few.get(one, one) for one in self.inside["data"]]
        names = {clause: {one.partition("=")[0] for one in items} for clause, items in self.inside.items()}
        if "holdout" in names.get("data", ()) and "every" not in names.get("eval", ()):
            self.add("eval", f"every={self.draw.choice(('100', '5%', 'epoch'))}")
        if "data" in names.get("eval", ()):  # one of the three ways to choose evaluation rows
            self.inside["data"] = [one for one in self.inside.get("data", []) if not one.startswith("holdout")]
            if "every" not in names["eval"]:
                self.add("eval", "every=100")
        elif "every" in names.get("eval", ()) and "holdout" not in names.get("data", ()):
            self.add("data", "holdout=25%")
        if {"trust_remote_code", "pickle"} & names.get("model", set()):  # code and pickles need a pinned commit
            kept = [one for one in self.inside["model"] if not one.startswith("revision")]
            self.inside["model"] = [*kept, f'revision="{generated.COMMIT}"']
        waits = self.heads.get("schedule") in ("reduce_lr_on_plateau", "greedy")
        if waits and (
            "every" not in names.get("eval", ()) or self.heads["schedule"] in self.stack.lacking("schedules")
        ):
            self.heads["schedule"], self.inside["schedule"] = "linear", []
        if self.heads.get("optimizer") in LOW_RANK and "targets" not in names.get("optimizer", ()):
            self.add("optimizer", "targets=all-linear")
        if self.heads.get("schedule") == "wsd" and "decay" not in names.get("schedule", ()):
            self.add("schedule", "decay=10")

    def _extras(self) -> None:
        for library, share in (("trl", 0.22), ("accelerate", 0.05), ("deepspeed", 0.1)):
            if not self.chance(share) or (
                library == "deepspeed" and self.tidy and "zero" not in self.heads["strategy"]
            ):
                continue
            lines = generated_extras.lines(self.draw, self.stack, self.method, library)
            if lines:
                self.inside[f"extra {library}"] = lines
                self.blocks.append(f"extra {library}")


_children = cache(lambda path: tuple(schema.children(path)))


def _shape(name: str) -> str:
    facts = registry.find_dataset(name)
    assert facts is not None
    return facts.shape


def spec(seed: str) -> str:
    """Generate the spec of a seed. With the same schema and registry, a seed always gives the same text."""
    draw = Random(seed)
    stack = stacks.load(DEFAULT if draw.random() < 0.65 else draw.choice(OTHERS))
    assert stack is not None
    draft = Draft(draw, stack, draw.random() < TIDY)
    draft.build()
    return typed.text(draft)
