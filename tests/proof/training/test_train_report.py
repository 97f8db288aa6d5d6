"""At its end, a run writes measurements, a plot, a model card and a report. All of them have the values that are in
metrics.jsonl.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from emitted import put
from method_runs import STEPS, Trained, Warm, small
from stacks import payload
from tiers import FIRST_AND_LAST
from tiny_runs import lines

from xpc.compiler.report.command import parse
from xpc.compiler.report.command import run as report
from xpc.compiler.review.verify import parse as parse_verify
from xpc.compiler.review.verify import run as verify
from xpc.compiler.stacks import DEFAULT
from xpc.runtime import picture

pytestmark = pytest.mark.slow
SVG = "{http://www.w3.org/2000/svg}"
EVALUATED = 'eval(every=2, data="{}.jsonl")'


def reported(run: Trained) -> dict[str, dict[str, Any]]:
    """Map the names of the rows in a run's report to the rows. The name of the row about the run itself is ""."""
    (found,) = json.loads(report(parse([run.out, "--json"]))[0])["runs"]
    return {"": found, **{row["name"]: row for row in found["rows"]}}


def check(run: Trained, metric: str, best: Any) -> None:
    """For one logged metric, check that the run's files and its output have the value in metrics.jsonl."""
    logged = [(event[metric], event["step"]) for event in run.events if metric in event]
    assert len(logged) == STEPS
    one = run.summary["results"][metric]
    assert (one["first"], one["last"], one["count"]) == (logged[0][0], logged[-1][0], STEPS)
    assert (one["best"], one["best_step"]) == best(logged, key=lambda each: each[0])
    with open(os.path.join(run.out, "README.md"), encoding="utf-8") as handle:
        card = handle.read()
    assert (
        f"| `{metric}` | {one['first']:.4f} | {one['best']:.4f} (step {one['best_step']}) | {one['last']:.4f} |" in card
    )
    assert "![the curves of the run](picture.svg)" in card
    assert f"picture    {run.out}/picture.svg\n" in run.output
    assert "verify     xpc verify " in run.output
    rows = reported(run)
    assert rows[metric]["ran"].startswith(f"{one['first']:.4g} -> {one['last']:.4g}, best {one['best']:.4g} at step")
    assert rows["status"]["ran"] == "finished"
    assert (rows["steps"]["planned"], rows["steps"]["ran"]) == (str(STEPS), str(STEPS))
    assert not rows["steps"]["differs"]


def check_measured(run: Trained) -> None:
    """Check that each phase has a time and a peak of memory, and that the times add up to no more than the lifetime of
    the process.
    """
    found = run.summary["measured"]
    assert {"load", "train", "save"} <= found["seconds"].keys()
    assert all(0 <= spent < 3600 for spent in found["seconds"].values())
    assert (
        found["seconds"]["train"] + found["seconds"].get("evaluate", 0)
        <= found["seconds"]["load"] + run.summary["seconds"]
    )
    assert {"load", "forward and backward", "step", "save"} <= found["memory"].keys()
    assert all(10 * 2**20 < one["resident"] < 100 * 2**30 for one in found["memory"].values())
    assert 0 < found["waits"] <= found["seconds"]["train"]
    folders = [one for one in os.listdir(run.out) if one.startswith("checkpoint-")]
    assert found["saves"] == len(folders)
    sizes = [os.path.getsize(os.path.join(location, name)) for folder in folders
             for location, _, names in os.walk(os.path.join(run.out, folder)) for name in names]  # fmt: skip
    assert found["saved_bytes"] == pytest.approx(sum(sizes), rel=0.01)


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_the_end_of_a_run(warm: Warm, tmp_path: Any, target: str) -> None:
    answer = {"role": "assistant", "content": "b"}
    rows: list[dict[str, object]] = [
        {"messages": [{"role": "user", "content": "a" * 4 * (1 + number % 3)}, answer]} for number in range(64)
    ]
    put(
        warm.location,
        {"uneven/train.jsonl": lines(rows), "uneven/README.md": "---\nlicense: apache-2.0\n---\n# Rows\n"},
    )
    text = small(EVALUATED.format("messages"), method="sft", target=target, save='save "out" every=2')
    text = text.replace('on "messages.jsonl"', 'on "uneven"')
    run = warm.train(text, f"report-{target}", target, str(tmp_path))
    check(run, "loss", min)
    check_measured(run)
    summary = run.summary
    assert summary["results"]["eval_loss"]["last"] == summary["evaluation"]["eval_loss"]
    assert 0 < summary["measured"]["padding"] < 1
    stated = payload(run.folder)["run"]["flops"]
    tokens, seconds = summary["tokens"], summary["measured"]["seconds"]["train"]
    speed = tokens * (stated["token"] + stated["length"] * tokens / summary["sequences"]) / seconds
    assert summary["utilisation"] == {"flops_per_second": pytest.approx(speed, rel=1e-3), "share": None}
    with open(os.path.join(run.out, "README.md"), encoding="utf-8") as handle:
        assert "| `uneven` | apache-2.0 |" in handle.read()
    found = ET.parse(os.path.join(run.out, "picture.svg"))
    titles = [one.text for one in found.iter(f"{SVG}text") if one.get("class") == "title"]
    assert titles == ["loss", "learning rate", "tokens/s"]
    assert reported(run)[""]["curves"]["loss"]["eval_loss"] == [
        [event["step"], event["eval_loss"]] for event in run.events if "eval_loss" in event
    ]
    use = re.findall(r"use +(.*)\n +(.*)\n +(.*)\n", run.output)[0]
    task = warm.program(target, "\n".join(use[:2]) + '\nprint(\'{"task": "%s"}\' % ask.task)\n')
    assert task == [{"task": "text-generation"}]


def test_a_changed_picture_or_card_is_found(warm: Warm, tmp_path: Any) -> None:
    run = warm.train(small(method="sft"), "report-verified", DEFAULT, str(tmp_path))
    words = [run.folder, "--run", run.out]
    assert verify(parse_verify(words))[1] == 0
    for name in ("picture.svg", "README.md", "measured.jsonl"):
        path = os.path.join(run.out, name)
        shutil.copy(path, f"{path}.kept")
        with open(path, "a", encoding="utf-8") as handle:
            handle.write(" ")
        text, status = verify(parse_verify(words))
        assert status == 1
        assert f"{name} was edited after the run" in text
        os.replace(f"{path}.kept", path)
    assert verify(parse_verify(words))[1] == 0


def test_a_run_that_is_killed_and_goes_on(warm: Warm, tmp_path: Any) -> None:
    run = warm.train(small(method="sft", save='save "out" every=2'), "report-killed", DEFAULT, str(tmp_path))
    before = run.summary["measured"]["seconds"]["train"]
    shutil.rmtree(os.path.join(run.out, "checkpoint-4"))
    kept = ("metrics.jsonl", "measured.jsonl", "xpc_run.json", "checkpoint-2")
    for name in set(os.listdir(run.out)) - set(kept):
        os.remove(os.path.join(run.out, name))
    with open(os.path.join(run.out, "measured.jsonl"), "a", encoding="utf-8") as handle:
        handle.write('{"step": 4, "seco')
    rows = reported(run)
    assert rows["status"]["ran"] == "ended without a result"
    assert "checkpoint-2 is the newest one" in rows["status"]["why"]
    again = warm.run(run.folder, str(tmp_path), DEFAULT, XPC_PREFLIGHT="passed")
    assert [event["step"] for event in again.events] == [1, 2, 3, 4]
    assert again.summary["measured"]["starts"] == 2
    assert again.summary["measured"]["seconds"]["train"] > before
    rows = reported(again)
    assert rows[""]["restarts"] == [2.0]
    assert rows["start 2"]["ran"].endswith("from step 2")
    with open(os.path.join(again.out, "picture.svg"), encoding="utf-8") as handle:
        assert handle.read().count("started again from step 2") == len(picture.curves(again.events))
    with open(os.path.join(again.out, "README.md"), encoding="utf-8") as handle:
        assert " in 2 starts." in handle.read()


@pytest.mark.parametrize(
    ("method", "settings", "metric"),
    [
        ("dpo", "", "rewards/margins"),
        ("grpo", '(rewards="rewards.py:even", generations=4, max_completion=12, beta=0.04)', "reward"),
    ],
)
@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_the_metric_that_matters_for_a_method(
    warm: Warm, tmp_path: Any, target: str, method: str, settings: str, metric: str
) -> None:
    data = "ragged" if method == "dpo" else ""
    text = small(f"method {method}{settings}", method=method, target=target, data=data, save='save "out" every=2')
    run = warm.train(text, f"report-{method}-{target}", target, str(tmp_path))
    check(run, metric, max)
    check_measured(run)
    assert ("loss" in run.summary["results"]) == (method == "dpo")
    padding = run.summary["measured"]["padding"]
    assert padding is None if method == "grpo" else 0 < padding < 1
    titles = [one.text for one in ET.parse(os.path.join(run.out, "picture.svg")).iter(f"{SVG}text")]
    assert titles[0] == metric.rpartition("/")[2].removesuffix("s")
