"""`xpc plan` predicts measured runs, plans specs, and plans a spec for other hardware. For some runs it says that the
memory is `unknown`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import statistics
import subprocess
import sys

import accuracy
import jsonschema
import points
import pytest
import ranges
import utilisation

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.lower.disk import _checkpoints, _weight
from xpc.compiler.pipeline import check_text
from xpc.compiler.plan import GIB, coefficients
from xpc.compiler.plan.experiment import Assumptions, plan
from xpc.compiler.plan.experiment import _saves as saved
from xpc.compiler.plan.from_spec import load_of
from xpc.compiler.plan.load import Adapters
from xpc.compiler.plan.memory import _tied, memory
from xpc.compiler.plan.time import range_of, table
from xpc.compiler.registry.linear_layers import linear_layers
from xpc.compiler.tuning import command
from xpc.grammar.record import evolve

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SPEC = """xpc 1
train {model} on infinity-instruct:0625 for 1 epochs
hardware {hardware}
{more}
batch gbs=64 {batch}
save "out"
"""

WRITTEN = {
    "model": "qwen2.5-7b-instruct", "hardware": "8 x h100-80gb", "more": "zero3", "batch": "micro=2 seq=2048"
}  # fmt: skip


@pytest.fixture
def planned(tmp_path, capsys):
    """Run `xpc plan` on a spec; returns its output, its exit status, and its standard error."""

    def go(*arguments: str, **written: str):
        path = tmp_path / "run.xp"
        path.write_text(SPEC.format(**{**WRITTEN, **written}))
        text, status = command.run(command.parse([str(path), *arguments]))
        return text, status, capsys.readouterr().err

    return go


def test_exact_peaks_of_hugging_face_runs_are_within_the_bounds():
    found = [abs(one) for one in accuracy.errors([row for row in accuracy.kept() if accuracy.exact(row)])]
    assert len(found) > 50
    assert statistics.mean(found) <= 0.05
    assert max(found) <= 0.15


@pytest.mark.parametrize(("hardware", "more", "micro", "size"), [
    ("8 x h100-80gb", "ddp", 8, 8), ("8 x h100-80gb", "ddp", 4, 12), ("8 x h100-80gb", "zero2", 8, 6),
    ("8 x h100-80gb", "fsdp1", 8, 6), ("8 x h100-80gb", "ddp lora(rank=8)", 8, 0),
    ("8 x h100-80gb", "ddp freeze(except_last=2)", 8, 0),
    ("1 x h100-80gb", "optimizer galore_adamw_layerwise(targets=all-linear)", 64, 12),
])  # fmt: skip
def test_the_gradients_of_a_tied_table(hardware, more, micro, size):
    """`size` is the number of bytes for each number of the table: two gradients and their sum, which under DDP becomes
    the stored gradient if none is stored yet. The file test_losses.py measures how many tensors exist.
    """
    written = {"model": "qwen2.5-0.5b", "hardware": hardware, "more": more.replace(" ", "\n", more.startswith("ddp "))}
    text = SPEC.format(**written, batch=f"micro={micro} seq=512")
    load = load_of(check_text(text.encode(), "run.xp", Workspace(ROOT)).spec)
    assert _tied(load) == size * load.facts.vocab * load.facts.hidden


@pytest.mark.parametrize(("more", "size"), [
    ("zero2\nprecision bf16", 2), ("zero2\nprecision fp16", 2), ("ddp\nprecision fp16", 4),
    ("ddp\nmodel(dtype=bf16)\nlora(rank=8)", 4), ("fsdp1\nmodel(dtype=bf16)", 2),
])  # fmt: skip
def test_a_saved_weight_has_the_bytes_of_its_dtype(more, size):
    text = SPEC.format(model="qwen2.5-0.5b", hardware="8 x h100-80gb", more=more, batch="micro=8 seq=512")
    assert _weight(check_text(text.encode(), "run.xp", Workspace(ROOT)).spec) == size


def test_the_verdicts_of_measured_runs():
    rows = accuracy.kept()
    died, ran = [row for row in rows if row["oom"]], [row for row in rows if not row["oom"]]
    assert len(died) >= 40
    assert not [row for row in died if accuracy.judged(row) == "fits"]
    assert sum(accuracy.judged(row) == "no" for row in ran) <= 0.03 * len(ran)
    low = [row for row in ran if (row["measured_peak_gib"] or 1e9) < 0.75 * row["capacity_gib"]]
    assert sum(accuracy.judged(row) in ("tight", "no") for row in low) <= 0.1 * len(low)


def test_the_fused_head_is_within_six_hundredths():
    """The predictions for TRL's fused loss head are within 6 % of the measurements. Measurements of the loss
    `chunked_nll` are left out, because no stack has this loss.
    """
    seen = 0
    for row in points.rows("fused_head_points.jsonl"):
        if row.get("loss") == "chunked_nll":
            continue
        load = accuracy.head_load(row, row.get("seq", 2048))
        if load is None or accuracy.unknown(load):
            continue
        seen += 1
        assert abs(memory(load).peak / GIB / row["peak_gib"] - 1) <= 0.06, row
    assert seen == 6


def test_speeds_are_predicted_from_other_models():
    off = sorted(abs(value / row["tok_s_gpu"] - 1) for row, value in utilisation.excluded())
    assert len(off) > 100
    assert statistics.mean(off) <= 0.10
    assert off[int(0.9 * len(off))] <= 0.25
    low, high = range_of(())
    assert sum(low <= value / row["tok_s_gpu"] <= high for row, value in utilisation.excluded()) >= 0.9 * len(off)
    assert high - low <= 2 * 0.2


def test_the_tables_and_the_page_are_fresh():
    assert table() == ranges.table(), "python tests/plan/ranges.py"
    with open(os.path.join(ROOT, "docs", "plan-accuracy.md"), encoding="utf-8") as handle:
        assert handle.read() == accuracy.page(), "run: python tests/plan/accuracy.py docs/plan-accuracy.md"
    with open(os.path.join(ROOT, "docs", "plan-accuracy.svg"), encoding="utf-8") as handle:
        assert handle.read() == accuracy.picture()


def test_the_seed_recipe_takes_133_hours_and_its_micro_batch_fits():
    path = os.path.join(ROOT, "specs", "qwen2.5-3b-infinity-8xv100.xp")
    text, status = command.run(command.parse([path, "--tokens", "600", "--format", "json"]))
    found = json.loads(text)
    assert (status, found["verdict"], found["steps"]) == (0, "fits", 3750)
    assert abs(found["hours"]["value"] - 133) < 2
    assert found["hours"]["low"] < 133 < found["hours"]["high"]


def test_a_family_without_coefficients_is_unknown(planned):
    known = set(coefficients.families())
    text, status, _ = planned("--format", "json", model="smollm3-3b")
    found = json.loads(text)
    assert status == 0
    assert (found["verdict"] == "unknown") == ("smollm3" not in known)
    assert (found["per_gpu"] is None) == ("smollm3" not in known)
    load = evolve(points.load(accuracy.kept()[0]), family="not-a-family")
    assert "make coefficients" in accuracy.unknown(load)


def test_windows_shorten_the_longest_row_of_gemma(planned):
    """With sliding windows, long rows need less memory: TRL measured 107,520 tokens as the longest row of gemma-3-1b in
    79 GiB (fused_head_points.jsonl).
    """
    row = next(one for one in points.rows("fused_head_points.jsonl") if one.get("trainer") == "SFT nll")
    longest = memory(accuracy.head_load(row, row["max_seq_79gib"]))
    assert abs(longest.peak / GIB / 79 - 1) <= 0.1
    assert longest.components["attention masks"] > 0.3 * longest.peak
    written = {"model": "gemma-3-1b-it", "hardware": "1 x h100-80gb", "more": "ddp\nmodel(dtype=bf16)"}
    text, _, _ = planned("--format", "json", **written, batch="micro=1 seq=131072")
    assert json.loads(text)["verdict"] == "no"


@pytest.mark.parametrize(("hardware", "length", "batch", "more", "rows", "steps", "sequences"), [
    ("1 x h100-80gb", "3 epochs", "gbs=16 micro=8", "", 40, 9, 120),  # 16, 16 and 8 rows in an epoch
    ("1 x h100-80gb", "3 epochs", "gbs=32 micro=8", "", 40, 6, 120),
    ("1 x h100-80gb", "3 epochs", "gbs=64 micro=8", "", 40, 3, 120),
    ("1 x h100-80gb", "3 epochs", "gbs=8 micro=8", "", 40, 15, 120),
    ("1 x h100-80gb", "1.5 epochs", "gbs=16 micro=8", "", 40, 5, 72),
    ("1 x h100-80gb", "4 steps", "gbs=16 micro=8", "", 40, 4, 56),
    ("2 x h100-80gb", "3 epochs", "gbs=16 micro=8", "", 41, 9, 144),  # each epoch is filled up to 48 rows
    ("1 x h100-80gb", "3 epochs", "gbs=32 micro=16", "extra trl {\n  dataloader_drop_last = true\n}", 40, 3, 96),
])  # fmt: skip
def test_time_and_tokens_count_the_sequences_that_are_trained(hardware, length, batch, more, rows, steps, sequences):
    """The last step of an epoch trains on the rows that are left, so it takes less time than the other steps."""
    written = {**WRITTEN, "model": "qwen2.5-0.5b-instruct", "hardware": hardware, "batch": "seq=1024", "more": more}
    text = SPEC.format(**written).replace("gbs=64", batch).replace("1 epochs", length)
    checked = check_text(text.encode(), "run.xp", Workspace(ROOT))
    assert checked.spec is not None, checked.problems
    found = plan(checked.spec, Assumptions(rows=rows))
    assert (found.steps, found.sequences, found.tokens) == (steps, sequences, sequences * 1024)
    seconds = found.hours.value * found.speed.tokens * checked.spec.replicas * 3600
    assert seconds == pytest.approx(sequences * 1024)


def test_hours_include_evaluations(planned):
    """The forward pass takes a third of the time of a training row. An evaluation row needs only a forward pass. So an
    evaluation of 64 rows after every step of 64 rows adds a third to the hours.
    """
    lines = "zero3\nmemory(checkpointing=false)\ndata(holdout=64)\neval(every={})"
    held = [planned("--format", "json", more=lines.format(every)) for every in ("never", "1")]
    without, each = (json.loads(text) for text, _, _ in held)
    assert without["evaluations"] == 0
    assert each["evaluations"] == each["steps"]
    assert each["evaluating_share"] == pytest.approx(0.25)
    assert each["hours"]["value"] == pytest.approx(without["hours"]["value"] * 4 / 3, abs=0.001)
    shown = planned(more="zero3\ndata(holdout=64)\neval(every=1)")[0]
    assert f"evaluations: {each['steps']:,} times 64 rows" in shown


def test_json_keeps_its_contract(planned):
    with open(os.path.join(ROOT, "docs", "plan.schema.json"), encoding="utf-8") as handle:
        schema = json.load(handle)
    for arguments in ((), ("--on", "8 x a100-40gb", "--on", "16 x h100-80gb")):
        text, status, _ = planned("--format", "json", *arguments)
        found = json.loads(text)
        jsonschema.validate(found, schema)
        assert status == 0
    one = found[0]["per_gpu"]
    assert sum(one["components"].values()) == pytest.approx(one["peak_allocated_bytes"]["value"], rel=1e-6)
    assert max(one["phases"].values()) == pytest.approx(one["peak_allocated_bytes"]["value"], rel=1e-6)


def test_other_hardware_is_planned_next_to_the_stated(planned):
    both = ("--on", "8 x a100-40gb", "--on", "16 x h100-80gb")
    text, status, _ = planned(*both, "--rows", "64000", "--format", "json", more="zero3\nmemory(checkpointing)")
    small, large = json.loads(text)
    assert (small["gpus"], large["gpus"], status) == (8, 16, 0)
    assert small["capacity_bytes"] < large["capacity_bytes"]
    assert small["per_gpu"]["peak_allocated_bytes"]["value"] > large["per_gpu"]["peak_allocated_bytes"]["value"]
    assert small["steps"] == large["steps"] == 1000
    assert small["hours"]["value"] > large["hours"]["value"]


def test_a_gpu_alone_is_one_as_in_a_spec(planned):
    facts = json.loads(planned("--on", "h200", "--format", "json", more="zero3", batch="micro=1 seq=512")[0])
    assert (facts["gpus"], facts["gpu"]) == (1, "h200")


@pytest.mark.parametrize(
    ("every", "steps", "saves"),
    [("4", 10, 3), ("5", 10, 2), ("30", 10, 1), ("30%", 10, 4), ("1%", 10, 10), ("epoch", 10, 1), ("epoch", 30_000, 3)],
)
def test_the_last_step_is_saved_too(every, steps, saves):
    """transformers saves a checkpoint after the last step (DefaultFlowCallback), so the disk space includes this
    checkpoint.
    """
    text = SPEC.format(**WRITTEN).replace("for 1 epochs", f"for {steps} steps")
    text = text.replace('save "out"', f'save "out" every={every}')
    spec = check_text(text.encode(), "run.xp", Workspace(ROOT)).spec
    assert saved(spec, steps) == saves
    assert _checkpoints(spec) == saves
    more = check_text(text.replace(f"every={every}", f"every={every} keep=10").encode(), "run.xp", Workspace(ROOT)).spec
    assert _checkpoints(more) == saves


@pytest.mark.parametrize(("more", "kept"), [("", 3), ("eval(every=4, patience=2)\ndata(holdout=5%)", 4)])
def test_best_checkpoint_is_counted_besides_the_kept_ones(more, kept):
    """The best checkpoint is kept in addition to the newest ones (runtime/features/saving/rotation.py), so the plan
    counts its disk space, too.
    """
    text = (
        SPEC.format(**WRITTEN)
        .replace("for 1 epochs", "for 80 steps")
        .replace('save "out"', 'save "out" every=4 keep=2')
    )
    spec = check_text(f"{text}{more}\n".encode(), "run.xp", Workspace(ROOT)).spec
    assert _checkpoints(spec) == kept


@pytest.mark.parametrize("words", ["8 h100", "0 x h100-80gb", "x", ""])
def test_hardware_that_is_none_is_refused(planned, words):
    with pytest.raises(UsageError, match="names no GPUs"):
        planned("--on", words)


def test_conditions_decide_the_status(planned):
    assert planned("--rows", "64000", "--fail-if", "gpu_hours > 100000")[1] == 0
    text, status, reported = planned("--rows", "64000", "--fail-if", "gpu_hours > 0.001")
    assert status == 1
    assert "gpu_hours is" in reported
    assert text
    assert planned("--fail-if", "verdict == fits")[1] == 1
    for wrong in ("gpu_hours > fits", "verdict > fits", "price > 3", "hours"):
        with pytest.raises(UsageError):
            planned("--fail-if", wrong)


@pytest.mark.parametrize("name", ["gpu_hours", "hours", "steps", "peak_gib", "share", "tokens_per_step"])
def test_every_number_of_a_plan_can_be_a_condition(planned, name):
    assert planned("--rows", "64000", "--fail-if", f"{name} < 0")[1] == 0
    _, status, reported = planned("--rows", "64000", "--fail-if", f"{name} > 0")
    assert status == 1
    assert f"{name} is not known" not in reported


def test_what_is_not_known_fails_a_condition(planned):
    _, status, reported = planned("--fail-if", "hours > 5", more="zero3\nbatch packing(isolate=mask)")
    assert status == 1
    assert "hours is not known" in reported


def test_a_spec_that_passes_the_card_is_planned_and_says_no(planned):
    text, status, _ = planned("--format", "json", hardware="1 x a100-40gb", more="ddp")
    found = json.loads(text)
    assert (status, found["verdict"]) == (0, "no")
    assert found["per_gpu"]["peak_allocated_bytes"]["low"] > found["capacity_bytes"]


def test_a_spec_that_does_not_compile_is_not_planned(planned):
    text, status, reported = planned(more="zero9")
    assert (text, status) == ("", 1)
    assert "XP1" in reported


def test_names_do_not_reach_the_terminal_as_they_are(planned, tmp_path, capsys):
    path = tmp_path / "a\x1b[2Jb.xp"
    path.write_text(SPEC.format(**WRITTEN))
    for form in ("text", "markdown", "json"):
        words = [str(path), "--format", form, "--fail-if", "verdict != no"]
        text, status = command.run(command.parse(words))
        assert status == 1
        assert "\x1b" not in text + capsys.readouterr().err


SWEPT = """sweep {
  optimizer.weight_decay = [0.0, 0.1]
  optimizer.lr = [0.0000012345, 0.0000056789]
  optimizer.betas = [[0.9, 0.95], [0.9, 0.999]]
  memory.liger = [true, false]
  schedule.warmup = [10%]
  optimizer.eps = [0.00000001, 0.0000001]
}"""


def test_long_member_name_continues_on_the_next_line(planned):
    text, status, _ = planned("--rows", "64000", more=f"zero3\n{SWEPT}")
    names = [
        one["spec"] for one in json.loads(planned("--rows", "64000", "--format", "json", more=f"zero3\n{SWEPT}")[0])
    ]
    assert status == 0
    assert len(names) == 32
    assert min(map(len, names)) > 80
    for name in names:
        assert f"{name}:" in text.replace("\n  _", "_")
    assert not [line for line in text.splitlines() if line.startswith(("run-", "  _")) and len(line) > 80]


def test_specs_may_follow_options(planned, tmp_path):
    planned()
    one = str(tmp_path / "run.xp")
    text, status, _ = planned("--rows", "64000", "--compare", one)
    assert status == 0
    _, _, *runs, blank, total = text.splitlines()
    assert len(runs) == 2
    assert (blank, total.partition(";")[0]) == ("", "2 plans: 2 fits")


@pytest.mark.parametrize("words", ["0", "-1", "x", "1e9", "1.5", "9" * 19, "\u0663"])
def test_rows_that_are_no_number_are_refused(planned, words, capsys):
    with pytest.raises(SystemExit, match="2"):
        planned(f"--rows={words}")
    assert "whole number from 1 on" in capsys.readouterr().err


def test_markdown_has_a_row_for_each(planned):
    text, _, _ = planned("--compare", "--on", "8 x h100-80gb", "--on", "8 x a100-80gb")
    assert len(text.strip().split("\n")) == 4
    assert "GiB" in text.split("\n")[0]


def test_less_memory_where_less_is_kept():
    base = points.load(next(row for row in accuracy.kept() if row["group"] == "fms_liger" and not row["lora_r"]))

    def peak(**changes: object) -> float:
        found = memory(evolve(base, **changes))
        return found.peak

    whole = peak()
    assert peak(checkpointing=False) > whole
    assert peak(loss="kept", micro=8) > peak(loss="fused", micro=8)
    assert peak(engine="deepspeed", stage=3, world=8, shard=8) < peak(engine="deepspeed", stage=2, world=8, shard=8)
    assert peak(offload=1) < whole
    assert peak(accumulates=True) >= whole
    assert peak(attention="eager", checkpointing=False) > peak(checkpointing=False)
    tuned = Adapters("all", 16, 4e7, 4, linear_layers(base.facts))
    assert peak(adapters=tuned, trained=0.0, amp=True) < whole
    more = {"trained": 0.0, "amp": True, "loss": "fused", "micro": 16}
    assert peak(adapters=evolve(tuned, dropout=0.1), **more) > peak(adapters=tuned, **more)


def test_planning_loads_no_training_library():
    script = (
        "import sys; from xpc.compiler.cli import main; main(['plan', 'specs/sentence.xp']); "
        "sys.exit(bool({'torch', 'numpy', 'transformers', 'jsonschema'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "memory of one GPU" in done.stdout


def test_the_sessions_of_the_page_are_what_the_tool_prints(monkeypatch):
    monkeypatch.chdir(ROOT)
    with open(os.path.join("docs", "plan.md"), encoding="utf-8") as handle:
        sessions = re.findall(r"^```\n\$ xpc plan ([^\n|]*)\n(.*?)^```", handle.read(), re.S | re.M)
    assert len(sessions) == 2
    for words, shown in sessions:
        assert command.run(command.parse(shlex.split(words)))[0] == shown
