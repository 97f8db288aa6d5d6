"""Random specs, made from the schema's own table: what the compiler accepts, the libraries must accept too."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator

import pytest
from emitted import FILES, NEW, OLD, put
from stacks import interpreter, looked_at

from xpc.compiler import kinds as k
from xpc.compiler import schema
from xpc.compiler.bundle import write
from xpc.compiler.files import Workspace
from xpc.compiler.pipeline import compile_text

WANTED = 75
"""Accepted specs for each target."""
SEED = 20_261_121
HARDWARE = ("8 x h100-80gb", "4 x a100-80gb", "8 x v100-32gb", "2 x t4", "1 x l4", "cpu", "2 x cpu")
TRAIN = (
    "qwen2.5-3b on infinity-instruct for 3 epochs", "qwen3-0.6b on infinity-instruct for 400 steps",
    "llama-3.1-8b on alpaca for 0.5 epochs", '"tiny" on "pairs.jsonl" for 100 steps',
    '"tiny" on "text.jsonl" for 2 epochs',
    '"tiny" on "messages.jsonl" for 3 epochs', '"tiny" on "shared.jsonl" for 50 steps',
)  # fmt: skip
INTEGERS = {
    "batch.seq": (64, 128, 500), "seed": (0, 1, 2**32 - 1), "data.seed": (0, 7), "data.workers": (1, 4),
    "eval.micro": (1, 3), "save.keep": (1, 3), "strategy.allgather_bucket": (1000, 500_000_000),
    "strategy.reduce_bucket": (1000, 200_000_000), "strategy.shard": (2, 4),
}  # fmt: skip
REALS = {
    "optimizer.lr": ("1e-5", "2e-5", "3e-4", "1e-8", "0.1"), "optimizer.eps": ("1e-8", "1e-6"),
    "optimizer.weight_decay": ("0", "0.1"), "optimizer.clip": ("0", "0.2", "1"),
}  # fmt: skip
VALUES = {
    k.STEPS_OR_SHARE.name: ("0", "1", "40", "3%", "99%"), k.REAL_OR_SHARE.name: ("0", "1e-7", "10%", "100%"),
    k.EVERY.name: ("1", "100", "5%", "33.3%", "epoch", "never"), k.ROWS_OR_SHARE.name: ("2", "5%"),
    k.DURATION.name: ("30m", "14400s"), k.REALS.name: ("[0.9, 0.95]", "[0, 0.5]"),
    k.TEXT_OR_FILE.name: ('"be brief"',), k.TEXT.name: ('"<|im_end|>"', '"a \\"b\\" $(c) `d`"'),
    k.NAME.name: ('"main"',),
}  # fmt: skip
SKIPPED = {"hardware", "nodes", "target", "batch.gbs", "batch.micro", "batch.accum", "train.epochs", "train.steps",
           "save", "data.format", "strategy.activation_checkpointing", "model.chat_template", "model.config",
           "model.trust_remote_code", "batch.packing.strategy", "batch.packing.isolate", "batch.packing.eval",
           "memory.checkpointing.reentrant", "model.attn", "method",
           "batch.packing", "memory.checkpointing"}  # fmt: skip
"""Settings that `text` writes by hand, and files."""


def value(row: schema.Setting, draw: random.Random) -> str | None:
    """A legal value of the setting as it is typed, or None for a kind that is left alone."""
    name = row.kind.name
    if row.path in INTEGERS:
        return str(draw.choice(INTEGERS[row.path]))
    if row.path in REALS:
        return draw.choice(REALS[row.path])
    if name == k.FLAG.name:
        return draw.choice(("true", "false"))
    if name in (k.CHOICE.name, k.CHOICES.name):
        legal = [one for one in row.choices if (row.path, one) not in schema.CHOICE_PENDING]
        return draw.choice(legal) if legal else None
    return draw.choice(VALUES[name]) if name in VALUES else None


def text(draw: random.Random, target: str) -> str:
    """A random spec: few settings, so that many are legal together."""
    world = draw.choice(HARDWARE)
    nodes = draw.choice((1, 1, 1, 2)) if "cpu" not in world else 1
    processes = (int(world.split()[0]) if " x " in world else 1) * nodes
    micro, accum = draw.choice((1, 2, 3)), draw.choice((1, 2, 5))
    out = ["xpc 1", f"train {draw.choice(TRAIN)}", f"hardware {world}", f"target {target}"]
    out += [f"nodes {nodes}"] if nodes > 1 else []
    clauses: dict[str, list[str]] = {"batch": [f"gbs={processes * micro * accum}", f"micro={micro}"], "save": []}
    heads: dict[str, str] = {"save": '"out/run"'}
    rows = [row for row in schema.TABLE if not row.pending and row.path not in SKIPPED]
    for row in rows:
        if draw.random() > (0.5 if row.head else 0.15):
            continue
        typed = value(row, draw)
        if typed is None:
            continue
        if row.head:
            heads[row.path] = typed
        else:
            clauses.setdefault(row.clause, []).append(f"{row.name}={typed}")
    if draw.random() < 0.2:
        inner = [f"strategy={draw.choice(('bfd', 'bfd_split', 'wrapped'))}", f"eval={draw.choice(('true', 'false'))}"]
        how = draw.choice(("isolate=mask", "isolate=flash"))
        clauses["batch"].append(f"packing({', '.join([how, *draw.sample(inner, draw.randint(0, 2))])})")
        if how == "isolate=flash":
            clauses.setdefault("model", []).append("attn=flash2")
    if draw.random() < 0.5:
        how = draw.choice(("=false", "(reentrant=true)", "(reentrant=false)"))
        clauses.setdefault("memory", []).append(f"checkpointing{how}")
    method = clauses.pop("method", [])
    out += [f"method sft({', '.join(method)})"] if method else []
    for clause in dict.fromkeys((*heads, *clauses)):
        head, settings = heads.get(clause, ""), clauses.get(clause, [])
        if not head and clause in ("strategy", "precision", "optimizer", "schedule", "track", "launch"):
            head = {"strategy": "zero2", "precision": "fp32", "optimizer": "adamw", "schedule": "cosine",
                    "track": "wandb", "launch": "local"}[clause]  # fmt: skip
        opening = f"{clause} {head}".strip()
        inside = [one if "(" in one else one.replace("=", " = ", 1) for one in settings]
        out.append("\n".join([f"{opening} {{", *(f"  {one}" for one in inside), "}"]) if inside else opening)
    return "\n".join(out) + "\n"


def accepted(folder: str, target: str) -> Iterator[tuple[str, str]]:
    """Texts that compile, each with its bundle."""
    draw = random.Random(f"{SEED}-{target}")
    kept = tried = 0
    while kept < WANTED:
        tried += 1
        assert tried < 400 * WANTED, f"only {kept} of {tried} random specs compile"
        made = text(draw, target)
        files, _ = compile_text(made.encode(), "random.xp", Workspace(folder))
        if files is None:
            continue
        out = os.path.join(folder, f"{target}-{kept}.bundle")
        write({name: data for name, data in files.items() if not name.startswith("trainer/")}, out)
        kept += 1
        yield made, out


@pytest.mark.slow
@pytest.mark.parametrize("target", [NEW, OLD])
def test_what_the_compiler_accepts_the_libraries_accept(target: str, tmp_path: object) -> None:
    interpreter(target)
    made = {out: spec for spec, out in accepted(put(str(tmp_path), FILES), target)}
    answers = looked_at(target, list(made))
    wrong = {folder: found["problems"] for folder, found in answers.items() if found["problems"]}
    told = "\n\n".join(f"{json.dumps(problems)}\n{made[folder]}" for folder, problems in list(wrong.items())[:5])
    assert not wrong, f"{len(wrong)} of {len(made)}:\n{told}"


def test_random_specs_cover_the_settings(tmp_path: object) -> None:
    folder = put(str(tmp_path), FILES)
    strategies, schedules, kept = set(), set(), 0
    draw = random.Random(SEED)
    for _ in range(1500):
        files, checked = compile_text(text(draw, NEW).encode(), "random.xp", Workspace(folder))
        if files is not None and checked.spec is not None:
            kept += 1
            strategies.add(checked.spec.text("strategy"))
            schedules.add(checked.spec.text("schedule"))
    assert kept > 30
    assert strategies == {"ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp1", "hsdp"}
    assert {"linear", "cosine", "constant", "polynomial", "inverse_sqrt"} <= schedules
