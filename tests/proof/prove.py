"""A proof shows two things about a rule: a spec that the rule forbids fails in the libraries, and the most similar
legal spec does not fail.

A `Proof` is data. It names a row of the rule table (`rule`), a code (`code`), an illegal spec that this code refuses,
the nearest legal spec, and what the library does with the illegal spec:

    Proof("O14", "XP205", at="train", raises="TypeError", match="num_decay_steps", onto="legal",
          arguments={"lr_scheduler_kwargs": {}})

Texts. `text` (the illegal spec), `legal` and `files` may be stated here. By default, they are those of the `Case` with
the title `case` (default: the code). `target` writes a target into both texts. The illegal text is lowered without the
rules (load, resolve, lower). Some violations, such as a wrong name or choice, cannot be lowered. They are added to the
lowered files: `arguments` (trainer arguments), `yaml` (accelerate.yaml), `deepspeed` (deepspeed.json), `payload`
(trainer_args.json); the last three take dotted paths, and the value GONE removes a name. With `onto="legal"`, they are
added to the lowered legal text, and the illegal text is not lowered. `common` are arguments of both specs.

Effect. A proof has exactly one of: `raises` (type name, or a base class of it) with `match` (regular expression on the
message); `warns` (regular expression on a Python warning or log record); `expect` (a dict of facts, or a predicate) for
the result of `measure`; `needs` (why no effect can be shown here: "a GPU of compute capability 9.0"). A `measure` is
"file.function" below measures/, called with a small_run.SmallRun after stage `at`; together with `raises`, the measure
must raise. The exception must come from stage `at` (or from the measure), not from an earlier stage. The legal spec
runs in the same way, and must not show the effect: it raises no exception of any kind, gives no such warning, and does
not fulfil `expect`.

Stages (`at`); each also runs the stages that it names:
    launch      only `accelerate launch` with accelerate.yaml
    config      the trainer's configuration class, with the spec's GPU and world size simulated
    deepspeed   config, then DeepSpeedConfig and transformers' reader of deepspeed.json
    load        config, then the tiny model of the spec's family (`family` for another) by from_pretrained
    init        load, then the trl trainer on tiny rows of the bundle's shape (`shape`, `rows` for others)
    train       init, then train() for `steps` (2)
    save        train, then save_model()

Stages from `load` on run on the CPU (`on_cpu=True` is their default). For a spec with GPUs, variant.py replaces
precision, optimizer kernels, flash attention, strategy and sizes; arguments named in `arguments` and `keep` stay as
lowered. A spec for `cpu` or `2 x cpu` runs as it is (write a small one: gbs=4 micro=2), with the launcher's variables,
in as many processes as it states, ZeRO included. `processes=2` runs the variant of a GPU spec as DDP over gloo, and
with `keep=("fsdp",)` as the spec's own FSDP (accelerate sees simulated GPUs, and the launcher's variables are set).
`eager=True` turns off torch.compile, for models whose compilation would take minutes.

To run proofs by hand, by a rule, a code or a title; --verbose prints everything that was seen:
    python tests/proof/prove.py O14 [--verbose]
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
if __name__ == "__main__":
    sys.modules["prove"] = sys.modules["__main__"]
sys.path.append(os.path.join(os.path.dirname(HERE), "support"))

from module_folders import put_on_path  # noqa: E402

put_on_path()

import violations  # noqa: E402
from attrs import field, frozen  # noqa: E402
from compile_support import codes, put  # noqa: E402
from forks import shared  # noqa: E402
from lowered import GONE, past  # noqa: E402
from patience import HUNG  # noqa: E402
from ports import free_port  # noqa: E402
from rule_cases import CASES  # noqa: E402
from stacks import environment  # noqa: E402

__all__ = ["GONE", "Proof", "Prover", "codes", "every", "failure"]
CPU_STAGES = ("load", "init", "train", "save")
TITLES = {case.title: case for case in CASES}


@frozen
class Proof:
    """A violation of a rule, and the effect of this violation in the libraries. The module's docstring explains the
    fields.
    """

    rule: str
    code: str
    at: str = "config"
    text: str = ""
    legal: str = ""
    case: str = ""
    files: Mapping[str, str] = field(factory=dict)
    target: str = ""
    onto: str = "text"
    arguments: Mapping[str, Any] = field(factory=dict)
    yaml: Mapping[str, Any] = field(factory=dict)
    deepspeed: Mapping[str, Any] = field(factory=dict)
    payload: Mapping[str, Any] = field(factory=dict)
    common: Mapping[str, Any] = field(factory=dict)
    raises: str = ""
    match: str = ""
    warns: str = ""
    measure: str = ""
    expect: Mapping[str, Any] | Callable[[Mapping[str, Any]], bool] | None = None
    needs: str = ""
    keep: tuple[str, ...] = ()
    on_cpu: bool | None = None
    processes: int = 1
    family: str = ""
    legal_family: str = ""
    shape: str = ""
    rows: int = 32
    steps: int = 2
    eager: bool = False
    timeout: int = HUNG
    variant: str = ""

    def __attrs_post_init__(self) -> None:
        case = TITLES.get(self.case or self.code)
        if self.case and case is None:
            raise ValueError(f"{self.title}: there is no case {self.case}")
        texts = {"text": self.text, "legal": self.legal, "files": self.files}
        if case is not None:
            own = {"text": case.rejected, "legal": case.accepted, "files": case.files}
            texts = {name: value or own[name] for name, value in texts.items()}
        if self.target:
            texts.update({name: aimed(str(texts[name]), self.target) for name in ("text", "legal")})
        for name, value in texts.items():
            object.__setattr__(self, name, value)
        kinds = [bool(self.raises), bool(self.warns), self.expect is not None, bool(self.needs)]
        if sum(kinds) != 1:
            raise ValueError(f"{self.title}: state exactly one of raises, warns, expect and needs")
        if self.expect is not None and not self.measure:
            raise ValueError(f"{self.title}: `expect` needs a `measure`")
        if not self.needs and (not self.text or not self.legal):
            raise ValueError(f"{self.title}: the proof or its case must have an illegal and a legal text")

    @property
    def title(self) -> str:
        """The name of the proof in pytest's output: row, code and variant."""
        return "-".join(part for part in (self.rule, self.code, self.variant) if part)


def aimed(text: str, target: str) -> str:
    """Return a spec's text, with its `target` replaced by the given target."""
    kept = [line for line in text.splitlines() if not line.startswith("target ")]
    return "\n".join([*kept, f"target {target}"]) + "\n"


def topics() -> list[str]:
    """The names of the modules below violations/, one for each topic."""
    return sorted(one.name for one in pkgutil.iter_modules(violations.__path__))


def of(topic: str) -> tuple[Proof, ...]:
    """The proofs of one topic."""
    found: tuple[Proof, ...] = importlib.import_module(f"violations.{topic}").PROOFS
    return found


def every() -> tuple[Proof, ...]:
    """The proofs of all topics."""
    return tuple(proof for topic in topics() for proof in of(topic))


def job(proof: Proof, legal: bool, folder: str) -> dict[str, Any]:
    """Compile the legal or the illegal spec of a proof into a folder, without the rules; return the job for
    prover.py.
    """
    root = put(os.path.join(folder, "files"), proof.files)
    base = proof.legal if legal or proof.onto == "legal" else proof.text
    changes: dict[str, Any] = {} if legal else {
        "arguments": proof.arguments, "yaml_changes": proof.yaml, "deepspeed_changes": proof.deepspeed,
        "payload_changes": proof.payload,
    }  # fmt: skip
    changes["arguments"] = {**proof.common, **changes.get("arguments", {})}
    out = os.path.join(folder, "legal.bundle" if legal else "illegal.bundle")
    spec = past(base, root, out, **changes)
    on_cpu = proof.at in CPU_STAGES if proof.on_cpu is None else proof.on_cpu
    own = spec.hardware.gpu is None
    processes = spec.hardware.world if own and on_cpu and proof.at in CPU_STAGES else proof.processes
    family = (proof.legal_family if legal else "") or proof.family
    if not family:
        family = "qwen2" if spec.model.facts is None else spec.model.facts.model_type
    return {
        "id": f"{proof.title}{' legal' if legal else ''}", "folder": out, "target": spec.stack.name, "at": proof.at,
        "all_tokens": spec.stack.facts.loss_over_all_tokens,
        "on_cpu": on_cpu, "keep": proof.keep, "changed": [*proof.common, *({} if legal else proof.arguments)],
        "family": family, "shape": proof.shape, "rows": proof.rows, "steps": proof.steps, "measure": proof.measure,
        "processes": processes, "port": free_port(),
        "group": proof.at in CPU_STAGES and ((own and spec.zero_stage > 0) or "fsdp" in proof.keep),
        "timeout": proof.timeout, "eager": proof.eager,
    }  # fmt: skip


class Prover:
    """A running prover.py in a target's interpreter. It works on up to `jobs` jobs at a time."""

    def __init__(self, target: str, jobs: int = 2) -> None:
        words = [shared(target).python, os.path.join(HERE, "prover.py"), str(jobs)]
        variables = environment(CUDA_VISIBLE_DEVICES="", DS_ACCELERATOR="cpu", WANDB_MODE="offline")
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables
        )
        self.next()

    def send(self, job: Mapping[str, Any]) -> None:
        """Send a job and return at once; `next` returns the answer later."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()

    def next(self) -> dict[str, Any]:
        """Wait for the next answer. Raises RuntimeError if the process has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            assert self.process.stderr is not None
            raise RuntimeError(self.process.stderr.read()[-3000:])
        return dict(json.loads(line))

    def answers(self, jobs: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Wait for the answers to these jobs; return them by the ids of the jobs."""
        wanted = list(jobs)
        for one in wanted:
            self.send(one)
        found = [self.next() for _ in wanted]
        return {one["id"]: one for one in found}

    def close(self) -> None:
        """Wait until every job is answered, and end the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=HUNG)


def holds(proof: Proof, measured: Mapping[str, Any]) -> bool:
    """Whether a measurement of the illegal spec has the result that the proof claims."""
    if callable(proof.expect):
        return bool(proof.expect(measured))
    return all(measured.get(name) == value for name, value in (proof.expect or {}).items())


def failure(proof: Proof, illegal: Mapping[str, Any], legal: Mapping[str, Any]) -> str:
    """Given the answers for both specs, the reason why the proof does not hold; "" if it holds."""
    raised, legally = illegal["raised"], legal["raised"]
    if proof.raises:
        if raised is None:
            return "the illegal spec raises nothing"
        if proof.raises not in raised.get("types", [raised["type"]]) or not re.search(proof.match, raised["message"]):
            return f"the illegal spec raises {raised['type']}: {raised['message']}"
        if raised["at"] != ("measure" if proof.measure else proof.at):
            return f"the illegal spec raises at {raised['at']} already"
    elif raised is not None:
        return f"the illegal spec raises {raised['type']} at {raised['at']}: {raised['message']}"
    if legally is not None:
        return f"the legal spec raises {legally['type']} at {legally['at']}: {legally['message']}"
    if proof.warns:
        if not any(re.search(proof.warns, one) for one in illegal["warned"]):
            return f"the illegal spec causes no such warning, only {illegal['warned']}"
        if any(re.search(proof.warns, one) for one in legal["warned"]):
            return "the legal spec causes this warning, too"
    if proof.expect is not None:
        if not holds(proof, illegal["measured"]):
            return f"the measurement of the illegal spec is {illegal['measured']}"
        if holds(proof, legal["measured"]):
            return f"the measurement of the legal spec is the same: {legal['measured']}"
    return ""


def both_jobs(proof: Proof, folder: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compile both specs of a proof into a folder. Return a job for prover.py for each of them."""
    return job(proof, False, folder), job(proof, True, folder)


def main(words: list[str]) -> int:
    """Run the proofs that the arguments name, and print what was seen."""
    wanted = [word for word in words if not word.startswith("-")]
    chosen: list[Proof] = []
    for topic in topics():
        try:
            chosen += [one for one in of(topic) if not wanted or {one.rule, one.code, one.title} & set(wanted)]
        except Exception as error:  # a mistake in the module of one topic must not stop the others
            print(f"violations/{topic}.py: {type(error).__name__}: {error}")
    provers: dict[str, Prover] = {}
    wrong = 0
    for proof in chosen:
        if proof.needs:
            print(f"{proof.title}: needs {proof.needs}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                both = both_jobs(proof, folder)
                target = both[0]["target"]
                prover = provers[target] if target in provers else provers.setdefault(target, Prover(target))
                seen = prover.answers(both)
                illegal, legal = (seen[one["id"]] for one in both)
                why = failure(proof, illegal, legal)
            except Exception as error:
                print(f"{proof.title}: FAILED: {type(error).__name__}: {error}")
                wrong += 1
                continue
        wrong += bool(why)
        print(f"{proof.title}: {'FAILED: ' + why if why else 'proven'} (illegal {illegal.get('seconds')}s)")
        for name, one in (("illegal", illegal), ("legal", legal)):
            if one["raised"]:
                raised = one["raised"]
                print(f"  {name} raises {raised['type']} at {raised['at']}: {raised['message'][:300]}")
            if one["measured"]:
                print(f"  {name} measures {one['measured']}")
            if "--verbose" in words or why:
                for line in one["warned"]:
                    print(f"  {name} warns {line[:300]}")
            if "--verbose" in words or (why and "raises" in why):
                print(one["output"])
    for one in provers.values():
        one.close()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
