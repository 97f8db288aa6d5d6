"""A run that cannot work stops with one clear sentence and status 1, without a traceback. Where possible, it stops
before a model or data are loaded.

The first run, and the runs with other launchers, use new interpreters. All other runs are forks of a warm interpreter.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from emitted import compiled, put
from lowered import resolved
from method_runs import Warm
from patience import HUNG
from stacks import Run, environment, interpreter, launch, payload
from tiny_runs import lines, spec

from xpc.compiler.files.bundle import write
from xpc.compiler.lower import lower
from xpc.compiler.spec.checked import CheckedSpec
from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow


def sentence(run: Run) -> str:
    """The single sentence in which a run says why it does not start."""
    assert run.done.returncode == 1, run.output
    assert run.done.stderr.startswith("error: "), run.output
    assert run.done.stderr.count("\n") == 1, run.output
    assert "Traceback" not in run.done.stdout
    assert not os.path.exists(os.path.join(run.out, "metrics.jsonl"))
    return run.done.stderr


@pytest.fixture
def bundle(location: str, tmp_path: Any) -> Callable[..., str]:
    """Return a function that compiles a text in the folder of the tiny model, and applies `edit` to the bundle's
    trainer_args.json.

    If `checked` is false, the spec is compiled without the rules, so that only the run itself can refuse it.
    """

    def make(
        text: str,
        edit: Callable[[dict[str, Any]], object] = lambda _: None,
        name: str = "refused",
        checked: bool = True,
    ) -> str:
        out = os.path.join(location, f"{name}.bundle")
        shutil.rmtree(out, ignore_errors=True)
        if checked:
            compiled(text, location, out, f"{name}.xp")
        else:
            write(lower(CheckedSpec.of(resolved(text, location, f"{name}.xp"))), out)
        plan = payload(out)
        edit(plan)
        put(out, {"trainer_args.json": json.dumps(plan)})
        return out

    return make


def test_another_version_of_a_package_is_refused(bundle: Callable[..., str], warm: Warm, tmp_path: Any) -> None:
    made = bundle(spec())
    put(made, {"requirements.txt": "trl==1.15.0\nno-such-package==2\n"})
    run = warm.launch(made, str(tmp_path))
    assert run.done.returncode == 1
    assert "trl 1.16.0 is installed, and this bundle is for 1.15.0" in run.done.stderr
    assert "no-such-package 2 is not installed" in run.done.stderr  # one message has all mistakes
    assert "pip install -r requirements.txt" in run.done.stderr
    assert "Traceback" not in run.output


def test_data_that_is_missing(bundle: Callable[..., str], tmp_path: Any) -> None:
    made = bundle(spec())
    os.remove(os.path.join(made, payload(made)["data"]["sources"][0]["bundled"]))
    assert "messages.jsonl" in sentence(launch(made, str(tmp_path)))


def test_data_that_was_changed(bundle: Callable[..., str], warm: Warm, tmp_path: Any) -> None:
    made = bundle(spec())
    with open(os.path.join(made, payload(made)["data"]["sources"][0]["bundled"]), "a", encoding="utf-8") as out:
        out.write(lines([{"messages": [{"role": "user", "content": "more"}]}]))
    assert "not the file that this bundle was compiled with" in sentence(warm.launch(made, str(tmp_path)))


def test_a_column_that_is_not_there(bundle: Callable[..., str], warm: Warm, tmp_path: Any) -> None:
    made = bundle(spec(), lambda plan: plan["data"]["sources"][0].update(columns=["turns"]))
    printed = sentence(warm.launch(made, str(tmp_path)))
    assert "no column 'turns'" in printed
    # the message lists the columns that the rows have
    assert "'messages'" in printed


def test_a_speaker_that_nobody_knows(bundle: Callable[..., str], warm: Warm, tmp_path: Any, location: str) -> None:
    put(location, {"alien.jsonl": lines([{"conversations": [{"from": "alien", "value": "?"}]}])})
    printed = sentence(warm.launch(bundle(spec(data='"alien.jsonl"'), checked=False), str(tmp_path)))
    assert "'alien' is no known speaker" in printed
    assert "alien.jsonl, row 0" in printed


def test_a_speaker_that_nobody_knows_further_down(
    bundle: Callable[..., str], warm: Warm, tmp_path: Any, location: str
) -> None:
    known = [{"from": "human", "value": "2?"}, {"from": "gpt", "value": "4"}]
    rows: list[dict[str, object]] = [{"conversations": known} for _ in range(20)]
    put(location, {"late.jsonl": lines([*rows, {"conversations": [{"from": "alien", "value": "?"}]}])})
    run = warm.launch(bundle(spec(data='"late.jsonl"'), checked=False), str(tmp_path))
    assert run.done.returncode == 1
    assert "error: late.jsonl, row 20: 'alien' is no known speaker" in run.done.stderr
    assert "Traceback" not in run.done.stderr
    assert run.done.stderr.count("\n") == 1, run.done.stderr


def test_a_model_without_a_chat_template_is_refused(
    bundle: Callable[..., str], warm: Warm, tmp_path: Any, location: str
) -> None:
    shutil.copytree(os.path.join(location, "tiny"), os.path.join(location, "bare"), dirs_exist_ok=True)
    os.remove(os.path.join(location, "bare", "chat_template.jinja"))
    made = bundle(spec().replace('"tiny"', '"bare"'), checked=False)
    assert "no chat template" in sentence(warm.launch(made, str(tmp_path)))


def test_an_end_token_that_is_not_in_the_vocabulary(bundle: Callable[..., str], warm: Warm, tmp_path: Any) -> None:
    made = bundle(spec('model(eos="<|stop|>")'), checked=False)
    assert "'<|stop|>' is not in the vocabulary" in sentence(warm.launch(made, str(tmp_path)))


def test_a_model_that_is_not_there(bundle: Callable[..., str], warm: Warm, tmp_path: Any) -> None:
    made = bundle(spec(), lambda plan: plan["model"].update(path="gone"))
    assert "'gone' was not found" in sentence(warm.launch(made, str(tmp_path)))


def test_a_model_that_cannot_be_fetched(bundle: Callable[..., str], warm: Warm, tmp_path: Any) -> None:
    made = bundle(spec(), lambda plan: plan["model"].update(path=None, id="no-such/model"))
    assert "no-such/model" in sentence(warm.launch(made, str(tmp_path)))


def test_gpus_that_are_not_there(bundle: Callable[..., str], warm: Warm, tmp_path: Any) -> None:
    made = bundle(spec(hardware="2 x h100-80gb").replace("precision fp32", "precision bf16"))
    run = warm.launch(made, str(tmp_path), CUDA_VISIBLE_DEVICES="")
    assert "2 GPU(s) are needed, and torch sees none" in sentence(run)


def test_a_folder_that_somebody_else_uses(bundle: Callable[..., str], warm: Warm, tmp_path: Any) -> None:
    put(str(tmp_path), {"out/thesis.tex": "precious"})
    assert "not empty" in sentence(warm.launch(bundle(spec()), str(tmp_path)))
    with open(os.path.join(str(tmp_path), "out", "thesis.tex"), encoding="utf-8") as handle:
        assert handle.read() == "precious"


@pytest.mark.parametrize(("started", "hardware"), [(1, "2 x cpu"), (2, "cpu")])
def test_another_number_of_processes_is_refused(
    bundle: Callable[..., str], tmp_path: Any, started: int, hardware: str
) -> None:
    made = bundle(spec(hardware=hardware))
    words = ["-m", "torch.distributed.run", "--nproc_per_node", str(started), "--standalone", f"{made}/trainer/main.py"]
    done = subprocess.run([interpreter(DEFAULT), *words], cwd=tmp_path, env=environment(), capture_output=True,
                          text=True, check=False, timeout=HUNG)  # fmt: skip
    assert done.returncode == 1
    ours = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(ours) == 1
    assert f"the launcher started {started} process(es)" in ours[0]
    assert "not the global batch of 8" in ours[0]
    assert os.listdir(tmp_path) == []


def test_a_start_by_hand_in_one_process_is_refused(bundle: Callable[..., str], warm: Warm, tmp_path: Any) -> None:
    made = bundle(spec(hardware="2 x cpu"))
    done = subprocess.run([warm.of(DEFAULT).python, f"{made}/trainer/main.py"], cwd=tmp_path, env=environment(),
                          capture_output=True, text=True, check=False, timeout=HUNG)  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: the launcher started 1 process(es)")


def test_an_unknown_argument_is_refused(bundle: Callable[..., str], warm: Warm, tmp_path: Any) -> None:
    words = [warm.of(DEFAULT).python, f"{bundle(spec())}/trainer/main.py", "--lr", "1"]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False,
                          timeout=HUNG)  # fmt: skip
    assert done.returncode == 2
    assert "--lr" in done.stdout + done.stderr


def test_the_preflight_alone_passes_and_writes_nothing(bundle: Callable[..., str], warm: Warm, tmp_path: Any) -> None:
    run = warm.launch(bundle(spec(hardware="2 x cpu", strategy="zero2")), str(tmp_path), "--preflight")
    assert run.done.returncode == 0, run.output
    assert "preflight passed" in run.done.stdout
    assert os.listdir(tmp_path) == []
