"""The steps of a rehearsal: prepare rows, load, train, save, kill, resume, stop, continue, load the result, push."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from hashlib import sha256

from xpc.compiler.files.bundle import write
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.preview.process import Request, ask
from xpc.compiler.preview.rehearsal.forks import WORKER
from xpc.compiler.preview.rehearsal.launches import STOPPED, Launch, launch
from xpc.compiler.preview.rehearsal.twin import EVERY, OUT
from xpc.compiler.report.run_record import number, read_run
from xpc.grammar.record import field, mutable, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from xpc.compiler.preview.rehearsal.local_hub import Hub
    from xpc.compiler.preview.rehearsal.twin import Twin
    from xpc.compiler.spec.checked import CheckedSpec

DONE, FAILED, SKIPPED = "done", "failed", "not here"
WEIGHTS = ("model", "adapter_model", "pytorch_model")
"""The names of files with weights begin like this: `model.safetensors`, `adapter_model.safetensors`."""
ADDED = re.compile(r"(?:-[0-9a-f]{8})+(?=\.\w+)")
"""Matches the digest in the name of a copied file in a bundle: `-1a2b3c4d` in `reward-1a2b3c4d.py`."""
ABOUT_TOKENIZER = ("XP175", "XP177", "XP560")
"""Findings about the tokenizer. They are not reported if a substitute replaces the tokenizer of the spec's model."""
DECIDED = (
    (re.compile(r"^the reward |^\S+\.py "), "method.rewards", "call the function with a row: `xpc preview --rewards`"),
    (
        re.compile(r"^the chat template "),
        "model.chat_template",
        "`xpc preview` shows the rows as the chat template writes them",
    ),
    (re.compile(r"^the loss is "), "optimizer.lr", "write a lower learning rate"),
    (re.compile(r" cannot be written to "), "save", "name another folder"),
    (re.compile(r"metric_for_best_model|best checkpoint"), "save.best", "name a metric that the evaluation logs"),
)
"""Each row has three parts: a pattern for an error message, the setting that causes such an error, and a help text."""
FIRST, SECOND = f"checkpoint-{int(EVERY.value)}", f"checkpoint-{2 * int(EVERY.value)}"


@record
class Step:
    """A step of the rehearsal: its name, its state (done, failed, or not possible here), a sentence about it, and its
    duration in seconds.
    """

    name: str
    state: str
    text: str = ""
    seconds: float = 0.0


@record
class Finding:
    """A problem that the rehearsal found: the step, a sentence, the setting that causes it, and a help text."""

    step: str
    message: str
    setting: str = ""
    help: str = ""
    code: str = ""
    error: bool = True


@mutable
class Rehearsal:
    """A rehearsal in a folder. `twin` is the small version of the experiment; its compiled spec and the files of its
    bundle are kept, too. `progress` prints a sentence about the progress.
    """

    folder: str
    twin: Twin
    spec: CheckedSpec
    files: Mapping[str, bytes]
    python: str
    environ: Mapping[str, str]
    hub: Hub
    progress: Callable[[str], None]
    steps: list[Step] = field(factory=list)
    findings: list[Finding] = field(factory=list)
    own_tokenizer: bool = False
    made_rows: bool = False

    def run(self) -> None:
        """Run all steps. If a step fails, the steps that need its result are skipped."""
        if not self.timed("rows and masks", self.rows):
            return
        bundles = [self.written(name) for name in ("undisturbed", "disturbed")]
        if self.launched("load, train, evaluate, save", bundles[0]) is None:
            return
        self.trained(bundles[0])
        if self.spec.calls_tools and not self.timed("call the tools", lambda: self.called(bundles[0])):
            return
        if not self.saves():
            text = "the spec writes no checkpoints to resume from"
            self.steps.append(Step("kill, resume, stop and go on", SKIPPED, text))
        elif not self.disturbed(bundles):
            return
        self.timed("load the result in plain transformers, and generate", lambda: self.loads(bundles[0]))
        if self.spec.get("save.hub"):
            self.timed("push", self.pushed)

    # Steps ----------------------------------------------------------------------------------------------------------

    def rows(self) -> str:
        """Prepare the first rows as the trainer gets them, and record their problems. Raises UsageError."""
        bundle = self.written("rows")
        request = Request(n=4 if len(self.spec.data) < 4 else 1)
        found = ask(self.python, bundle, os.path.join(self.folder, "scratch"), request, self.folder, self.environ)
        substituted = () if self.own_tokenizer else ABOUT_TOKENIZER
        for row in found["rows"]:
            for one in row["verdicts"]:
                known = one["code"] in substituted or any(each.code == one["code"] for each in self.findings)
                if one["severity"] != "note" and not known:
                    location = f"row {row['row']} of {self.named(row['source'])}: " if "row" in row else ""
                    self.find("rows and masks", location + str(one["message"]), code=one["code"],
                              error=one["severity"] == "error")  # fmt: skip
        excluded = [row["excluded"] for row in found["rows"] if row["excluded"]]
        if len(excluded) == len(found["rows"]):
            # the run would drop all rows, so a single finding about all of them replaces the warnings about each row
            self.findings = [one for one in self.findings if one.step != "rows and masks"]
            why = self.named(excluded[0]) if excluded else "there is none"
            raise UsageError(f"no row is trained on: {why}")
        return f"{len(found['rows']) - len(excluded)} rows prepared"

    def disturbed(self, bundles: list[str]) -> bool:
        """Kill a run after its first checkpoint, and resume it. Then stop the run with a signal, and continue it. Its
        final weights must equal the final weights of a run that was never interrupted.
        """
        out = os.path.join(os.path.dirname(bundles[1]), OUT)
        killed = self.launched("kill -9 after the first checkpoint", bundles[1], os.path.join(out, FIRST))
        if killed is None:
            return False
        stopped = self.launched("resume, and stop", bundles[1], os.path.join(out, SECOND), signal.SIGTERM)
        if stopped is None:
            return False
        if stopped.status not in (0, STOPPED):
            return self.failed("resume, and stop", stopped)
        if stopped.status == 0:  # the machine was busy, and the run ended before the signal reached it
            self.steps.append(Step("go on to the end", SKIPPED))
        elif self.launched("go on to the end", bundles[1]) is None:
            return False
        one, other = (_digests(os.path.join(os.path.dirname(bundle), OUT)) for bundle in bundles)
        if one != other:
            names = ", ".join(name for name in sorted({*one, *other}) if one.get(name) != other.get(name))
            why = f"a run that was killed and resumed ends with other weights ({names})"
            self.find("go on to the end", why, "save.full_state")
        else:
            last, early = self.steps[-1], " (the run ended before it was stopped)" if stopped.status == 0 else ""
            self.steps[-1] = Step(last.name, last.state, f"the same weights, bit for bit{early}", last.seconds)
        return True

    def trained(self, bundle: str) -> None:
        """Check the metrics of the run that was not interrupted."""
        record = read_run(os.path.join(os.path.dirname(bundle), OUT))
        events = [] if record is None else record.events
        norms, rates = (
            [value for one in events if (value := number(one.get(name))) is not None] for name in ("grad_norm", "lr")
        )
        step = self.steps[-1].name
        if any("loss" in one and number(one["loss"]) is None for one in events):
            self.find(step, "the loss is not a number", "precision")
        # an online method has gradients of 0 if no completion gets a reward, and a small random model rarely gets one
        if norms and not any(norms) and not self.spec.online:
            self.find(step, "every gradient is 0: nothing is learned", "method")
        if rates and max(rates) <= 0:
            self.find(step, "the learning rate is 0 at every step", "schedule")
        elif len(rates) > 2 and rates[-1] == max(rates) and rates[0] < rates[-1] and self._warms_up():
            self.find(step, "the learning rate still rises at the last step: the run ends within its warm-up",
                      "schedule.warmup", "write a shorter warm-up, such as `schedule(warmup=3%)`")  # fmt: skip

    def called(self, bundle: str) -> str:
        """Check the made-up calls of tools in the run that was not interrupted. Raises UsageError."""
        record = read_run(os.path.join(os.path.dirname(bundle), OUT))
        events = [] if record is None else record.events
        calls, failed = (
            [value for one in events if (value := number(one.get(f"tools/{name}_frequency"))) is not None]
            for name in ("call", "failure")
        )
        if not any(calls):
            raise UsageError("no tool was called: `xpc preview --rewards` shows a made-up call")
        return "made-up calls returned" if not any(failed) else "a tool failed with made-up arguments: see the log"

    def _warms_up(self) -> bool:
        value = self.spec.get("schedule.warmup")
        return value is not None and getattr(value, "unit", "") == "share" and getattr(value, "value", 0) >= 1

    def loads(self, bundle: str) -> str:
        """Load the trained model without xpc, and generate with it. Returns a sentence with the class of the model and
        the generated text.
        """
        spec = self.spec
        out = os.path.join(os.path.dirname(bundle), OUT)
        merged = os.path.join(out, "merged")
        answer = run_worker(self.python, "load_result.py", {
            "final": out, "base": os.path.join(self.folder, spec.model.path or ""), "adapter": spec.lora,
            "merged": merged if os.path.isdir(merged) else None, "scores": spec.text("method") == "reward",
        }, self.environ)  # fmt: skip
        if not answer["changed"] and not self.spec.online:
            self.find("load the result", "the training changed no weight: nothing was learned", "method")
        if not answer["finite"]:
            self.find("load the result", "the loaded model computes nan", "precision")
        return f"{answer['loaded']}: {answer['text'].strip()[:40]!r}" if answer["text"] else str(answer["loaded"])

    def pushed(self) -> str:
        """Check what was pushed to the local server that replaces the hub. Raises UsageError."""
        if not self.hub.repositories:
            raise UsageError("nothing was pushed")
        name, repository = next(iter(self.hub.repositories.items()))
        return f"{len(repository.files())} files in {name}, on a stand-in for the hub"

    # Help -----------------------------------------------------------------------------------------------------------

    def saves(self) -> bool:
        """Whether the run writes checkpoints that it can resume from."""
        spec = self.spec
        return spec.get("save.every") == EVERY and spec.get("save.resume") != "never" and spec.flag("save.full_state")

    def written(self, name: str) -> str:
        """Write a copy of the bundle to the new folder `name`. With its own copy, each run has its own output. Returns
        the path of the copy.
        """
        location = os.path.join(self.folder, name)
        os.mkdir(location)
        for shared in ("data", "model", "teacher"):
            if os.path.exists(os.path.join(self.folder, shared)):
                os.symlink(os.path.join("..", shared), os.path.join(location, shared))
        bundle = os.path.join(location, "twin.bundle")
        write(dict(self.files), bundle)
        return bundle

    def launched(self, name: str, bundle: str, at: str | None = None, number: int = signal.SIGKILL) -> Launch | None:
        """Launch a bundle, and record the launch as a step. Returns None if the launch failed. As soon as the folder
        `at` exists, the run gets the signal `number`.
        """
        self.progress(name)
        location = os.path.dirname(bundle)
        found = launch(bundle, location, {**self.environ, "XPC_DATA_ROOT": location}, at, number)
        if not found.reached and found.status == 0:
            self.find(name, f"the run ended before {os.path.basename(at or '')} was written", "save.every")
        elif (at is None and found.status != 0) or not found.reached:
            self.failed(name, found)
            return None
        self.steps.append(Step(name, DONE, "", found.seconds))
        return found

    def failed(self, name: str, found: Launch) -> bool:
        """Record that a launch failed, and for what reason. Always returns False."""
        self.steps.append(Step(name, FAILED, f"exit status {found.status}", found.seconds))
        reason = self.named(found.reason)
        setting, help = next((rest for pattern, *rest in DECIDED if pattern.search(reason)), ("", ""))
        self.find(name, reason, setting, help)
        return False

    def named(self, text: str) -> str:
        """Replace temporary paths in a message by the names of the files in the user's own spec."""
        text = re.sub(rf"{re.escape(self.folder)}/\w+/(twin\.bundle/)?(files/)?", "", text)
        for one in self.twin.rows:
            text = text.replace(one.path, one.source.name)
        return ADDED.sub("", text)

    def timed(self, name: str, action: Callable[[], str]) -> bool:
        """Run `action` as a step, and measure its duration. If `action` raises an error, record a finding. Returns
        whether the step succeeded.
        """
        self.progress(name)
        begin = time.monotonic()
        try:
            text = action()
        except UsageError as error:
            self.steps.append(Step(name, FAILED, "", time.monotonic() - begin))
            self.find(name, str(error))
            return False
        self.steps.append(Step(name, DONE, text, time.monotonic() - begin))
        return True

    def find(
        self, step: str, message: str, setting: str = "", help: str = "", code: str = "", error: bool = True
    ) -> None:
        """Record a finding."""
        self.findings.append(Finding(step, message, setting, help, code, error))


def run_worker(python: str, program: str, question: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Run a program of the worker folder. The program gets `question` as JSON, and its answer is JSON. Raises
    UsageError if the program fails.
    """
    done = subprocess.run(
        [python, os.path.join(WORKER, program)], input=json.dumps(question), capture_output=True, text=True,
        encoding="utf-8", errors="replace", env=dict(environ), check=False,
    )  # fmt: skip
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise UsageError(lines[-1] if lines else f"{program} failed (status {done.returncode})")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def _digests(folder: str) -> dict[str, str]:
    """The SHA-256 of each file with weights in a run's output folder and in the subfolder `merged`."""
    found = {}
    for location in ("", "merged"):
        inside = os.path.join(folder, location)
        for name in sorted(os.listdir(inside)) if os.path.isdir(inside) else ():
            if name.startswith(WEIGHTS) and not name.endswith(".json"):
                with open(os.path.join(inside, name), "rb") as handle:
                    found[os.path.join(location, name)] = sha256(handle.read()).hexdigest()
    return found
