"""`xpc report` shows three things next to each other: what the spec states, what was planned, and what ran. The run may
be finished, active, dead, or not started.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from compile_support import LOCAL, LOCAL_MODEL, REPOSITORY, put
from report_support import ROWS, SPEC, compiled, events, lines, run

from xpc.compiler.cli import main
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.report.bundle_record import digest_of
from xpc.compiler.report.command import parse
from xpc.compiler.report.command import run as report
from xpc.compiler.report.measured_rows import of_each

with open(os.path.join(REPOSITORY, "docs", "report.schema.json"), encoding="utf-8") as handle:
    SCHEMA = json.load(handle)


def rows(*words: str) -> dict[str, dict[str, Any]]:
    """Report these runs. Return the rows about the first run by their names. The key "" has all text about this run."""
    complete = json.loads(report(parse([*words, "--json"]))[0])
    jsonschema.validate(complete, SCHEMA)
    found = complete["runs"][0]
    return {"": found, **{row["name"]: row for row in found["rows"]}}


def test_a_finished_run_has_what_it_wrote_next_to_spec_and_plan(location: Path) -> None:
    run(location)
    found = rows("out/x")
    assert found[""]["status"] == "finished"
    assert found[""]["notes"] == []
    steps = found["steps"]
    assert (steps["asked"], steps["planned"], steps["ran"], steps["differs"]) == ("2 epochs", "10", "10", False)
    assert found["loss"]["ran"] == "4 -> 0.4, best 0.4 at step 10"
    assert found["tokens"]["ran"] == "10,000"
    assert found["tokens"]["planned"] == f"at most {10 * 8 * 1024:,}"
    assert found["tokens/s of a process"]["ran"] == "250"
    assert found["utilisation (MFU)"]["ran"] == "40.0 %"
    assert found["waits for data"]["ran"] == "4.0 s, 25.0 % of training"
    assert "dataloader_num_workers" in found["waits for data"]["why"]
    assert found["padding"]["ran"] == "25.0 % of the tokens in batches"
    assert "packing" in found["padding"]["why"]
    assert found["saves"]["ran"] == "2 checkpoints, 1.0 GiB, 2.0 s"
    assert found["peak"]["ran"] == "3.0 GiB (allocated)"
    assert found["peak"]["planned"].endswith("GiB)")
    assert found["each process"]["ran"] == "2.0 GiB, 3.0 GiB"
    assert found["reserved"]["ran"].startswith("4.0 GiB")
    assert found["rows"] | {"why": ""} == found["rows"]
    assert (found["rows"]["planned"], found["rows"]["ran"]) == ("40", "40")
    assert found["cut rows"]["ran"] == "3, 30 of 400 tokens"
    assert found["cut rows"]["differs"]
    device = found["device"]
    assert (device["planned"], device["ran"]) == ("h100-80gb", "NVIDIA H100 80GB HBM3")
    assert found["started"]["ran"] == "2026-11-26T20:00:00Z, from step 0"
    assert found["trl"]["planned"] == found["trl"]["ran"]
    gbs, accum = found["batch.gbs"], found["batch.accum"]
    assert (gbs["asked"], gbs["planned"], gbs["ran"]) == ("8", "8", "8")
    assert (accum["asked"], accum["planned"], accum["why"]) == ("", "2", "derived: 8 / (2 x 2)")
    assert found[""]["curves"]["loss"]["loss"] == [[one["step"], one["loss"]] for one in events()]


def test_a_run_with_one_log_event_and_one_checkpoint_has_one_value(location: Path) -> None:
    folder = run(location, steps=1)
    written = [json.loads(line) | {"saves": 1} for line in (folder / "measured.jsonl").read_text().splitlines()]
    (folder / "measured.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))
    found = rows("out/x", "--html", "r.html")
    assert found["loss"]["ran"] == "4 at step 1"
    assert found["saves"]["ran"].startswith("1 checkpoint, ")
    assert "<code>seq</code>" in (location / "r.html").read_text()


def test_advice_for_a_slow_run_is_legal_in_its_spec(location: Path) -> None:
    pairs = SPEC.replace('"rows.jsonl"', "ultrafeedback-binarized") + "method reward\n"
    compiled(location, "pairs", pairs)
    compiled(location, "stream", SPEC.replace("2 epochs", "10 steps") + "data(streaming)\n")
    for name in ("pairs", "stream"):
        run(location, name)
    assert rows("out/pairs")["padding"] | {"why": ""} == rows("out/pairs")["padding"]
    waits = rows("out/stream")["waits for data"]
    assert (waits["ran"], waits["why"]) == ("4.0 s, 25.0 % of training", "")


def test_the_peaks_of_many_processes_are_summed_up() -> None:
    peaks = [2**30 + rank * 2**20 for rank in range(64)]
    assert of_each(peaks) == "1.0 GiB to 1.1 GiB (process 63), median 1.0 GiB, of 64 processes"


def test_a_slow_run_is_explained_by_what_it_measured(location: Path) -> None:
    run(location, seconds=50_000.0)
    found = rows("out/x")
    assert found["hours"]["differs"]
    for reason in (
        "25.0 % of training waited for data",
        "11.1 % went into evaluations and saves",
        "25.0 % of the tokens",
    ):
        assert reason in found["hours"]["why"]


def test_every_setting_has_a_row_and_a_changed_argument_differs(location: Path) -> None:
    plan = json.loads((location / "x.bundle" / "trainer_args.json").read_text())
    run(location, arguments={**plan["arguments"], "learning_rate": 5.0}, world=4)
    found = rows("out/x")
    changed = [name for name, row in found.items() if name and row["differs"]]
    assert {"optimizer.lr", "processes"} <= set(changed)
    assert found["optimizer.lr"]["ran"] == "learning_rate = 5.0"
    assert found["seed"]["ran"] == found["seed"]["planned"] == "42"
    assert sum(row["group"] == "Settings" for name, row in found.items() if name) > 40


def test_other_versions_differ(location: Path) -> None:
    run(location, versions={"trl": "0.1", "torch": "9.9+cu126"})
    found = rows("out/x")
    assert found["trl"]["ran"] == "0.1"
    assert found["trl"]["differs"]
    assert found["torch"]["ran"] == "9.9+cu126"


def test_tokens_are_those_of_the_summary_or_of_the_last_event(location: Path) -> None:
    run(location, steps=6, finished=False)
    assert rows("out/x")["tokens"]["ran"] == "6,000"
    run(location, steps=6, tokens=6500.0)
    assert rows("out/x")["tokens"]["ran"] == "6,500"


def test_the_utilisation_of_a_run_that_counts_no_tokens_is_unknown(location: Path) -> None:
    out = run(location, tokens=None, utilisation=None)
    counted = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    for event in counted:
        del event["tokens"]
    (out / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in counted))
    found = rows("out/x")["utilisation (MFU)"]
    assert (found["ran"], found["why"]) == ("unknown", "this trainer counts no tokens")


def test_a_run_that_died_says_where_and_what_goes_on(location: Path) -> None:
    out = run(location, steps=6, finished=False)
    with open(out / "metrics.jsonl", "a", encoding="utf-8") as handle:
        handle.write('{"step": 7, "lo')
    found = rows("out/x")
    assert found["status"]["ran"] == "ended without a result"
    assert "after step 6; checkpoint-3 is the newest one" in found["status"]["why"]
    assert (found["steps"]["ran"], found["steps"]["differs"]) == ("6", True)
    assert found["optimizer.lr"]["ran"] == found["optimizer.lr"]["planned"]
    assert found["utilisation (MFU)"]["ran"].endswith("%")
    assert found[""]["notes"] == []


def test_a_run_that_was_stopped_is_not_one_that_died(location: Path) -> None:
    out = run(location, steps=6, finished=False)
    (out / "checkpoint-6").mkdir()
    measured = (out / "measured.jsonl").read_text().splitlines()
    last = json.loads(measured[-1]) | {"step": 6, "stop": "SIGTERM"}
    (out / "measured.jsonl").write_text("\n".join([*measured, json.dumps(last)]) + "\n")
    found = rows("out/x")
    assert found["status"]["ran"] == "stopped on request"
    assert found["status"]["why"].startswith("it was stopped after step 6; checkpoint-6 is the newest one")
    # the last step before the stop need not be a logged step
    (out / "checkpoint-7").mkdir()
    (out / "measured.jsonl").write_text("\n".join([*measured, json.dumps(last | {"step": 7})]) + "\n")
    found = rows("out/x")
    assert found["status"]["why"].startswith("it was stopped after step 7; checkpoint-7 is the newest one")
    assert found["steps"]["ran"] == "7"
    (out / "checkpoint-7").rmdir()
    assert rows("out/x")["status"]["ran"] == "ended without a result"


def test_a_run_that_is_going_has_the_lock(location: Path) -> None:
    out = run(location, steps=6, finished=False)
    with open(out / "xpc_run.json", "a", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = rows("out/x")
    assert found["status"]["ran"] == "going"
    assert not found["steps"]["differs"]
    assert rows("out/x")["status"]["ran"] == "ended without a result"


def test_a_run_before_its_first_log_event(location: Path) -> None:
    out = run(location, finished=False)
    (out / "metrics.jsonl").write_text("")
    (out / "measured.jsonl").unlink()
    found = rows("out/x")
    assert found["steps"]["ran"] == "0"
    assert "loss" not in found


def test_restarts_are_rows_and_marks(location: Path) -> None:
    run(location, starts=(0, 4, 6))
    assert "| Machine: start 3 | " in report(parse(["out/x", "x.bundle", "--format", "markdown"]))[0]
    run(location, starts=(0, 4))
    found = rows("out/x", "--html", "r.html")
    assert found["start 2"]["ran"] == "2026-11-26T21:00:00Z, from step 4"
    assert found[""]["restarts"] == [4.0]
    assert found[""]["measured"]["seconds"] == {"load": 20.0, "train": 32.0, "save": 4.0}
    assert (location / "r.html").read_text().count('class="restart"') == 3
    assert found["saves"]["ran"] == "4 checkpoints, 2.0 GiB, 4.0 s"


def test_a_bundle_that_has_not_run_has_its_plan(location: Path) -> None:
    found = rows("x.bundle")
    assert found["status"]["ran"] == "has not run yet"
    assert found["steps"]["planned"] == "10"
    run(location)
    assert rows("x.bundle")["status"]["ran"] == "finished"


def test_a_bundle_elsewhere_finds_its_model_below_the_data_root(
    location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(location, {f"models/tiny/{name}": data for name, data in LOCAL_MODEL.items()})
    put(location, {"y.xp": LOCAL})
    assert main(["compile", "y.xp", "-o", "away/y.bundle"]) == 0
    run(location / "away", "y")
    text, _ = report(parse(["away/out/y"]))
    assert "; there is no plan, because the spec of its bundle does not compile here\n" in text
    assert "nothing differs" not in text
    (note,) = rows("away/out/y")[""]["notes"]
    assert "`models/tiny/config.json` is not there" in note
    assert "; XPC_DATA_ROOT names the folder" in note
    monkeypatch.setenv("XPC_DATA_ROOT", str(location))
    assert rows("away/out/y")[""]["notes"] == []
    assert "there is no plan" not in report(parse(["away/out/y"]))[0]


def test_a_bundle_is_found_by_its_digest_alone(location: Path) -> None:
    out = run(location)
    (location / "x.bundle").rename(location / "renamed.bundle")
    assert rows("out/x")[""]["bundle"] == str(location / "renamed.bundle")
    (location / "elsewhere").mkdir()
    (location / "renamed.bundle").rename(location / "elsewhere" / "y")
    found = rows("out/x")
    assert found[""]["notes"] == ["the bundle of this run was not found: name it with --bundle DIR"]
    assert found["learning_rate"]["ran"]
    assert rows("out/x", "--bundle", "elsewhere/y")["optimizer.lr"]["ran"]
    marker = json.loads((out / "summary.json").read_text()) | {"bundle": "sha256:0"}
    put(out, {"summary.json": json.dumps(marker)})
    assert "used another bundle" in rows("out/x", "--bundle", "elsewhere/y")[""]["notes"][0]


def test_several_runs_are_columns_and_their_specs_are_compared(location: Path) -> None:
    compiled(location, "y", SPEC.replace("lr=1e-5", "lr=3e-5"))
    run(location)
    run(location, "y", steps=8, finished=False)
    text, status = report(parse(["out/x", "out/y", "--html", "r.html", "--format", "markdown"]))
    assert status == 0
    assert "| Outcome: steps | 10 | 8 |" in text
    assert "\n\nbest loss: x, 0.4 at step 10 (not finished: y)\n\n" in text
    assert "## Spec of y, compared with x" in text
    assert "optimizer.lr  1e-05 -&gt; 3e-05" in text
    page = (location / "r.html").read_text()
    assert page.count("<svg") == 3
    assert page.count('stroke="#0072b2"') == page.count('stroke="#d55e00"') == 3
    assert "best loss: x, 0.4 at step 10" in page
    found = json.loads(report(parse(["out/x", "out/y", "--json"]))[0])
    jsonschema.validate(found, SCHEMA)
    assert found["runs"][0]["diff"] is None
    (change,) = [one for one in found["runs"][1]["diff"]["groups"][0]["settings"] if one["name"] == "optimizer.lr"]
    assert (change["before"], change["after"]) == (1e-05, 3e-05)


def test_curves_of_several_runs_mark_evaluations_and_restarts(location: Path) -> None:
    compiled(location, "y", SPEC)
    run(location)
    out = run(location, "y", starts=(0, 4))
    put(out, {"metrics.jsonl": lines([*events(), {"step": 5, "eval_loss": 2.0}, {"step": 10, "eval_loss": 1.0}])})
    assert report(parse(["out/x", "out/y", "--html", "r.html"]))[1] == 0
    page = (location / "r.html").read_text()
    assert page.count('class="eval" stroke="#d55e00"') == 1
    assert page.count('class="restart" stroke="#d55e00"') == page.count('class="restart"') == 3


def test_runs_of_other_rows_or_learned_tokens_have_no_best_run(location: Path) -> None:
    run(location)
    for change in ("data(unique)\n", "method sft(assistant_only)\n"):
        compiled(location, "y", SPEC + change)
        run(location, "y")
        assert "best loss" not in report(parse(["out/x", "out/y"]))[0]


def test_each_reward_function_of_several_runs_has_a_panel(location: Path) -> None:
    compiled(location, "y", SPEC)
    means = ("rewards/format/mean", "rewards/accuracy/mean")
    for name in ("x", "y"):
        out = run(location, name)
        put(out, {"metrics.jsonl": lines([{**one, **dict.fromkeys(means, 0.5)} for one in events()])})
    assert report(parse(["out/x", "out/y", "--html", "r.html"]))[1] == 0
    page = (location / "r.html").read_text()
    assert page.index("reward accuracy by step") < page.index("reward format by step") < page.index("loss by step")
    assert rows("out/x")["rewards/format/mean"]["ran"] == "0.5 -> 0.5, best 0.5 at step 1"


def test_files_have_the_names_of_the_spec_and_not_of_their_copies(location: Path) -> None:
    put(location, {"mine/judge.py": "def liked(completions, **columns):\n    return [0.0 for _ in completions]\n"})
    method = 'method grpo(rewards=[file("mine/judge.py:liked", weight=0.5)], generations=4)\n'
    compiled(
        location,
        "y",
        SPEC.replace('"rows.jsonl" for 2 epochs', "deepmath-103k for 8 steps").replace(" seq=1024", "") + method,
    )
    found = rows("y.bundle")["method.rewards"]
    assert found["asked"] == found["planned"] == '[file("mine/judge.py:liked", weight=0.5)]'


def test_a_sweep_is_its_members(location: Path) -> None:
    put(location, {"s.xp": SPEC.replace('save "out"', "sweep { lr = [1e-5, 3e-5] }")})
    assert main(["compile", "s.xp", "-o", "s.bundle"]) == 0
    found = json.loads(report(parse(["s.bundle", "--json"]))[0])
    jsonschema.validate(found, SCHEMA)
    assert len(found["runs"]) == 2
    names = [one["name"] for one in found["runs"][1]["diff"]["groups"][0]["settings"]]
    assert "optimizer.lr" in names
    overlaid = report(parse(["s.bundle"]))[0]
    assert overlaid.count("has not run yet") == 4
    assert len(re.findall(r"Outcome: steps +planned: 10 +planned: 10\n", overlaid)) == 1
    assert "Versions:" not in overlaid


@pytest.mark.slow
def test_members_have_the_order_of_the_spec_and_are_found_in_their_output_folder(location: Path) -> None:
    put(location, {"s.xp": SPEC.replace('save "out"', 'save "out/s"\nsweep { lr = [5e-4, 1e-4, 1e-3] }')})
    assert main(["compile", "s.xp", "-o", "s.bundle"]) == 0
    names = ["lr=0.0005", "lr=0.0001", "lr=0.001"]
    for name in names:
        marker = {"bundle": digest_of(f"s.bundle/members/{name}"), "settings": {}}
        put(location / "out" / "s" / name, {"xpc_run.json": lines([marker]), "metrics.jsonl": lines(events())})
    (location / "out" / "s" / "link").symlink_to(location / "out" / "s" / names[0])
    for folder in ("s.bundle", "out/s"):
        found = json.loads(report(parse([folder, "--json"]))[0])
        assert [one["name"] for one in found["runs"]] == names
        assert all(one["step"] == 10 and one["bundle"] for one in found["runs"])
    with pytest.raises(UsageError, match="--bundle names the bundle of one run"):
        report(parse(["out/s", "--bundle", "s.bundle"]))


def test_rewards_come_before_a_loss_that_says_nothing(location: Path) -> None:
    out = run(location)
    logged = [{**one, "reward": one["step"] / 10, "loss": 0.0} for one in events()]
    put(out, {"metrics.jsonl": lines(logged)})
    bundle = location / "x.bundle" / "trainer_args.json"
    stated = json.loads(bundle.read_text())
    stated["method"]["rewarded"] = True
    bundle.write_text(json.dumps(stated))
    found = rows("out/x", "--bundle", "x.bundle")
    assert found["reward"]["ran"] == "0.1 -> 1, best 1 at step 10"
    assert "loss" not in found


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "nowhere is not a folder"),
        (["."], "contains no run"),
        (["out/x", "out/y", "--bundle", "x.bundle"], "--bundle names the bundle of one run"),
        (["out/x", "--html", "rows.jsonl/r.html"], "cannot be written"),
        (["out/x", "--bundle", "out/x"], "cannot be read"),
    ],
)
def test_wrong_use_is_one_sentence(location: Path, words: list[str], sentence: str) -> None:
    run(location)
    with pytest.raises(UsageError, match=sentence):
        report(parse(words))


@pytest.mark.parametrize(
    ("words", "title", "loss"),
    [
        ((), "x", r"^  loss +4 -> 0\.4, best 0\.4 at step 10$"),
        (("--format", "markdown"), "# x", r"^\| loss \|  \|  \| 4 -&gt; 0\.4, best 0\.4 at step 10 \|  \|$"),
    ],
)
def test_the_command_prints_text_or_markdown(
    location: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], title: str, loss: str
) -> None:
    run(location)
    assert main(["report", "out/x", *words]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{title}\n\nfinished at step 10 after 20.0 s of training; not as planned: ")
    assert re.search(loss, out, re.M)
    # "messages" is a column of the training rows; it would be in the report if the report showed a row
    assert ROWS
    assert "messages" not in out


def test_a_page_alone_is_one_line(location: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(location)
    assert main(["report", "out/x", "--html", "r.html"]) == 0
    assert capsys.readouterr().out == "wrote r.html\n"


def test_the_text_of_several_runs_is_not_escaped(location: Path) -> None:
    compiled(location, "y", SPEC.replace("lr=1e-5", "lr=3e-5"))
    run(location)
    out = run(location, "y")
    put(out, {"metrics.jsonl": lines([{**one, "eval_loss": 2.0} for one in events()])})
    text = report(parse(["out/x", "out/y"]))[0]
    assert re.search(r"^Outcome: steps +10 +10$", text, re.M)
    assert "Spec of y, compared with x" in text
    assert "optimizer.lr  1e-05 -> 3e-05" in text
    assert "eval_loss" in text


def test_the_text_of_several_runs_has_aligned_curves_and_only_rows_that_differ(location: Path) -> None:
    compiled(location, "y", SPEC.replace("lr=1e-5", "lr=3e-5"))
    run(location)
    run(location, "y", steps=8, finished=False)
    text = report(parse(["out/x", "out/y"]))[0]
    head = next(line for line in text.split("\n") if re.match(r" +x +y$", line))
    loss = next(line for line in text.split("\n") if line.startswith("Outcome: loss"))
    assert len(re.match(r"Outcome: loss +4 -> .*? at step \d+ +", loss).group()) == head.index("y")
    own = text[text.index("\ny\n\nended without a result") :]
    assert re.search(r"^  steps +.* differs: the run ended before its last step$", own, re.M)
    assert "optimizer.lr" not in own
    assert "To see all values of a run, report one folder" in own


def test_evaluation_rows_are_named_by_their_files(location: Path) -> None:
    turns = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    put(location, {f"{name}.jsonl": lines([{"messages": turns}]) for name in ("held", "other")})
    compiled(location, "evaluated", SPEC + 'eval(data=["held.jsonl", "other.jsonl"], every=5)\n')
    assert rows("evaluated.bundle")["eval.data"]["planned"] == "held.jsonl, other.jsonl"
