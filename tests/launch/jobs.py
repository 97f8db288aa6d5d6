"""Slurm jobs for the tests: compiled specs, and bundles whose launch.sh is replaced by a short script that trains
nothing.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from emitted import FILES, compiled, put
from patience import HUNG
from whole_lines import events, whole_lines

STEPS = 30
"""Runs that tests compare with each other have this many steps."""

SPEC = """\
xpc 1
train "tiny" on "{data}" for {steps} steps
hardware {hardware}
{nodes}strategy {strategy}
precision fp32
batch gbs=8 micro=2{seq}
optimizer adamw(lr=1e-3)
memory(checkpointing=false)
track none(every=1)
save "out" every=5 keep=2
{more}
"""
STAND_IN = """\
#!/usr/bin/env bash
# Says what it was given, and does what the file `do` beside the output says: a line for each start.
set -u
start=${SLURM_RESTART_COUNT:-0}
what=$(sed -n "$((start + 1))p" do)
case "$what" in  # before it says that it is there: a signal may come at once
  deaf) trap '' USR1 TERM ;;
  late) trap 'sleep $((3 * NODE_RANK)); echo "left $NODE_RANK" >>said-$NODE_RANK; exit 75' USR1; trap '' TERM ;;
  *) trap 'echo "asked $NODE_RANK" >>said-$NODE_RANK; exit 75' USR1 TERM ;;
esac
echo "rank $NODE_RANK of $SLURM_NNODES on $SLURMD_NODENAME at $MASTER_ADDR:$MASTER_PORT start $start" >>said-$NODE_RANK
if [ -n "${XPC_VLLM_HOST:-}" ]; then echo "server $XPC_VLLM_HOST" >>said-$NODE_RANK; fi
echo "bundle $(basename "$(dirname "$0")")" >>said-$NODE_RANK
case "$what" in
  fail) if [ "$NODE_RANK" = 1 ]; then exit 3; fi ;;
  wait | deaf | late) ;;
  *) exit "${what:-0}" ;;
esac
for _ in $(seq 600); do sleep 0.1; done
"""


SERVER = """\
#!{python}
# Stands in for vLLM: not healthy for a second, then healthy, and gone when the file `end` appears.
import http.server, os, sys, threading, time
with open("server", "w") as out:
    print(*sys.argv[1:], os.environ["SLURMD_NODENAME"], os.environ["VLLM_SERVER_DEV_MODE"], sep="\\n", file=out)
if os.path.exists("end"):
    sys.exit("no GPU here")
begun = time.monotonic()
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" and time.monotonic() > begun + 1 else 503)
        self.end_headers()
    def log_message(self, *_):
        pass
port = int(sys.argv[sys.argv.index("--port") + 1])
server = http.server.ThreadingHTTPServer(("0.0.0.0", port), Health)
threading.Thread(target=server.serve_forever, daemon=True).start()
while not os.path.exists("end"):
    time.sleep(0.1)
sys.exit(1)
"""


def spec(strategy: str = "zero2", hardware: str = "cpu", nodes: int = 2, steps: int = 30,
         more: str = "launch slurm", data: str = "messages.jsonl") -> str:  # fmt: skip
    """A spec for Slurm. It has a line `nodes` only if it is for several nodes."""
    line = f"nodes {nodes}\n" if nodes > 1 else ""
    return SPEC.format(
        seq="" if "method grpo" in more else " seq=64",
        strategy=strategy,
        hardware=hardware,
        nodes=line,
        steps=steps,
        more=more,
        data=data,
    )


def stand_in(folder: str, text: str, *starts: str) -> str:
    """Compile a bundle, and replace its launch.sh by a short script: when it is started for the n-th time, it runs the
    n-th of the shell lines `starts`. Return the path of job.sbatch.
    """
    put(folder, FILES)
    bundle = compiled(text, folder, os.path.join(folder, "the job.bundle"), "job.xp")
    members = os.path.join(bundle, "members")
    runs = [os.path.join(members, name) for name in os.listdir(members)] if os.path.isdir(members) else [bundle]
    for run in runs:
        with open(os.path.join(run, "launch.sh"), "w", encoding="utf-8") as handle:
            handle.write(STAND_IN)
    repinned(bundle, runs)
    with open(os.path.join(folder, "do"), "w", encoding="utf-8") as handle:
        handle.write("".join(f"{one}\n" for one in starts))
    return os.path.join(bundle, "job.sbatch")


def repinned(bundle: str, runs: list[str]) -> None:
    """A test has changed files of a bundle. Write the new digests of these files into the bundle's lists and job
    scripts. `runs` are the folders that have a run.sha256.
    """
    pins = {}
    for run in runs:
        path = os.path.join(run, "run.sha256")
        with open(path, encoding="utf-8") as handle:
            names = [line.split("  ", 1)[1].rstrip("\n") for line in handle]
        lines = []
        for name in names:
            with open(os.path.join(run, name), "rb") as handle:
                lines.append(f"{sha256(handle.read()).hexdigest()}  {name}\n")
        pins.update(replaced(path, "".join(lines)))
    listing = os.path.join(bundle, "runs.sha256")
    if os.path.exists(listing):
        with open(listing, encoding="utf-8") as handle:
            text = handle.read()
        for old, new in pins.items():
            text = text.replace(old, new)
        pins.update(replaced(listing, text))
    for folder in {bundle, *runs}:
        job = os.path.join(folder, "job.sbatch")
        if os.path.exists(job):
            with open(job, encoding="utf-8") as handle:
                text = handle.read()
            for old, new in pins.items():
                text = text.replace(old, new)
            replaced(job, text)


def replaced(path: str, text: str) -> dict[str, str]:
    """Replace the content of a file. Return a mapping from the digest of the old content to the digest of the new
    content.
    """
    with open(path, "rb") as handle:
        old = sha256(handle.read()).hexdigest()
    with open(path, "w", encoding="utf-8") as handle:
        handle.write(text)
    return {old: sha256(text.encode()).hexdigest()}


def node_lines(folder: str, rank: int) -> list[str]:
    """The lines that the short launch.sh has printed on a node."""
    return whole_lines(os.path.join(folder, f"said-{rank}"))


def log(folder: str) -> str:
    """The log of the job that was submitted in the folder."""
    names = [name for name in os.listdir(folder) if name.startswith("job-") and name.endswith(".log")]
    texts = []
    for name in names:
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as handle:
            texts.append(handle.read())
    return "".join(texts)


def until(seen: Callable[[], object], what: str, seconds: float = HUNG) -> None:
    """Wait until `seen` is true. Raises TimeoutError after `seconds`; the message contains `what`."""
    end = time.monotonic() + seconds
    while not seen():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds} seconds: {what}")
        time.sleep(0.05)


def steps_of(cwd: str | Path) -> list[dict[str, Any]]:
    """The steps that a run in this folder has logged so far."""
    return [one for one in events(os.path.join(cwd, "out")) if "loss" in one]


def weights(cwd: str) -> str:
    with open(os.path.join(cwd, "out", "model.safetensors"), "rb") as handle:
        return sha256(handle.read()).hexdigest()


def same(cwd: Path, alone: str) -> None:
    """Compare a run with the undisturbed run `alone`: it has logged every step once and in order, with the same losses
    and gradient norms, and has saved the same weights.
    """
    one, other = steps_of(alone), steps_of(cwd)
    assert [event["step"] for event in other] == list(range(1, STEPS + 1))
    for name in ("loss", "grad_norm", "lr", "tokens"):
        assert [event[name] for event in other] == [event[name] for event in one]
    assert weights(str(cwd)) == weights(alone)
    with open(cwd / "out" / "summary.json", encoding="utf-8") as handle:
        summary = json.load(handle)
    assert (summary["steps"], summary["sequences"]) == (STEPS, 8 * STEPS)


def moments(chance: random.Random) -> list[int]:
    """Two random steps of a run, an early step and a late step. The test disturbs the run at both."""
    return [chance.randint(1, 11), chance.randint(15, 25)]


def reaches(cwd: Path, step: int) -> None:
    """Wait until a run has logged this step or a later one."""
    until(lambda: [one for one in steps_of(cwd) if one["step"] >= step], f"step {step}")
