"""Both directions, over random specs: what the compiler accepts the libraries accept, and what it refuses goes wrong.

    python tests/proof/differential.py --accepted 20000 --steps 300 --out differential

Every accepted spec is lowered, and look.py asks the libraries of its target: the launcher reads the YAML, DeepSpeed the
JSON, and the configuration class is built from the arguments, without an exception, a mismatch, an ignored or a
deprecated name. `--steps` of them, spread over strategies and methods, train a step on a tiny model. A spec that is
refused for one code alone goes past the checker to the same libraries where every proof of the code promises an
exception at that stage: silence is a suspected false refusal. The report is DIR/differential.json and .txt.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import drawn
import generator
from differential_report import Report, published, told
from emitted import NEW, OLD, put
from lowered import lowered_files, resolved, whole, write
from prove import CPU_STAGES, Prover, every, port
from stacks import REPOSITORY, has

from xpc.compiler.files import Workspace
from xpc.compiler.optimizers import TORCH
from xpc.compiler.pipeline import check_text
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import ERROR

CHUNK = 100
BEFORE = ("launch", "config", "deepspeed")
"""Stages that need no model."""
DEPRECATED = re.compile("FutureWarning|DeprecationWarning").match
"""What the libraries say of old names; it is no false accept where the compiler warned of the name as well."""
SEED = "2026-11"


class Looker:
    """The processes of a target, fed chunk by chunk; a thread reads the answers as they come."""

    def __init__(self, target: str, jobs: int) -> None:
        self.prover = Prover(target, jobs)
        self.sent = self.read = 0
        self.answers: dict[str, Any] = {}
        self.lock = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                one = self.prover.next()
            except (RuntimeError, ValueError):
                return
            with self.lock:
                self.answers[one["id"]] = one
                self.read += 1
                self.lock.notify_all()

    def send(self, job: dict[str, Any], most: int = 6) -> None:
        """Hands a job over, once fewer than `most` wait."""
        with self.lock:
            self.lock.wait_for(lambda: self.sent - self.read < most)
        self.sent += 1
        self.prover.send(job)

    def wait(self) -> dict[str, Any]:
        """Every answer, by id."""
        with self.lock:
            self.lock.wait_for(lambda: self.read == self.sent)
        return self.answers


class Differential:
    """One run over seeded specs."""

    def __init__(self, wanted: int, steps: int, seed: str, jobs: int, targets: tuple[str, ...] = (NEW, OLD)) -> None:
        self.wanted, self.steps, self.seed = wanted, steps, seed
        self.place = put(tempfile.mkdtemp(prefix="differential-"), drawn.FILES)
        self.lookers = {target: Looker(target, jobs) for target in targets}
        self.report = Report()
        self.texts: dict[str, str] = {}
        self.waiting: dict[str, list[str]] = defaultdict(list)
        self.warned_of: dict[str, set[str]] = {}
        self.chunks = 0
        self.candidates: list[tuple[str, str]] = []
        self.lone: dict[str, str] = {}
        self.proofs: dict[str, list[Any]] = defaultdict(list)
        for proof in every():
            self.proofs[proof.code].append(proof)

    def run(self) -> Report:
        """Everything; the temporary folder is gone afterwards."""
        begun = time.monotonic()
        try:
            for name, text in self._specs():
                self._one(name, text)
            for target in self.lookers:
                self._flush(target)
            self._collect()
            self._train()
            self._past_training()
        finally:
            for looker in self.lookers.values():
                looker.prover.close()
            shutil.rmtree(self.place, ignore_errors=True)
        self._unproven()
        self.report.seconds = round(time.monotonic() - begun, 1)
        return self.report

    def _specs(self) -> Iterator[tuple[str, str]]:
        number = 0
        while self.report.accepted < self.wanted:
            name = f"{self.seed}-{number}"
            number += 1
            yield name, generator.spec(name)

    def _one(self, name: str, text: str) -> None:
        report = self.report
        report.drawn += 1
        if report.drawn > 50 * self.wanted:
            raise RuntimeError("the generator draws hardly anything that compiles")
        try:
            checked = check_text(text.encode(), f"{name}.xp", Workspace(self.place))
            codes = {one.code for one in checked.problems if one.severity == ERROR}
            report.warned.update({one.code for one in checked.problems if one.severity == "warning"})
            if checked.spec is not None:
                if checked.spec.target.name in self.lookers:
                    told = [one for one in checked.problems if one.severity == "warning"]
                    words = {word for one in told for word in re.findall(r"`(\w+)", f"{one.message} {one.help}")}
                    self._accepted(name, text, checked.spec, words)
                return
            report.rejected += 1
            report.codes.update(codes)
            if len(codes) == 1:
                self._refused(name, text, codes.pop())
        except Exception as error:
            report.crashes.append({"text": text, "error": f"{type(error).__name__}: {error}"})

    def _accepted(self, name: str, text: str, spec: Spec, warned_of: set[str]) -> None:
        report = self.report
        folder = os.path.join(self.place, "out", name)
        self.warned_of[folder] = warned_of
        write(whole(spec), folder)
        report.accepted += 1
        report.by_target[spec.target.name] += 1
        report.by_method[spec.text("method")] += 1
        report.by_strategy[spec.text("strategy")] += 1
        report.written.update(path for path in spec.values if spec.written(path))
        self.texts[folder] = text
        self.candidates.append((name, text))
        self._queue(spec.target.name, folder)

    def _refused(self, name: str, text: str, code: str) -> None:
        """A spec that one code alone refuses: past the checker, where its proofs promise an exception there."""
        self.lone.setdefault(f"{code} {len([one for one in self.lone if one.startswith(code)])}", text)
        proofs = self.proofs.get(code, [])
        if not proofs or not all(one.raises and one.at in BEFORE and not one.measure for one in proofs):
            return
        spec = resolved(text, self.place)
        if spec.target.name not in self.lookers:
            return
        folder = os.path.join(self.place, "past", f"{code}-{name}")
        try:
            write(lowered_files(spec), folder)
        except (LookupError, TypeError, ValueError, ArithmeticError, AssertionError):
            return  # what is missing is what the rule says is missing
        self.report.looked_past += 1
        self.texts[folder] = text
        self._queue(spec.target.name, folder)

    def _queue(self, target: str, folder: str) -> None:
        self.waiting[target].append(folder)
        if len(self.waiting[target]) >= CHUNK:
            self._flush(target)

    def _flush(self, target: str) -> None:
        folders = self.waiting.pop(target, [])
        if folders:
            self.chunks += 1
            self.lookers[target].send({"id": f"chunk-{self.chunks}", "folders": folders, "timeout": 300})

    def _collect(self) -> None:
        for target, looker in self.lookers.items():
            for answer in looker.wait().values():
                if "looked" not in answer:
                    self.report.crashes.append({"text": "", "error": f"{target}: {answer.get('raised')}"})
                    continue
                for folder, problems in answer["looked"].items():
                    self._judge(target, folder, problems)
            looker.answers.clear()

    def _judge(self, target: str, folder: str, problems: list[str]) -> None:
        name, text = os.path.basename(folder), self.texts[folder]
        past = os.path.basename(os.path.dirname(folder)) == "past"
        words = self.warned_of.get(folder, set())
        problems = [one for one in problems if past or not (DEPRECATED(one) and words & set(re.findall(r"\w+", one)))]
        if not past and problems:
            found = {"name": name, "target": target, "stage": "construction", "problems": problems, "text": text}
            self.report.false_accepts.append(found)
        elif past and not problems:
            code = name.partition("-")[0]
            self.report.false_refusals.append({"code": code, "target": target, "name": name, "text": text})

    def _train(self) -> None:
        """A step of some of the accepted specs, spread over what they are."""
        groups: dict[tuple[str, ...], list[tuple[str, str]]] = defaultdict(list)
        jobs: dict[str, tuple[str, str]] = {}
        bad = {one["name"] for one in self.report.false_accepts}
        for name, text in self.candidates:
            if name not in bad and not self._lacks(text):
                words = text.split()
                spread = tuple(
                    words[words.index(key) + 1][:4] if key in words else "" for key in ("strategy", "method")
                )
                groups[(*spread, "cpu" if "cpu" in text else "gpu")].append((name, text))
        draw = random.Random(self.seed)
        chosen: list[tuple[str, str]] = []
        for members in groups.values():
            draw.shuffle(members)
        while len(chosen) < self.steps and any(groups.values()):
            for members in groups.values():
                if members and len(chosen) < self.steps:
                    chosen.append(members.pop())
        for number, (name, text) in enumerate(chosen):
            target, job = self._step(name, text, number)
            if target in self.lookers:
                jobs[job["id"]] = (target, text)
                self.lookers[target].send(job, most=40)
        for looker in self.lookers.values():
            for answer in looker.wait().values():
                self.report.stepped += 1
                if answer.get("raised"):
                    target, text = jobs[answer["id"]]
                    raised = answer["raised"]
                    told = f"{raised['type']} at {raised['at']}: {raised['message'][:500]}"
                    self.report.false_accepts.append({
                        "name": answer["id"], "target": target, "stage": raised["at"], "problems": [told],
                        "text": text, "output": answer.get("output", "")[-1500:],
                    })  # fmt: skip
            looker.answers.clear()

    def _lacks(self, text: str) -> bool:
        """Whether a run here would load an optimizer or adapters from a package that bundles pin and tests lack."""
        spec = resolved(text, self.place)
        adapters = spec.flag("lora") or spec.flag("qlora")
        if spec.target.name == OLD and adapters and not has(OLD, "peft"):
            return True
        return spec.on_cpu and spec.text("optimizer") not in TORCH

    def _step(
        self, name: str, text: str, number: int, at: str = "train", keep: tuple[str, ...] = ()
    ) -> tuple[str, Any]:
        """The job of a step: CPU specs as they are, GPU specs in one or two processes of the CPU's variant."""
        spec = resolved(text, self.place)
        folder = os.path.join(self.place, "step", name)
        write(lowered_files(spec), folder)
        own = spec.hardware.gpu is None
        fsdp = spec.text("strategy") == "fsdp" and spec.target.name == NEW and number % 2 == 0
        fsdp = fsdp and spec.context_parallel == 1 and spec.text("strategy.offload") == "none"  # pins memory for a GPU
        processes = spec.hardware.world if own else 2 if fsdp or number % 5 == 0 else 1
        facts = spec.model.facts
        return spec.target.name, {
            "id": name, "folder": folder, "at": at, "on_cpu": True, "keep": [*keep, *(["fsdp"] if fsdp else [])],
            "changed": [], "family": "qwen2" if facts is None else facts.model_type, "shape": "", "rows": 64,
            "steps": 1, "stop": True, "measure": "", "processes": processes, "port": port(), "timeout": 240,
            "group": fsdp or (own and spec.zero_stage > 0),
        }  # fmt: skip

    def _past_training(self) -> None:
        """Refused specs whose code promises an exception with a model: a few of each, past the checker, that far."""
        tried: Counter[str] = Counter()
        jobs: dict[str, tuple[str, str, str]] = {}
        for key, text in self.lone.items():
            code = key.partition(" ")[0]
            proofs = self.proofs.get(code, [])
            plain = [
                one for one in proofs if one.raises and one.at in CPU_STAGES and not one.measure and one.at != "save"
            ]
            if not proofs or len(plain) != len(proofs) or tried[code] >= max(1, self.steps // 100):
                continue
            if any(one.arguments or one.yaml or one.deepspeed or one.payload or one.processes > 1 for one in proofs):
                continue  # what the proof puts on top, the text alone does not say
            tried[code] += 1
            keep = tuple(name for one in proofs for name in one.keep)
            try:
                target, job = self._step(f"{code}-{tried[code]}", text, 1, max(one.at for one in proofs), keep)
            except (LookupError, TypeError, ValueError, ArithmeticError, AssertionError):
                continue
            if target in self.lookers:
                jobs[job["id"]] = (target, code, text)
                self.lookers[target].send(job, most=40)
        for looker in self.lookers.values():
            for answer in looker.wait().values():
                self.report.stepped_past += 1
                target, code, text = jobs[answer["id"]]
                if not answer.get("raised"):
                    self.report.false_refusals.append(
                        {"code": code, "target": target, "name": answer["id"], "text": text}
                    )
            looker.answers.clear()

    def _unproven(self) -> None:
        for code, number in self.report.codes.items():
            proofs = self.proofs.get(code, [])
            if not proofs:
                self.report.unproven[code] = number
            elif all(one.needs for one in proofs):
                self.report.needs[code] = proofs[0].needs


def main() -> int:
    """Runs and publishes; status 1 where anything was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accepted", type=int, default=20_000, help="accepted specs that are constructed")
    parser.add_argument("--steps", type=int, default=300, help="accepted specs that train a step")
    parser.add_argument("--seed", default=SEED)
    parser.add_argument("--jobs", type=int, default=1, help="processes a target")
    parser.add_argument("--out", default="differential", help="the folder of the report")
    words = parser.parse_args()
    older = os.path.join(REPOSITORY, ".venv-0.18", "bin", "python")
    if os.path.exists(older):
        os.environ.setdefault("XPC_PYTHON_TRL_0_18", older)
    report = Differential(words.accepted, words.steps, words.seed, words.jobs).run()
    os.makedirs(words.out, exist_ok=True)
    with open(os.path.join(words.out, "differential.json"), "w", encoding="utf-8") as out:
        json.dump(published(report), out, indent=1)
    with open(os.path.join(words.out, "differential.txt"), "w", encoding="utf-8") as out:
        out.write(told(report))
    print(told(report))
    return 1 if report.false_accepts or report.false_refusals or report.crashes else 0


if __name__ == "__main__":
    sys.exit(main())
