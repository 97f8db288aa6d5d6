"""`make bench`: measure start-up times (medians over whole processes), and throughput within one process. The benchmark
has no limits: a slow result does not fail it.

`pip install .` installs xpc into a fresh environment, as a user would do. The environment has only the four packages
that the compiler needs. The benchmark times commands of this xpc. Each command alternates with `python -c pass` of the
same interpreter, so that the ratio of the two times is right even on a busy machine.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache

from xpc.compiler.files.bundle import write
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.lower import lower
from xpc.compiler.pipeline import check_text, compile_text
from xpc.compiler.plan import choice
from xpc.compiler.plan.changed import changed
from xpc.compiler.plan.experiment import plan
from xpc.compiler.preview import process
from xpc.compiler.review import diff, verify
from xpc.compiler.review.pull_request import comment, entries

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SEED = os.path.join(ROOT, "specs", "qwen2.5-3b-infinity-8xv100.xp")


def environment(folder: str) -> str:
    """Make a fresh environment with xpc installed; returns its bin folder."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    bin_ = os.path.join(folder, "bin")
    source = os.path.join(folder, "source")
    ignored = shutil.ignore_patterns(".*", "*.egg-info", "build", "demo", "model", "__pycache__")
    shutil.copytree(ROOT, source, ignore=ignored)
    pip = [os.path.join(bin_, "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", source]
    subprocess.run(pip, check=True)
    return bin_


def timed(command: list[str], env: dict[str, str], folder: str) -> float:
    """Run a command in a new process, and return the elapsed time in milliseconds."""
    start = time.perf_counter()
    subprocess.run(command, env=env, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - start) * 1000


def processes(runs: int) -> None:
    """Print the table of start-up times."""
    with tempfile.TemporaryDirectory() as folder:
        bin_ = environment(os.path.join(folder, "env"))
        python, xpc = os.path.join(bin_, "python"), os.path.join(bin_, "xpc")
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env["XDG_CACHE_HOME"] = os.path.join(folder, "cache")
        spec = shutil.copy(SEED, folder)
        other = os.path.join(folder, "other.xp")
        with open(SEED, encoding="utf-8") as handle, open(other, "w", encoding="utf-8") as copy:
            copy.write(handle.read().replace("gbs = 528", "gbs = 264"))
        rows: list[tuple[str, list[str], float]] = [
            ("python -c pass", [python, "-c", "pass"], 0),
            ("python -c 'import lark, attrs'", [python, "-c", "import lark, attrs"], 0),
            ("xpc check", [xpc, "check", spec], 120),
            ("xpc compile", [xpc, "compile", spec, "-o", "out.bundle"], 200),
            ("xpc fmt, of a page", [xpc, "fmt", "--check", spec], 200),
            ("xpc diff, of two pages", [xpc, "diff", spec, other], 200),
        ]
        times: dict[str, list[float]] = {name: [] for name, *_ in rows}
        for run in range(runs + 1):
            for name, command, _ in rows:
                spent = timed(command, env, folder)
                if run:  # round 0 only fills the disk cache and is not counted
                    times[name].append(spent)
        base = statistics.median(times["python -c pass"])
        print(f"{'whole process, ms':34} {'min':>7} {'median':>7} {'max':>7} {'/ pass':>7} {'budget':>7}   n={runs}")
        for name, _, budget in rows:
            t = times[name]
            middle = statistics.median(t)
            limit = f"{budget:7.0f}" if budget else " " * 7
            print(f"{name:34} {min(t):7.1f} {middle:7.1f} {max(t):7.1f} {middle / base:7.1f} {limit}")


@cache
def seed() -> str:
    with open(SEED, encoding="utf-8") as handle:
        return handle.read()


def variants(count: int) -> None:
    for number in range(count):
        text = seed().replace("lr = 1e-5", f"lr = {number + 1}e-6")
        files, _ = compile_text(text.encode(), "variant.xp", Workspace(ROOT))
        assert files is not None


def mixture(rows: int) -> None:
    body = "".join(f"  org/part-{n}:cfg[train] {{\n    take = {n + 1}\n  }}\n" for n in range(rows))
    text = f"xpc 1\n\ntrain qwen2.5-3b on mix with gbs=528 micro=11\n\ndata mix {{\n{body}  format = messages\n}}\n"
    assert check_text(text.encode(), "mixture.xp", Workspace(ROOT)).spec is not None


def sweep(members: int) -> bytes:
    rates = ", ".join(f"{number + 1}e-8" for number in range(members // 20))
    seeds = ", ".join(map(str, range(20)))
    text = seed().replace("  lr = 1e-5\n", "").replace("track wandb", "launch slurm(time=1d)\ntrack wandb")
    return f"{text}\nsweep {{\n  lr = [{rates}]\n  seed = [{seeds}]\n}}\n".encode()


def check_sweep(members: int) -> None:
    assert len(check_text(sweep(members), "sweep.xp", Workspace(ROOT)).members) == members


def write_sweep(spec: bytes, out: str) -> None:
    files, _ = compile_text(spec, "sweep.xp", Workspace(ROOT))
    assert files is not None
    write(files, out)


def compile_sweep(members: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_sweep(sweep(members), os.path.join(folder, "sweep.bundle"))


def verify_sweep(members: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "sweep.bundle")
        write_sweep(sweep(members), out)
        start = time.process_time()
        assert verify.run(verify.parse([out]))[1] == 0
        print(f"verify of a sweep of {members} members alone: {time.process_time() - start:.1f} s (10 for 1000)")


def diff_sweeps(members: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, f"{name}.xp") for name in ("before", "after")]
        for path, old in zip(paths, ("", "gbs = 528"), strict=True):
            with open(path, "wb") as handle:
                handle.write(sweep(members).replace(old.encode() or b"\0", b"gbs = 264"))
        assert diff.run(diff.parse(paths))[1] == 0


def diff_folders(members: int) -> None:
    """Write two sweeps to disk, compare them byte by byte, and print the time of the comparison alone."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("before", "after")]
        for path, old in zip(paths, (b"\0", b"gbs = 528"), strict=True):
            write_sweep(sweep(members).replace(old, b"gbs = 264"), path)
        start = time.process_time()
        assert diff.run(diff.parse(paths))[1] == 0
        print(f"{f'  of which the diff of {members} on disk':34} {time.process_time() - start:7.2f} {5.0:7.1f}")


def comment_on(count: int) -> None:
    """Write the review comment on a pull request that changes house.xp, which every spec extends."""
    house = "xpc 1\n\nprecision bf16\nhardware 1 x h100-80gb\nbatch { gbs = 16, micro = 4, seq = 512 }\n"
    run = 'xpc 1\n\nextends "house.xp"\n\ntrain qwen2.5-0.5b-instruct on alpaca for 1 epochs\n\nsave "out/{}"\n'
    with tempfile.TemporaryDirectory() as folder:
        git = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
        for number, text in enumerate((house, house.replace("gbs = 16", "gbs = 32"))):
            with open(os.path.join(folder, "house.xp"), "w", encoding="utf-8") as handle:
                handle.write(text)
            for spec in range(count) if not number else ():
                with open(os.path.join(folder, f"{spec}.xp"), "w", encoding="utf-8") as handle:
                    handle.write(run.format(spec))
            subprocess.run([*git, "add", "-A"], check=True)
            subprocess.run([*git, "commit", "-qm", str(number)], check=True)
        found = list(entries(folder, "HEAD~1"))
        assert len(found) == count
        assert comment(found)


def plans(count: int) -> None:
    checked = check_text(seed().encode(), "seed.xp", Workspace(ROOT)).spec
    assert checked is not None
    for _ in range(count):
        plan(checked)


def searches(count: int) -> None:
    text = "xpc 1\ntrain qwen2.5-3b on infinity-instruct:0625 for 1 epochs\nhardware 8 x h100-80gb\nbatch gbs=128\n"
    for number in range(count):
        # a search is shared within a spec, so each round has a spec of its own
        checked = check_text(f"{text}# {number}\n".encode(), "open.xp", Workspace(ROOT)).spec
        assert checked is not None
        requested = changed(checked, {"strategy": "ddp"})
        assert choice.chosen(requested, ("strategy", "memory.checkpointing", "batch.micro")) is not None


def in_process() -> None:
    """Print the throughput of the compiler as a library. Garbage collection is off, as it is on the command line."""
    gc.disable()
    variants(5)
    print(f"\n{'in process, s':34} {'spent':>7} {'budget':>7}")
    for name, work, sizes, budget in (
        ("compile {} variants of the seed", variants, (250, 500, 1000), 5.0),
        ("check a mixture of {} rows", mixture, (500, 1000, 2000), 0.5),
        ("check a sweep of {} members", check_sweep, (100, 1000), 3.0),
        ("{} plans of the seed", plans, (1000,), 1.0),
        ("{} searches for what is fastest", searches, (100,), 1.0),
        ("write a sweep of {} members", compile_sweep, (100, 1000), 20.0),
        ("write and verify a sweep of {} members", verify_sweep, (100, 1000), 20.0),
        ("diff of two sweeps of {} members", diff_sweeps, (100, 1000), 5.0),
        ("write and diff two sweeps of {}", diff_folders, (100, 1000), 45.0),
        ("comment over {} changed specs", comment_on, (100, 500), 10.0),
    ):
        for size in sizes:
            gc.collect()
            print(
                f"{name.format(size):34} {_spent(work, size):7.2f} " + (f"{budget:7.1f}" if size == sizes[-1] else "")
            )


PARTS = {"libraries": 15.0, "tokenizer": 1.0, "trainer": 2.0, "rows": 5.0}
"""Maps the parts of `xpc preview` to their budgets in CPU seconds. `rows` includes compiling the spec."""


def preview() -> None:
    """Print the CPU seconds of `xpc preview` for a local file of 600,000 rows about which nothing is cached."""
    here = os.path.dirname(os.path.abspath(__file__))
    os.environ["XPC_CACHE"] = "off"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, os.path.join(here, "support", "tiny.py"), os.path.join(folder, "tiny")], check=True
        )
        row = '{"messages":[{"role":"user","content":"Question %d?"},{"role":"assistant","content":"%d"}]}\n'
        with open(os.path.join(folder, "rows.jsonl"), "w", encoding="utf-8") as handle:
            handle.writelines(row % (at, at) for at in range(600_000))
        path = os.path.join(folder, "run.xp")
        with open(path, "w", encoding="utf-8") as handle:
            handle.write(
                'xpc 1\ntrain "tiny" on "rows.jsonl" for 6 steps\nhardware cpu\nstrategy ddp\nprecision fp32\n'
            )
            handle.write('batch gbs=8 micro=2 seq=64\nsave "out" every=never\n')
        print(f"\n{'preview of 600,000 rows, CPU s':34} {'spent':>7} {'budget':>7}")
        for title, words in (("-n 3", ""), ("--row 599,999", "599999")):
            start = time.process_time()
            spec, _ = process._checked(path, process.Request())
            bundle = os.path.join(folder, f"run{words}.bundle")
            write(lower(spec), bundle)
            compiled = time.process_time() - start
            command = [sys.executable, os.path.join(here, "bench_preview.py"), bundle, words]
            env = {**os.environ, "XPC_DATA_ROOT": folder, "HF_HOME": folder}
            done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            spent = json.loads(done.stdout.splitlines()[-1])
            spent["rows"] += compiled
            for part, budget in PARTS.items():
                print(f"{f'{title}: {part}':34} {spent[part]:7.2f} {budget:7.1f}")


def _spent(work: Callable[[int], None], size: int) -> float:
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        work(size)
        best = min(best, time.perf_counter() - start)
    return best


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=21, help="how many runs of each command are measured (default: 21)")
    options = parser.parse_args()
    processes(options.runs)
    in_process()
    preview()
