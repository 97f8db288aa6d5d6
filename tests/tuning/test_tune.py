"""`xpc tune` writes probes: short runs that train the same as the spec, with other settings that affect the speed. The
command reads the measurements of the probes, shows the changes to the spec as a diff, and stores the measurements for
`xpc plan`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from case_support import spec
from compile_support import checked

from xpc.compiler import cli
from xpc.compiler.files.inputs import UsageError
from xpc.compiler.plan import FITS
from xpc.compiler.plan.changed import changed
from xpc.compiler.review.finished_run import DECISIVE, decisive_digest
from xpc.compiler.rules import check
from xpc.compiler.tuning import command, finished, tune
from xpc.compiler.tuning.probes import candidates
from xpc.grammar.diagnostic import ERROR

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GPU = """xpc 1

train qwen2.5-0.5b on infinity-instruct:0625 for 1 epochs

hardware 8 x h100-80gb
zero3

batch {
  gbs = 128
  micro = 2
  seq = 2048
}

memory {
  checkpointing  # as ever
}

save "out/run"
track wandb(project = "p")
launch slurm(partition = "gpu")
"""
CPU = """xpc 1

train "model" on "rows.jsonl" for 2 epochs

hardware 1 x cpu

batch {
  gbs = 8
  micro = 1
  seq = 64
}

save "out/run"
"""
SHAPE = ("per_device_train_batch_size", "gradient_accumulation_steps", "per_device_eval_batch_size", "output_dir",
         "activation_checkpointing", "activation_checkpointing_kwargs", "deepspeed")  # fmt: skip
"""Settings that may differ between two probes of the same spec."""


def tuned(*words: str) -> tuple[str, int]:
    return tune.run(tune.parse(words))


def payload(folder: Path, number: int) -> dict[str, Any]:
    return dict(json.loads((folder / f"{number}.bundle" / "trainer_args.json").read_text()))


def finish(folder: Path, number: int, seconds: float, peak: int | None) -> None:
    """Write the files that a probe's run leaves when it has finished. Each step of the run takes `seconds` seconds."""
    bundle, out = folder / f"{number}.bundle", folder / f"{number}.out"
    out.mkdir()
    lines = [
        {"step": step, "loss": 2.0 / step, "seconds": 9.0 + step * seconds, "tokens": 1000.0 * step}
        for step in range(1, 21)
    ]
    (out / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def read(name: str) -> bytes | None:
        return (bundle / name).read_bytes() if (bundle / name).exists() else None

    (out / "summary.json").write_text(json.dumps({"bundle": decisive_digest(read), "peak_allocated_bytes": peak}))


@pytest.mark.parametrize("name", DECISIVE)
def test_the_digest_of_a_bundle_depends_on_each_decisive_file(name: str) -> None:
    files = dict.fromkeys(DECISIVE, b"one")
    assert decisive_digest({**files, name: b"two"}.get) != decisive_digest(files.get)
    assert decisive_digest({one: data for one, data in files.items() if one != name}.get) != decisive_digest(files.get)


@pytest.fixture
def probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.xp").write_text(GPU)
    text, status = tuned("run.xp")
    assert status == 0, text
    return tmp_path / "run.tune"


@pytest.mark.parametrize("text", [
    spec(train="qwen2.5-7b on alpaca for 1 epochs", hardware="2 x h100-80gb", batch="gbs=128 micro=2 seq=2048"),
    spec("vera", "model(dtype=fp16)", strategy="zero3"),
], ids=["many changes do not fit", "XP326 refuses the other strategies"])  # fmt: skip
def test_probes_fit_in_memory_and_are_legal(text: str) -> None:
    made = checked(text).spec
    found = [one for one in candidates(made) if one.settings]
    assert len(found) >= 2
    for one in found:
        assert one.plan.verdict == FITS, one.settings
        assert not [each for each in check(changed(made, one.settings)) if each.severity == ERROR], one.settings


@pytest.mark.slow
def test_probes_differ_in_what_computes_the_same_alone(probes: Path) -> None:
    plans = [payload(probes, number) for number in range(1, 5)]
    assert not (probes / "5.bundle").exists()
    first = {name: value for name, value in plans[0]["arguments"].items() if name not in SHAPE}
    assert first["max_steps"] == 20
    assert (first["save_strategy"], first["report_to"], first["logging_steps"]) == ("no", [], 1)
    assert plans[0]["run"]["micro"] == 2  # the unchanged spec
    seen = set()
    for one in plans:
        assert {name: value for name, value in one["arguments"].items() if name not in SHAPE} == first
        assert (one["run"]["gbs"], one["run"]["seq"], one["data"]) == (128, 2048, plans[0]["data"])
        assert one["run"]["micro"] * one["run"]["accumulation"] * 8 == 128
        seen.add((one["run"]["micro"], one["arguments"]["activation_checkpointing"], one["run"]["zero_stage"]))
    assert len(seen) == 4
    assert os.access(probes / "probe.sh", os.X_OK)
    # The spec.xp of a bundle compiles to the same numbers again.
    for number in range(1, 5):
        made = probes / f"{number}.bundle"
        assert cli.main(["compile", str(made / "spec.xp"), "-o", str(probes / "again"), "--force"]) == 0
        for name in DECISIVE:  # the run is named after the compiled file
            again = (probes / "again" / name).read_text().replace('"run_name": "spec"', '"run_name": "run"')
            assert (made / name).read_text() == again


def test_what_was_measured_is_read_and_offered_as_a_diff(probes: Path, tmp_path: Path) -> None:
    finish(probes, 1, 1.0, 20 * 2**30)
    finish(probes, 3, 0.5, 40 * 2**30)
    text, status = tuned("run.xp", "--read", "run.tune", "--calibration", "team.json")
    assert status == 0
    assert text.count("did not finish") == 2
    assert "the losses of all probes agree to 0" in text
    assert "100% faster than the unchanged run" in text
    diff = text[text.index("--- run.xp") :]
    patched = subprocess.run(["patch", "-s", "run.xp"], input=diff, text=True, cwd=tmp_path, check=False)
    assert patched.returncode == 0, diff
    assert "# as ever" in (tmp_path / "run.xp").read_text()
    # The changed spec itself was measured, so the plan states the measured values: 0.5 seconds per step and 40 GiB.
    words = ("run.xp", "--calibration", "team.json", "--format", "json")
    found = json.loads(command.run(command.parse(words))[0])
    assert found["per_gpu"]["peak_allocated_bytes"] == dict.fromkeys(("value", "low", "high"), 40 * 2**30)
    assert found["hours"]["value"] == pytest.approx(found["steps"] * 0.5 / 3600, rel=1e-3)
    assert found["calibration"].startswith("1 measurement of this run (probe 3 of run")
    # A similar run was not measured itself. Its planned speed is multiplied by the ratio measured / planned of the two
    # measured runs.
    (tmp_path / "other.xp").write_text(GPU.replace("micro = 2", "micro = 4"))
    plain, corrected = (
        json.loads(command.run(command.parse(("other.xp", *more, "--format", "json")))[0])
        for more in ((), ("--calibration", "team.json"))
    )
    assert plain["calibration"] is None
    assert corrected["calibration"].startswith("2 measurements of similar runs")
    before, after = (one["tokens_per_second_per_gpu"] for one in (plain, corrected))
    readings = json.loads((tmp_path / "team.json").read_text())["readings"]
    paces = [one["tokens_per_second"] / one["planned"]["tokens_per_second"] for one in readings]
    assert after / before == pytest.approx(sum(paces) / 2, rel=1e-2)
    text, _ = command.run(command.parse(("other.xp", "--calibration", "team.json")))
    assert "corrected by 2 measurements" in text


@pytest.mark.slow
def test_a_run_that_is_the_fastest_stays_and_one_of_another_spec_is_refused(probes: Path, tmp_path: Path) -> None:
    assert tuned("run.xp", "--read", "run.tune")[1] == 1  # no probe has finished
    for number, seconds in ((1, 0.5), (2, 0.7), (3, 0.501)):
        finish(probes, number, seconds, None)
    text, status = tuned("run.xp", "--read", "run.tune")
    assert (status, text.endswith("there is nothing to change\n")) == (0, True)
    (tmp_path / "run.xp").write_text(GPU.replace("seq = 2048", "seq = 1024"))
    with pytest.raises(UsageError, match="another spec"):
        tuned("run.xp", "--read", "run.tune")


@pytest.mark.parametrize("kind", ["a pipe", "a device"])
def test_metrics_without_an_end_are_not_read(kind: str, tmp_path: Path) -> None:
    if kind == "a pipe":
        os.mkfifo(tmp_path / "metrics.jsonl")
    else:
        (tmp_path / "metrics.jsonl").symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="cannot be read"):
        finished.events(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("{}", "not a calibration file"),
        ('{"version": 1, "readings": [{}]}', "has a malformed measurement"),
        ("[", "not a calibration file"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_calibration_is_refused(probes: Path, tmp_path: Path, text: str | None, output: str) -> None:
    if text is not None:
        (tmp_path / "c.json").write_text(text)
    with pytest.raises(UsageError, match=output):
        command.run(command.parse(["run.xp", "--calibration", "c.json"]))


@pytest.mark.slow
def test_no_other_command_reads_the_file(probes: Path, tmp_path: Path) -> None:
    """Only tune and plan use the calibration file. check, compile, diff and verify open neither the file nor the module
    that reads it.
    """
    finish(probes, 1, 1.0, 20 * 2**30)
    tuned("run.xp", "--read", "run.tune", "--calibration", "calibration.json")
    (tmp_path / "other.xp").write_text(GPU.replace("micro = 2", "micro = 4"))
    script = (
        "import sys; opened = []; sys.addaudithook(lambda name, args: opened.append(str(args[0])) "
        "if name == 'open' else None); from xpc.compiler.cli import main; main(sys.argv[1:]); "
        "assert opened; print([one for one in opened if 'calibration' in one and one.endswith('.json')], "
        "'xpc.compiler.tuning.calibration_file' in sys.modules)"
    )
    lines = [
        ("check", "run.xp"), ("compile", "run.xp", "-o", "a.bundle"), ("diff", "run.xp", "other.xp"),
        ("verify", "a.bundle"),
    ]  # fmt: skip
    for words in lines:
        done = subprocess.run([sys.executable, "-c", script, *words], cwd=tmp_path, text=True, capture_output=True,
                              env={**os.environ, "XPC_CACHE": "off"}, check=False)  # fmt: skip
        assert done.stdout.splitlines()[-1] == "[] False", (words, done.stdout[-500:], done.stderr[-500:])


def test_what_cannot_be_tuned_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.xp").write_text(GPU + "sweep { lr = [1e-5, 2e-5] }\n")
    for words, output in (
        (("s.xp",), "is a sweep"),
        (("-",), "needs a spec in a file"),
        (("s.xp", "--calibration", "c.json"), "whose measurements it writes"),
    ):
        with pytest.raises(UsageError, match=output):
            tuned(*words)


@pytest.mark.slow
def test_real_probes_on_the_cpu_are_measured_and_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script runs three real probes. `xpc tune` reads their measurements and stores them in the calibration file,
    and the plan then uses them.
    """
    from forks import shared
    from runtime_bundles import environment

    from xpc.compiler.stacks import DEFAULT

    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.xp").write_text(CPU)
    warm = shared(DEFAULT)
    made = warm.run(str(tmp_path / "b"), str(tmp_path), "model", program=os.path.join(ROOT, "tests/support/tiny.py"))
    assert not any(made["status"]), made["err"]
    (tmp_path / "model" / "messages.jsonl").rename(tmp_path / "rows.jsonl")
    assert tuned("run.xp")[1] == 0
    done = subprocess.run(["run.tune/probe.sh"], env={**environment(), "PYTHON": warm.python}, check=False,
                          text=True, capture_output=True)  # fmt: skip
    assert "did not finish" not in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    text, status = tuned("run.xp", "--read", "run.tune", "--calibration", "here.json")
    assert status == 0, text
    apart = float(text.partition("agree to ")[2].split()[0])
    # equal except for rounding: the same values are added in another order
    assert apart < 1e-4
    readings = json.loads((tmp_path / "here.json").read_text())["readings"]
    assert len(readings) == 3
    for number, one in enumerate(readings, 1):
        assert one["peak_bytes"] is None
        assert one["tokens_per_second"] > 0
        summary = json.loads((tmp_path / "run.tune" / f"{number}.out" / "summary.json").read_text())
        assert summary["tokens_per_second"] == pytest.approx(summary["tokens"] / summary["seconds"], rel=1e-2)
        assert summary["steps"] == 20
    found = json.loads(command.run(command.parse(["run.xp", "--calibration", "here.json", "--format", "json"]))[0])
    seconds = readings[0]["seconds_per_step"]["value"]
    assert found["hours"]["value"] == pytest.approx(found["steps"] * seconds / 3600, abs=2e-3)
    assert found["calibration"].startswith("1 measurement of this run")
