"""If a phase takes long, it prints a line with its progress. Without a terminal, progress bars print nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from xpc.runtime.core import errors, progress

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def ended():
    yield
    progress.now("")


def test_line_has_the_count_and_the_time_left():
    progress.now("evaluating")
    progress.Phase.done, progress.Phase.total = 30, 120
    assert progress.line(20.0) == "evaluating: 30 of 120, 0:00:20 so far, left 0:01:00"
    progress.Phase.done = 0
    assert progress.line(20.0) == "evaluating: 0 of 120, 0:00:20 so far"
    progress.now("loading the model")
    assert progress.line(61.2) == "loading the model, 0:01:01 so far"
    assert progress.line(0.3) == "loading the model"


def test_a_phase_within_another_returns_to_it():
    progress.now("preparing the rows")
    with progress.phase("writing metrics.jsonl"):
        assert progress.Phase.name == "writing metrics.jsonl"
    assert progress.Phase.name == "preparing the rows"


@pytest.mark.parametrize(
    ("terminal", "printed"),
    [
        (False, ["0:00:10", "0:00:30", "0:01:10", "0:02:10"]),
        (True, [f"0:0{seconds // 60}:{seconds % 60:02}" for seconds in range(10, 160, 10)]),
    ],
)
def test_a_silent_phase_prints_at_growing_intervals_and_on_a_terminal_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, printed: list[str]
):
    lines: list[str] = []
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(errors, "printed", 0.0)
    monkeypatch.setenv("XPC_PRINTED", "0.0")

    def say(text: str) -> None:
        lines.append(text)
        errors.printed = clock[0]

    def tick(_: float) -> None:
        assert os.environ["XPC_PRINTED"] == str(errors.printed), (
            "a process that starts now reads when the last line was printed"
        )
        clock[0] += 0.5
        if clock[0] > 155:
            raise StopIteration

    monkeypatch.setattr(errors, "say", say)
    monkeypatch.setattr(progress.time, "sleep", tick)
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: terminal, raising=False)
    progress.now("loading the model")
    with pytest.raises(StopIteration):
        progress._watch(lambda: True)
    assert [one.split(", ")[1].removesuffix(" so far") for one in lines] == printed


@pytest.mark.slow
def test_a_phase_of_a_started_process_counts_the_silence_before_it():
    """The launcher prints nothing for some seconds before it starts a process. The process counts these seconds as
    silence, so that its first line is not late.
    """
    start = (
        "import os, subprocess, sys, time; from xpc.runtime.core import errors, progress; errors.printed -= 100;"
        "progress.watch(lambda: False); progress.now('starting the processes')\n"
        "while os.environ.get('XPC_PRINTED') != str(errors.printed): time.sleep(0.05)\n"
        "subprocess.run([sys.executable, *sys.argv[1:]])"
    )
    child = (
        "import time; from xpc.runtime.core import errors, progress; begun = errors.printed; progress.watch();"
        "progress.now('checking this machine')\n"
        "for _ in range(1200):  # at most a minute\n"
        "    if errors.printed == begun: time.sleep(0.05)"
    )
    done = subprocess.run([sys.executable, "-c", start, "-c", child], capture_output=True, text=True, check=True)
    assert re.match(r"\[run\] checking this machine(, 0:00:0\d so far)?$", done.stdout), done.stdout


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (200, "step 30/36  loss 0.0837  margin 6.872  lr 1.94e-05  grad 2.03  388 tokens/s  left 0:00:10"),
        (80, "step 30/36  loss 0.0837  margin 6.872  lr 1.94e-05  388 tokens/s  left 0:00:10"),
        (60, "step 30/36  loss 0.0837  388 tokens/s  left 0:00:10"),
        (20, "step 30/36  loss 0."),
    ],
)
def test_a_narrow_terminal_still_shows_the_time_left(
    width: int, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    errors.put("step 30/36  loss 0.0837  margin 6.872  lr 1.94e-05  grad 2.03  388 tokens/s  left 0:00:10", renew=True)
    assert capsys.readouterr().out == f"\r\x1b[K{shown}"
    monkeypatch.setattr(errors, "stopping", True)
    errors.put("[run] stopped as asked")
    assert capsys.readouterr().out == "\r\x1b[K[run] stopped as asked\n"


def test_an_error_does_not_continue_the_line_of_a_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    errors.put("step 30/36  loss 0.0837", renew=True)
    assert errors.stop(errors.RunError("the loss is nan")) == 1
    assert capsys.readouterr().err == "\nerror: the loss is nan\n"


BARS = """
import sys, time
from xpc.runtime.core import progress
from xpc.runtime.library_internals import progress_bars
from tqdm.auto import tqdm
progress_bars.capture(True)
bar = tqdm(total=200, desc="Tokenizing")
bar.update(50)
words, done, total, seconds = progress_bars.current()
print(words.strip(": "), done, total)
bar.close()
print(progress_bars.current())
"""


@pytest.mark.slow
def test_bars_of_the_libraries_count_and_write_nothing_into_a_log():
    done = subprocess.run([sys.executable, "-c", BARS], capture_output=True, text=True, check=True)
    assert done.stdout == "Tokenizing 50 200\nNone\n"
    assert done.stderr == ""
