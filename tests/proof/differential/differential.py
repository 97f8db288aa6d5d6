"""Try random specs in the libraries: what the compiler accepts must work there, and what the compiler refuses must
fail.

    python tests/proof/differential/differential.py --accepted 20000 --steps 600 --out differential

Every accepted spec is lowered, and inspect_bundles.py tries it in the libraries of its target: the launcher reads the
YAML file, DeepSpeed reads the JSON file, and the configuration class is built from the arguments. No exception, no
mismatch, and no message about an ignored or deprecated name may occur. `--steps` of the specs, spread over strategies
and methods, train a step on a tiny model.

A refused spec is tried if all its errors have the same code (XPnnn), and if all proofs of this code show an exception.
The spec is compiled without the rule of this code, and tried in the same libraries. If no library raises an exception,
the refusal may be false, and is reported. The report is DIR/report.json, .md and .txt; each finding is printed when it
is found.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.append(os.path.join(REPOSITORY, "tests", "support"))

from module_folders import put_on_path  # noqa: E402

put_on_path()

import generated  # noqa: E402
from differential_draw import UNLOWERED, One  # noqa: E402
from differential_draw import generated_specs as specs  # noqa: E402
from differential_refusals import claims  # noqa: E402
from differential_report import ENDS, Report, page, published, report_text  # noqa: E402
from differential_steps import Candidate, chosen, step, step_options  # noqa: E402
from emitted import put  # noqa: E402
from inspectors import Looker  # noqa: E402
from interpreters import installed, interpreter  # noqa: E402
from lowered import resolved  # noqa: E402
from ports import free_port  # noqa: E402
from prove import every  # noqa: E402

from xpc.compiler.pipeline import FIRST_RULE  # noqa: E402

CHUNK = 100
DEPRECATED = re.compile("FutureWarning|DeprecationWarning|.*is deprecated").match
"""Warnings of libraries about deprecated names. They do not count as a false accept if the compiler warned, too."""
SEED = "2026-11"
PATIENCE = 3
"""A step that ran out of time or memory is repeated alone, with the limits of time and memory multiplied by this."""


class Differential:
    """A differential run: it generates specs from seeds, and tries them in the libraries."""

    def __init__(
        self, wanted: int, steps: int, seed: str, jobs: int, targets: tuple[str, ...] = (), minutes: float = 0
    ) -> None:
        self.wanted, self.steps, self.jobs = wanted, steps, jobs
        self.until = time.monotonic() + 60 * minutes if minutes else float("inf")
        self.location = put(tempfile.mkdtemp(prefix="differential-"), generated.FILES)
        self.lookers = {target: Looker(target, jobs) for target in targets or installed()}
        self.report = Report(seed=seed, wanted=wanted, wanted_steps=steps, versions=versions(tuple(self.lookers)))
        self.texts: dict[str, str] = {}
        self.waiting: dict[str, list[str]] = defaultdict(list)
        self.warned_of: dict[str, frozenset[str]] = {}
        self.chunks = 0
        self.candidates: list[Candidate] = []
        self.lone: dict[str, list[str]] = defaultdict(list)
        proofs = every()
        self.claims = claims(proofs)
        self.proven = {one.code for one in proofs if not one.needs}
        self.needs = {one.code: one.needs for one in proofs if one.needs}

    def run(self) -> Report:
        """Check generated specs in the libraries, and train some of them. At the end, remove the temporary folder."""
        begun = time.monotonic()
        report, targets = self.report, tuple(self.lookers)
        try:
            for one in specs(report.seed, self.wanted, self.location, self.claims, targets, self.jobs, self.until):
                self._one(one)
            for target in self.lookers:
                self._flush(target)
            self._collect()
            report.seconds_constructing = round(time.monotonic() - begun, 1)
            self._train()
            self._past_training()
        finally:
            for looker in self.lookers.values():
                looker.close()
            shutil.rmtree(self.location, ignore_errors=True)
        for code, number in report.codes.items():
            if code < FIRST_RULE:
                report.of_language[code] = number
            elif code not in self.proven:
                (report.needs if code in self.needs else report.unproven)[code] = self.needs.get(code, number)
        report.seconds = round(time.monotonic() - begun, 1)
        return report

    def _one(self, one: One) -> None:
        report = self.report
        report.drawn += 1
        if one.crash:
            report.crashes.append({"text": one.text, "error": one.crash})
        elif one.accepted:
            report.warned.update(one.warned)
            if one.folder:
                self._accepted(one)
        else:
            report.rejected += 1
            report.codes.update(one.codes)
            if one.lone:
                self.lone[one.lone].append(one.text)
            elif one.folder:
                report.looked_past += 1
                self._queue(one)

    def _accepted(self, one: One) -> None:
        report = self.report
        self.warned_of[one.folder] = one.words
        report.accepted += 1
        report.by_target[one.target] += 1
        report.by_method[one.method] += 1
        report.by_strategy[one.strategy] += 1
        report.written.update(one.written)
        if one.kind:
            self.candidates.append(Candidate(one.name, one.text, one.kind))
        self._queue(one)

    def _queue(self, one: One) -> None:
        self.texts[one.folder] = one.text
        self.waiting[one.target].append(one.folder)
        if len(self.waiting[one.target]) >= CHUNK:
            self._flush(one.target)

    def _flush(self, target: str) -> None:
        folders = self.waiting.pop(target, [])
        if folders:
            self.chunks += 1
            self.lookers[target].send({"id": f"chunk-{self.chunks}", "folders": folders, "timeout": 600})

    def _collect(self) -> None:
        for target, looker in self.lookers.items():
            for answer in looker.collect():
                if "looked" not in answer:
                    self.report.crashes.append({"text": "", "error": f"{target}: {answer.get('raised')}"})
                for folder, problems in answer.get("looked", {}).items():
                    self._checker(target, folder, problems)

    def _checker(self, target: str, folder: str, problems: list[str]) -> None:
        name, text = os.path.basename(folder), self.texts[folder]
        if os.path.basename(os.path.dirname(folder)) == "past":
            code = name.partition("-")[0]
            if not self.claims[code, target].shown(problems):
                self._suspect(code, target, text, problems)
            return
        words = self.warned_of.get(folder, frozenset())
        problems = [one for one in problems if not (DEPRECATED(one) and any(word in _joined(one) for word in words))]
        if problems:
            found = {"name": name, "target": target, "stage": "construction", "problems": problems, "text": text}
            self._accepted_wrongly(found)

    def _accepted_wrongly(self, found: dict[str, Any]) -> None:
        self.report.false_accepts.append(found)
        print(f"FALSE ACCEPT {found['name']}, {found['target']}: {found['problems'][0][:300]}", flush=True)

    def _suspect(self, code: str, target: str, text: str, seen: list[str]) -> None:
        print(f"FALSE REFUSAL? {code}, {target}: {'; '.join(seen)[:300] or 'no exception'}", flush=True)
        self.report.false_refusals.append({"code": code, "target": target, "seen": seen[:3], "text": text})

    def _train(self) -> None:
        """Train one step of some of the accepted specs. They are chosen so that all strategies, methods, adapters and
        kinds of hardware occur.
        """
        report = self.report
        bad = {one["name"] for one in report.false_accepts}
        jobs: dict[str, str] = {}
        sent: dict[str, dict[str, Any]] = {}
        candidates = [one for one in self.candidates if one.name not in bad]
        for number, one in enumerate(chosen(candidates, self.steps, report.seed)):
            if time.monotonic() > self.until:
                break
            target, job = step(one.name, one.text, self.location, number)
            job["eager"] = True
            jobs[one.name], sent[one.name] = one.text, job
            report.steps_of.update(step_options(resolved(one.text, self.location), job))
            self.lookers[target].send(job, most=4)
        for target, answer in self._answers(sent):
            report.stepped += 1
            problems = list(answer.get("silent_effects", []))
            raised = answer.get("raised")
            if raised:
                problems = [f"{raised['type']} at {raised['at']}: {raised['message'][:500]}"]
            if problems:
                self._accepted_wrongly({
                    "name": answer["id"], "target": target, "stage": raised["at"] if raised else "compare",
                    "problems": problems, "text": jobs[answer["id"]], "output": answer.get("output", "")[-1500:],
                })  # fmt: skip

    def _answers(self, sent: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the target of each job, and the job's answer. A job that ran out of time or memory is run again with
        more time and memory.
        """
        again: list[tuple[str, dict[str, Any]]] = []
        for target, looker in self.lookers.items():
            for answer in looker.collect():
                if late(answer) or starved(answer):
                    again.append((target, answer))
                else:
                    yield target, answer
        for target, answer in again:
            job = dict(sent[answer["id"]])
            more = {name: PATIENCE * job[name] for name in ("timeout", "memory") if name in job}
            self.lookers[target].send({**job, "port": free_port(), **more})
            self.report.second_answer += 1
            yield from ((target, one) for one in self.lookers[target].collect())

    def _past_training(self) -> None:
        """Some rules have proofs that claim an exception during training. For each such rule, generate a few specs that
        only this rule refuses, compile them without the rule, and train them.
        """
        jobs: dict[str, tuple[str, str]] = {}
        sent: dict[str, dict[str, Any]] = {}
        for code, texts in sorted(self.lone.items()):
            most = max(1, self.steps // 100) if time.monotonic() < self.until else 0
            for number, text in enumerate(texts[:most]):
                claim = self.claims[code, resolved(text, self.location).stack.name]
                try:
                    target, job = step(f"{code}-{number}", text, self.location, 1, claim.at, claim.keep)
                except UNLOWERED:
                    continue
                jobs[job["id"]], sent[job["id"]] = (code, text), job
                self.lookers[target].send(job, most=4)
        for target, answer in self._answers(sent):
            self.report.stepped_past += 1
            code, text = jobs[answer["id"]]
            raised = answer.get("raised") or {}
            if not raised or not self.claims[code, target].shown([raised["message"]]):
                self._suspect(code, target, text, [f"{raised['type']}: {raised['message']}"] if raised else [])


def _joined(text: str) -> str:
    """A warning's text with underscores instead of spaces, so that the argument `elastic_checkpoint` is found in a
    warning about `elastic checkpointing`.
    """
    return re.sub(r"\W+", "_", text)


def late(answer: Mapping[str, Any]) -> bool:
    """Whether a job failed only because the machine was busy: the job ran out of time, or another program took its
    port.
    """
    raised = answer.get("raised") or {}
    late_ = raised.get("type") == "Ended" and "not done after" in raised["message"]
    return late_ or "EADDRINUSE" in raised.get("message", "")


def starved(answer: Mapping[str, Any]) -> bool:
    """Whether a job failed because it needed more memory than a step may use."""
    raised = answer.get("raised") or {}
    return raised.get("type") == "MemoryError" or "can't allocate memory" in raised.get("message", "")


PACKAGES = ("trl", "transformers", "accelerate", "deepspeed", "peft", "torch")


def versions(targets: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """The installed library versions for each target."""
    code = f"import importlib.metadata as m, json; print(json.dumps({{one: m.version(one) for one in {PACKAGES}}}))"
    output = {one: subprocess.run([interpreter(one), "-c", code], capture_output=True, check=True) for one in targets}
    return {target: dict(json.loads(done.stdout)) for target, done in output.items()}


def main() -> int:
    """Make the run and write the report. The exit status is 1 if the report has any finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--accepted", type=int, default=20_000, help="how many accepted specs are tried in the libraries"
    )
    parser.add_argument("--steps", type=int, default=600, help="how many accepted specs train a step")
    parser.add_argument("--seed", default=SEED)
    parser.add_argument("--jobs", type=int, default=1, help="processes a target")
    parser.add_argument("--minutes", type=float, default=0, help="end after this time, and report the specs so far")
    parser.add_argument("--out", default="differential", help="the folder of the report")
    words = parser.parse_args()
    report = Differential(words.accepted, words.steps, words.seed, words.jobs, minutes=words.minutes).run()
    os.makedirs(words.out, exist_ok=True)
    texts = {"report.json": json.dumps(published(report), indent=1) + "\n", "report.txt": report_text(report)}
    for name, text in {**texts, "report.md": page(published(report))}.items():
        with open(os.path.join(words.out, name), "w", encoding="utf-8") as out:
            out.write(text)
    print(f"{texts['report.txt']}\nwritten: {', '.join(os.path.join(words.out, f'report.{end}') for end in ENDS)}")
    return 1 if report.false_accepts or report.false_refusals or report.crashes else 0


if __name__ == "__main__":
    sys.exit(main())
