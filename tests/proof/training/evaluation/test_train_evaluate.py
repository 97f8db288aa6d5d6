"""evaluate.sh runs a user's task file with the pinned evaluation harness and without a network. It evaluates a fully
trained model, and an adapter on its base.

One evaluation starts a new interpreter; all other evaluations, and the training, run in forks of a warm interpreter.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from emitted import compiled, put
from interpreters import OTHERS
from method_runs import Warm
from patience import HUNG
from stacks import REPOSITORY, Run, environment, has, interpreter
from tiers import nightly_but
from tiny_runs import lines, spec

from xpc.compiler.stacks import DEFAULT, STACKS
from xpc.runtime.core.output_folder import MARKER

pytestmark = pytest.mark.slow
TASK = """\
include: base.yaml
task: colours
doc_to_text: "{{prompt}}"
doc_to_target: !function words.answer
metric_list:
  - metric: perplexity
    aggregation: perplexity
    higher_is_better: false
metadata:
  version: 1.0
"""
BASE = """\
dataset_path: json
dataset_kwargs: {data_files: {test: "rows/test.jsonl"}}
test_split: test
output_type: loglikelihood
"""
WORDS = 'def answer(row):\n    return row["completion"].strip()\n'
Evaluate = Callable[..., subprocess.CompletedProcess[str]]
QUESTION = 'eval(tasks=["tasks/colours.yaml"])'
INSIDE = "(rank=32, alpha=64, dropout=0)"
ADAPTERS = {"whole": (), "lora": (f"lora{INSIDE}",), "qlora": (f"qlora{INSIDE}",)}


def harness(target: str) -> str:
    """The target's interpreter. Skips the test if lm-evaluation-harness is not installed there."""
    python = interpreter(target)
    if not has(target, "lm_eval"):
        pytest.skip(f"the interpreter of {target} has no lm-eval")
    return python


@pytest.fixture(scope="module")
def colours(location: str) -> str:
    """A folder with the tiny model, and a task of four questions whose answers are in the training data."""
    with open(os.path.join(location, "pairs.jsonl"), encoding="utf-8") as handle:
        rows = [json.loads(line) for line in handle][:4]
    return put(location, {
        "tasks/colours.yaml": TASK, "tasks/base.yaml": BASE, "tasks/words.py": WORDS,
        "tasks/rows/test.jsonl": lines(rows),
    })  # fmt: skip


@pytest.fixture(scope="module")
def evaluate(warm: Warm) -> Evaluate:
    """Return a function that runs the evaluate.sh of a bundle in a given folder."""

    def run(bundle: str, cwd: str, target: str, cold: bool = False) -> subprocess.CompletedProcess[str]:
        python = harness(target)
        return subprocess.run([os.path.join(bundle, "evaluate.sh")], cwd=cwd, text=True, capture_output=True,
                              env=environment(PYTHON=python if cold else warm.of(target).python), check=False,
                              timeout=HUNG)  # fmt: skip

    return run


def results(out: str) -> dict[str, object]:
    with open(os.path.join(out, "eval", "results.json"), encoding="utf-8") as handle:
        return dict(json.load(handle))


def perplexity(out: str) -> float:
    found = results(out)["results"]
    assert isinstance(found, dict)
    return float(found["colours"]["perplexity,none"])


@pytest.fixture(scope="module")
def untrained(colours: str, evaluate: Evaluate, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], float]:
    """Return a function that gets a target and returns the perplexity of the tiny model on this target, without any
    training.
    """
    kept: dict[str, float] = {}

    def found(target: str) -> float:
        if target not in kept:
            cwd = str(tmp_path_factory.mktemp("untrained"))
            shutil.copytree(os.path.join(colours, "tiny"), os.path.join(cwd, "out"))
            bundle = compiled(spec(QUESTION, target=target), colours, os.path.join(colours, f"before-{target}.bundle"))
            done = evaluate(bundle, cwd, target)
            assert done.returncode == 0, done.stdout + done.stderr
            kept[target] = perplexity(os.path.join(cwd, "out"))
        return kept[target]

    return found


@pytest.fixture(scope="module")
def run(colours: str, warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[str, Run]]:
    """Return a function that compiles a spec and trains it. The function returns the bundle and the finished run."""

    def trained(name: str, target: str, *more: str) -> tuple[str, Run]:
        harness(target)
        text = spec(QUESTION, *more, target=target, length="30 steps")
        bundle = compiled(text, colours, os.path.join(colours, f"{name}-{target}.bundle"))
        finished = warm.launch(bundle, str(tmp_path_factory.mktemp(name)))
        assert finished.done.returncode == 0, finished.output
        return bundle, finished

    return trained


@pytest.mark.parametrize(
    ("adapters", "target"),
    nightly_but(
        [("qlora", DEFAULT), *((adapters, name) for name in STACKS for adapters in ("whole", "lora"))],
        # evaluate.sh loads the base and the adapters for `lora`, so on an older stack this case also shows that `whole`
        # works
        lambda one: one in (("whole", DEFAULT), ("lora", DEFAULT), ("lora", OTHERS[0])),
    ),
)
def test_the_trained_model_is_evaluated(
    run: Callable[..., tuple[str, Run]], untrained: Callable[[str], float], evaluate: Evaluate, target: str,
    adapters: str,
) -> None:  # fmt: skip
    bundle, finished = run(adapters, target, *ADAPTERS[adapters])
    done = evaluate(bundle, os.path.dirname(finished.out), target, cold=(adapters, target) == ("whole", DEFAULT))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"[run] results in {finished.out}/eval/results.json" in done.stdout
    assert "fatal:" not in done.stderr  # of git, outside of a repository
    assert perplexity(finished.out) < 0.7 * untrained(target)
    found = results(finished.out)
    assert (found["harness"], found["chat_template"]) == ("0.4.13", True)
    assert found["bits"] == (4 if adapters == "qlora" else None)


def test_without_a_trained_model_it_is_a_sentence(colours: str, evaluate: Evaluate, tmp_path: Path) -> None:
    bundle = compiled(spec(QUESTION), colours, os.path.join(colours, "alone.bundle"))
    done = evaluate(bundle, str(tmp_path), DEFAULT)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"error: no trained model is in {tmp_path}/out: train with ./launch.sh first, and start both in the same folder"
    )


def test_a_run_of_another_bundle_is_not_evaluated(colours: str, evaluate: Evaluate, tmp_path: Path) -> None:
    bundle = compiled(spec(QUESTION), colours, os.path.join(colours, "other.bundle"))
    put(str(tmp_path), {"out/config.json": "{}", "out/a.safetensors": "", f"out/{MARKER}": '{"bundle": "sha256:0"}\n'})
    done = evaluate(bundle, str(tmp_path), DEFAULT)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        "contains a run of another bundle; evaluate it with the evaluate.sh of that bundle"
    )


def test_another_version_of_the_harness_is_refused(colours: str, evaluate: Evaluate, tmp_path: Path) -> None:
    bundle = compiled(spec(QUESTION), colours, os.path.join(colours, "older.bundle"))
    path = os.path.join(bundle, "evaluation.json")
    with open(path, encoding="utf-8") as handle:
        plan = json.load(handle)
    put(bundle, {"evaluation.json": json.dumps({**plan, "harness": "0.4.2"})})
    done = evaluate(bundle, str(tmp_path), DEFAULT)
    assert done.returncode == 1
    assert "is installed, and this bundle is for 0.4.2 (pip install -r requirements-eval.txt)" in done.stderr


def test_the_table_of_tasks_is_that_of_the_pinned_harness(warm: Warm) -> None:
    folder = os.path.join(REPOSITORY, "compiler", "stacks")
    code = "import json, sys; sys.path[0] = sys.argv[1]; import harness_names; print(json.dumps(harness_names.table()))"
    harness(DEFAULT)
    (found,) = warm.program(DEFAULT, code, folder)
    with open(os.path.join(folder, "lm-eval.json"), encoding="utf-8") as handle:
        assert found == json.load(handle)


def test_the_harness_runs_no_code_that_nobody_allowed(colours: str, evaluate: Evaluate, tmp_path: Path) -> None:
    """The task runs code that the model writes. With `allow_code_execution`, the harness runs this code. Without
    `allow_code_execution`, the harness raises an exception after it has loaded the model (XP520).
    """
    put(colours, {"tasks/executes.yaml": TASK.replace("task: colours", "task: executes\nunsafe_code: true")})
    shutil.copytree(os.path.join(colours, "tiny"), tmp_path / "out")
    text = spec('eval(tasks=["tasks/executes.yaml"], allow_code_execution)')
    bundle = compiled(text, colours, str(tmp_path / "executes.bundle"))
    done = evaluate(bundle, str(tmp_path), DEFAULT)
    assert done.returncode == 0, done.stdout + done.stderr
    path = os.path.join(bundle, "evaluation.json")
    with open(path, encoding="utf-8") as handle:
        plan = json.load(handle)
    assert plan["allow_code_execution"] is True
    with open(path, "w", encoding="utf-8") as handle:
        json.dump({**plan, "allow_code_execution": False}, handle)
    done = evaluate(bundle, str(tmp_path), DEFAULT)
    assert done.returncode != 0
    assert "ValueError: Attempted to run task: executes which is marked as unsafe" in done.stdout + done.stderr
