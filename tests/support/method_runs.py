"""Small runs of every training method on the CPU: data, specs, and functions that run them and read their results."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from array import array
from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Any

import pytest
from attrs import frozen
from emitted import compiled, put
from forks import Forks, of_python
from interpreters import OTHERS, methods_of, sharded
from stacks import Run, interpreter, launch, payload
from tiny_runs import lines, spec

from xpc.compiler.language.methods import METHODS
from xpc.compiler.stacks import DEFAULT, load

STEPS, KEPT = 4, 2
"""The number of steps of a run, and the step of the checkpoint from which it resumes."""
REWARDS = """\
def even(prompts, completions, completion_ids, row, colour, **given):
    for prompt, one in zip(prompts, colour, strict=True):
        assert f" {one} " in prompt[-1]["content"], "the columns belong to their prompts"
    return [sum(token % 2 == 0 for token in ids) / len(ids) for ids in completion_ids]


def short(completions, **columns):
    return [-len(completion[0]["content"]) / 50 for completion in completions]
"""
WRONG = {"role": "assistant", "content": "I will not say anything about it."}
ONLINE_SETTINGS = "generations=4, max_completion=12, beta=0.04"
REQUIRED = {
    "method.rewards": f'(rewards="rewards.py:even", {ONLINE_SETTINGS})',
    "method.teacher": '(teacher="teacher", max_completion=12, beta=0.5)',
}
"""Maps each required setting of a method to the text that states it in the method's small run. For example, GRPO must
have `method.rewards`.
"""
SETTINGS = {
    name: written for path, written in REQUIRED.items() for name, method in METHODS.items() if path in method.paths
}
FILE_OF = {"messages": "messages", "preference": "preferences", "unpaired": "judged", "prompt": "prompts"}
DATA = {name: FILE_OF[method.shapes[0]] for name, method in METHODS.items()}
SPREAD = cycle((("ddp", "zero2"), ("zero3", "ddp"), ("zero2", "zero3")))
ADAPTED = ("sft", "dpo", "reward", "grpo")
"""On the default stack, `make test` trains adapters only with these methods. The trainer of any other method handles
adapters and references as the trainer of one of these methods does.
"""
TWO = dict(zip(METHODS, SPREAD, strict=False))
"""Maps each method to two strategies for its runs on two processes: the first for full training, the second for LoRA.
"""


def files(turns: list[list[dict[str, str]]]) -> dict[str, str]:
    """The contents of files by name. For each method, there are rows of the shape that the method needs, made from
    conversations. There is also a file of reward functions.

    In ragged.jsonl every fourth question is long, so that batches have padding.
    """
    more = "Think first. " * 8
    long = [{**row[0], "content": more * (i % 4 == 0) + row[0]["content"]} for i, row in enumerate(turns)]
    return {
        "preferences.jsonl": lines([{"chosen": row, "rejected": [row[0], WRONG]} for row in turns]),
        "ragged.jsonl": lines(
            [{"chosen": [ask, row[1]], "rejected": [ask, WRONG]} for ask, row in zip(long, turns, strict=True)]
        ),
        "judged.jsonl": lines(
            [{"prompt": [row[0]], "completion": [row[1] if i % 2 else WRONG], "label": i % 2 == 1}
             for i, row in enumerate(turns)]
        ),
        "prompts.jsonl": lines(
            [{"prompt": row[0]["content"], "row": i, "colour": row[0]["content"].split()[-2], "solution": "$4$"}
             for i, row in enumerate(turns)]
        ),
        "rewards.py": REWARDS,
    }  # fmt: skip


@frozen
class Small:
    """A small run of a training method on a stack: ``Small("dpo", "trl-0.18", "zero2", "lora")``.

    With the strategy "one", the run has a single process. Without an adapter, all weights are trained.
    """

    method: str
    target: str = DEFAULT
    strategy: str = "one"
    adapter: str = ""

    @property
    def name(self) -> str:
        """The name of the run and of its files: "trl-0.18-dpo-zero2-lora"."""
        other = "" if self.target == DEFAULT else self.target
        return "-".join(part for part in (other, self.method, self.strategy, self.adapter) if part)

    @property
    def world(self) -> int:
        """The number of processes of the run."""
        return 1 if self.strategy == "one" else 2

    @property
    def nightly(self) -> bool:
        """Whether only `make slow` makes this run. On the default stack, `make test` runs every method without
        adapters, and the methods in `ADAPTED` with adapters. On the oldest stack, it runs every method in one process
        without adapters; on the stacks between these two, only sft and grpo. On all stacks except the default one, it
        runs adapters only with sft, because the default stack tests adapters with other methods.
        """
        both, alone = self.method in ("sft", "grpo"), self.world == 1 and not self.adapter
        if self.target == DEFAULT:
            return bool(self.adapter) and self.method not in ADAPTED
        return not (alone and (self.target == OTHERS[0] or both)) and not (self.method == "sft" and self.adapter)

    @property
    def resumes(self) -> bool:
        """Whether the run is also resumed from its first checkpoint, and compared with the uninterrupted run.

        True for each method if all weights are trained on two processes, for GRPO on one process, and for three runs
        with adapters: without sharding, with ZeRO-3, and on a quantized base (test_train_adapters.py resumes more
        runs).
        """
        chosen = {("grpo", "one", ""), ("dpo", "ddp", "lora"), ("grpo", "zero3", "lora"), ("dpo", "zero3", "qlora")}
        return (self.world == 2 and not self.adapter) or (self.method, self.strategy, self.adapter) in chosen

    @property
    def text(self) -> str:
        """The spec of the run."""
        settings = SETTINGS.get(self.method, "")
        return small(f"method {self.method}{settings}", self.adapter, method=self.method, target=self.target,
                     strategy=self.strategy, save=f'save "out" every={KEPT if self.resumes else "never"}')  # fmt: skip


def small(*more: str, method: str, target: str = DEFAULT, strategy: str = "one", data: str = "", **around: str) -> str:
    """A spec that trains four steps with the method."""
    sizes = "gbs=8 micro=4" if METHODS[method].generates else "gbs=8 micro=2 seq=64"
    one = strategy == "one"
    return spec(*more, data=f'"{data or DATA[method]}.jsonl"', length=f"{STEPS} steps", target=target, sizes=sizes,
                hardware="cpu" if one else "2 x cpu", strategy="ddp" if one else strategy, **around)  # fmt: skip


RUNS = (
    *(Small(method) for method in METHODS),
    *(Small(method, strategy=TWO[method][0]) for method in METHODS),
    *(Small(method, strategy=TWO[method][1], adapter="lora") for method in METHODS),
    *(Small(method, adapter="qlora") for method in METHODS),
    Small("dpo", strategy="zero3", adapter="qlora"),
    *(Small(method, other) for other in OTHERS for method in methods_of(other)),
    *(Small(method, other, sharded(other, TWO[method][0], method)) for other in OTHERS for method in methods_of(other)),
    *(
        Small(method, other, sharded(other, TWO[method][1], method), "lora")
        for other in OTHERS
        for method in methods_of(other)
    ),
    *(
        Small(method, other, adapter="qlora")
        for other in OTHERS
        if load(other).facts.quantized_on_cpu
        for method in methods_of(other)
    ),
)


@frozen
class Trained:
    """A finished run: its bundle (``folder``), its output folder (``out``), the exit status of each process, stdout
    (``output``), stderr (``complained``), and the events of metrics.jsonl.
    """

    folder: str
    out: str
    status: list[int]
    output: str
    complained: str
    events: list[dict[str, Any]]

    def values(self, name: str) -> list[float]:
        """The values of a metric, such as "loss", in the order of the events that have it."""
        return [event[name] for event in self.events if name in event]

    @property
    def summary(self) -> dict[str, Any]:
        """The content of the run's summary.json."""
        with open(os.path.join(self.out, "summary.json"), encoding="utf-8") as handle:
            return dict(json.load(handle))


OWN_LINE = re.compile(
    r"\[run\] |step \d+/|(done|loss|reward|margin|accuracy|eval loss|seen|weights|merged|picture|metrics|use|verify) +|"
    r"  \S+ +-?\d.* -> | {11}|$|"
    r".*: UserWarning: Paged optimizers are not supported on CPU|  state\[.state1.\] = self\.get_state_buffer"
)
"""Matches the lines that a run itself prints. It also matches two lines of bitsandbytes, which warn that a paged
optimizer is not paged on a CPU. Any other line comes from a library.
"""


class Warm:
    """The warm interpreters of this process (`forks.shared`), and the folder in which specs are compiled.

    ``python`` returns the path of a target's interpreter.
    """

    def __init__(self, location: str, python: Callable[[str], str] = interpreter) -> None:
        self.location, self.python = location, python

    def of(self, target: str) -> Forks:
        """The warm interpreter of a target; skips the test if the target is not installed."""
        return of_python(self.python(target))

    def compiled(self, text: str, name: str) -> str:
        """Compile a spec in the folder of the tiny model; return the path of the bundle."""
        return compiled(text, self.location, os.path.join(self.location, f"{name}.bundle"), f"{name}.xp")

    def run(self, bundle: str, cwd: str, target: str, world: int = 1, idle: bool = False, **variables: str) -> Trained:
        """Run a bundle with ``world`` processes and these environment variables, started in ``cwd``; wait until it has
        ended.

        If a process fails, the test fails and shows the output. Unless ``idle`` is true, the test also fails if the run
        reports that it learns nothing.
        """
        if world > 1:  # a real launch makes the preflight in one process, before any other process starts
            variables.setdefault("XPC_PREFLIGHT", "passed")
        answer = self.of(target).run(bundle, cwd, world=world, **variables)
        printed = f"{answer['out'][-3000:]}\n{answer['err'][-5000:]}"
        assert answer["status"] == [0] * world, printed
        assert idle or "nothing is learned" not in answer["out"], printed
        out = os.path.join(cwd, "out")
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as handle:
            events = [json.loads(line) for line in handle]
        return Trained(bundle, out, answer["status"], answer["out"], answer["err"], events)

    def train(self, text: str, name: str, target: str, cwd: str, world: int = 1, **variables: str) -> Trained:
        """Compile a spec and run the bundle."""
        return self.run(self.compiled(text, name), cwd, target, world, **variables)

    def launch(self, bundle: str, cwd: str, *words: str, **variables: str) -> Run:
        """Run the bundle's launch.sh and wait until it has ended. Each Python interpreter that launch.sh starts is a
        fork of an interpreter that has already imported the libraries.
        """
        python = self.of(payload(bundle)["target"]).python
        return launch(bundle, cwd, *words, PYTHON=python, **variables)

    def program(self, target: str, text: str, *words: str) -> list[dict[str, Any]]:
        """Run a Python program in the tiny model's folder, and return the JSON objects that it prints, one per line."""
        path = os.path.join(self.location, "program.py")
        put(self.location, {"program.py": text})
        done = self.of(target).run(path, self.location, *words, program=path)
        assert done["status"] == [0], done["err"][-3000:]
        return [json.loads(line) for line in done["out"].splitlines() if line.startswith("{")]

    def twice(self, text: str, name: str, target: str, cwd: str, world: int = 1) -> list[Trained]:
        """Run a spec. Then resume the run from its first checkpoint, in a copy of its output folder. Return a list of
        the first run and the resumed run.

        Fails if a run prints a line that does not match `OWN_LINE`, such as a warning of a library.
        """
        first = self.train(text, name, target, cwd, world)
        whole = os.path.join(cwd, "whole")
        os.rename(first.out, whole)
        shutil.copytree(whole, first.out)
        cut(first)
        again = self.run(first.folder, cwd, target, world, XPC_PREFLIGHT="passed")
        for each in (first, again):
            lines = f"{each.output}\n{each.complained}".split("\n")
            foreign = [line for line in lines if not OWN_LINE.match(line)]
            assert not foreign, foreign
        return [Trained(first.folder, whole, first.status, first.output, first.complained, first.events), again]


def each_once(warm: Warm, factory: pytest.TempPathFactory) -> Callable[[Any], list[Trained]]:
    """Return a function that trains each kind of run only once, and returns a list with the finished run. If the kind
    `resumes`, the list also has the run after a resume from its first checkpoint, in a copy of the output folder.
    """
    kept: dict[Any, list[Trained]] = {}

    def run(kind: Any) -> list[Trained]:
        if kind not in kept:
            named = (kind.text, kind.name, kind.target, str(factory.mktemp(kind.name)), kind.world)
            kept[kind] = warm.twice(*named) if kind.resumes else [warm.train(*named)]
        return kept[kind]

    return run


def cut(trained: Trained) -> None:
    """Delete everything that a run wrote after its first checkpoint, as if the run had been killed there."""
    shutil.rmtree(os.path.join(trained.out, f"checkpoint-{STEPS}"))
    for name in os.listdir(trained.out):
        if name != "metrics.jsonl" and name != "xpc_run.json" and not name.startswith("checkpoint-"):
            path = os.path.join(trained.out, name)
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


def tensors(path: str) -> dict[str, bytes]:
    """The bytes of each tensor of a safetensors file (8 bytes length, a header in JSON, data)."""
    with open(path, "rb") as handle:
        length = int.from_bytes(handle.read(8), "little")
        header, data = json.loads(handle.read(length)), handle.read()
    return {
        name: data[slice(*entry["data_offsets"])] for name, entry in header.items() if name != "__metadata__"
    }  # fmt: skip


def types(path: str) -> set[str]:
    """The dtypes of the tensors in a safetensors file, such as {"F32"}. Only the file's header is read."""
    with open(path, "rb") as handle:
        header = json.loads(handle.read(int.from_bytes(handle.read(8), "little")))
    return {entry["dtype"] for name, entry in header.items() if name != "__metadata__"}


def finite(weights: Mapping[str, bytes]) -> bool:
    """Whether all values are finite; ``weights`` are float32 tensors as bytes."""
    return all(math.isfinite(value) for data in weights.values() for value in array("f", data))


Runs = Callable[[Small], list[Trained]]
