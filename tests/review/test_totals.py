"""If `xpc diff` compares two sweeps, it adds up the GPU-hours and the disk space of all members of each sweep."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from compile_support import put, xpc

from xpc.compiler.review import totals

ONE = """xpc 1

train qwen2.5-3b on infinity-instruct:0625 for 1 epochs
hardware 8 x h100-80gb
batch gbs=128 micro=4 seq=1024
strategy zero2
"""
SWEEP = ONE + "sweep {\n  lr = [1e-6, 2e-6]\n  seed = [1, 2]\n}\n"


def summed(root: str, one: str, other: str) -> dict[str, tuple[float, float]]:
    done = xpc("diff", one, other, "--format", "json", "--price", "2.5", cwd=root)
    assert done.returncode == 0, done.stderr
    return {each["name"]: (each["before"], each["after"]) for each in json.loads(done.stdout)["totals"]}


def test_a_member_that_does_not_fit_is_counted(tmp_path: Path) -> None:
    """Before a fix, the first line was about the memory of the first member, which fits, and said nothing of the other
    members.
    """
    before = ONE.replace("micro=4 ", "").replace("gbs=128", "gbs=256") + "memory(checkpointing = false)\n"
    before += "sweep { micro = [1, 4, 8] }\n"
    root = put(tmp_path, {"a.xp": before, "b.xp": before.replace("seq=1024", "seq=2048")})
    assert summed(root, "a.xp", "b.xp")["runs that do not fit their GPUs"] == (0, 1)
    lines = [
        xpc("diff", *each, cwd=root).stdout.decode().split("\n")[0] for each in (("a.xp", "b.xp"), ("b.xp", "a.xp"))
    ]
    assert lines == [
        "seq 1024 -> 2048 in 3 of 3 runs; 1 of 3 runs do not fit their GPUs, was 0",
        "seq 2048 -> 1024 in 3 of 3 runs; 0 of 3 runs do not fit their GPUs, was 1",
    ]


@pytest.mark.slow
def test_totals_of_sweeps_count_every_member(tmp_path: Path) -> None:
    """The total of a sweep is one member's value times the number of members; a single run counts as one. Two folders
    of bundles have the same totals as the specs from which they were compiled.
    """
    larger = SWEEP.replace("1e-6, 2e-6", "1e-6, 2e-6, 3e-6").replace("gbs=128", "gbs=256")
    root = put(tmp_path, {"one.xp": ONE, "a.xp": SWEEP, "b.xp": larger})
    for name in ("a", "b"):
        assert xpc("compile", f"{name}.xp", "-o", name, cwd=root).returncode == 0
    found = summed(root, "a.xp", "b.xp")
    assert set(found) == {"GPU-hours", "disk, at most", "cost"}
    single = summed(root, "one.xp", "b.xp")
    assert single["GPU-hours"][0] * 4 == pytest.approx(found["GPU-hours"][0], rel=1e-3)
    assert single["disk, at most"][0] * 6 == single["disk, at most"][1]
    assert found["cost"][1] == pytest.approx(2.5 * found["GPU-hours"][1], rel=1e-3)
    assert summed(root, "a", "b") == found
    assert summed(root, "a", "a.xp") == {}
    text = xpc("diff", "a.xp", "b.xp", cwd=root).stdout.decode()
    assert "All runs together\n  GPU-hours" in text
    assert "(4 -> 6 runs)" in text


@pytest.mark.parametrize("stored", [False, True])
def test_members_that_differ_in_a_rate_share_a_plan(
    stored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from xpc.compiler.review.operands import open_operand

    root = put(tmp_path, {"a.xp": SWEEP.replace("seed = [1, 2]", "gbs = [128, 256]")})
    assert xpc("compile", "a.xp", "-o", "a", cwd=root).returncode == 0
    with open_operand(f"{root}/a" if stored else f"{root}/a.xp") as one:
        runs = one.check(one.name).runs
    planned: list[object] = []
    real = totals.forecast
    monkeypatch.setattr(totals, "forecast", lambda spec, prices: planned.append(spec) or real(spec, prices))
    found = totals.forecasts(runs, {})
    assert (len(found), len(planned)) == (4, 2)
    alone = [real(each.spec, {}).number("GPU-hours") for each in runs]
    assert [each.number("GPU-hours") for each in found] == alone


def test_members_of_a_sweep_with_a_new_axis_keep_their_runs(tmp_path: Path) -> None:
    """The new sweep has the seed as an additional axis. One of the two seeds is the old sweep's seed, so half of the
    members are runs of the old sweep.
    """
    old = ONE + "seed 1\nsweep {\n  lr = [1e-6, 2e-6]\n}\n"
    root = put(tmp_path, {"a.xp": old, "b.xp": SWEEP})
    text = xpc("diff", "a.xp", "b.xp", cwd=root).stdout.decode().splitlines()[0]
    assert "optimizer.lr (2) -> optimizer.lr (2), seed (2)" in text
    assert "2 runs new; 2 runs under a new name" in text


@pytest.mark.nightly
def test_a_sweep_of_10_000_members_takes_milliseconds_for_each(tmp_path: Path) -> None:
    """The CPU time for checking a sweep is proportional to the number of members. Eight times as many members take
    about eight times as long.
    """
    seconds = []
    for many in (1250, 10_000):
        rates, seeds = ", ".join(f"{n}e-7" for n in range(1, many // 100 + 1)), ", ".join(map(str, range(100)))
        root = put(tmp_path, {"a.xp": f"{ONE}sweep {{\n  lr = [{rates}]\n  seed = [{seeds}]\n}}\n"})
        taken = []
        for _ in range(2):
            start = time.process_time()
            assert xpc("check", "a.xp", cwd=root).returncode == 0
            taken.append(time.process_time() - start)
        seconds.append(min(taken))
    assert seconds[1] < 20 * seconds[0]
