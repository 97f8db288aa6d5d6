"""Run the randomized tests with new seeds for a given time; `make test` always uses the same seeds.

    python tests/soak.py --minutes 60 --out soak

Six kinds of tests (pieces) run in turn, each time with another random seed: faults (training runs that are killed,
stopped or damaged), properties (hypothesis), growth rates, the fuzzer, the differential test against the libraries, and
imports (random files, compared with TRL's parser, and with axolotl and LLaMA-Factory if `make oracles` has installed
them; a skipped test means that it has not).
OUT/soak.jsonl gets a line of JSON per piece, with the command that repeats it; the output of a failed piece is printed
and kept in OUT. The exit status is 1 if any piece failed. Add each failure to the tests as a fixed case.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from itertools import cycle

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(HERE)
PROPERTIES = "@given("
"""If a test file contains this text, it uses hypothesis."""


def properties() -> list[str]:
    """The files of tests that use hypothesis."""
    found = []
    for location, _, names in os.walk(HERE):
        for name in sorted(names):
            path = os.path.join(location, name)
            if name.startswith("test_") and name.endswith(".py"):
                with open(path, encoding="utf-8") as handle:
                    if PROPERTIES in handle.read():
                        found.append(os.path.relpath(path, REPOSITORY))
    return sorted(found)


def pieces(seed: int) -> dict[str, list[str]]:
    """The commands for this seed by the name of their piece, such as "fuzz". They run in the root of the repository."""
    test = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    drawn = f"--hypothesis-seed={seed}"
    return {
        "properties": [*test, drawn, "-n", "2", *properties()],
        "fuzz": [sys.executable, "tests/fuzz/fuzz.py", "--inputs", "10000", "--jobs", "2", "--seed", str(seed)],
        "growth": [*test, "-m", "nightly", "tests/security/test_growth_rates.py"],
        "faults": [*test, "-m", "slow", "-n", "2", "--dist", "loadfile", "tests/faults"],
        "imports": [
            *test, "-rs", "-m", "slow", "-n", "2", "tests/importing/trl/test_import_crossover.py",
            "tests/importing/test_import_crossover_tools.py",
        ],
        "differential": [
            sys.executable, "tests/proof/differential/differential.py", "--accepted", "600", "--steps", "24",
            "--seed", str(seed),
        ],
    }  # fmt: skip


def main() -> int:
    """Run the pieces in turn until the given number of minutes has passed. The piece that is running then is not
    interrupted.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--out", default="soak")
    parser.add_argument("--only", nargs="*", choices=sorted(pieces(0)), help="run only these pieces")
    parser.add_argument("--seed", type=int, help="run once, with this seed")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    until, failed, number = time.monotonic() + 60 * options.minutes, 0, 0
    chosen = [name for name in pieces(0) if not options.only or name in options.only]
    for name in cycle(chosen) if options.seed is None else chosen:
        if number and options.seed is None and time.monotonic() > until:
            break
        number += 1
        seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
        failed += piece(name, seed, options.out, number)
    print(f"{number} pieces, {failed} failed; {os.path.join(options.out, 'soak.jsonl')} has a line for each")
    return 1 if failed else 0


def piece(name: str, seed: int, out: str, number: int) -> int:
    """Run the command of one piece (see `pieces`) and record it in soak.jsonl. Returns 1 if it failed, otherwise 0."""
    command, log = pieces(seed)[name], os.path.join(out, f"{number:04d}-{name}.log")
    if name == "differential":
        command += ["--out", os.path.abspath(os.path.join(out, f"{number:04d}-differential"))]
    began = time.monotonic()
    with open(log, "wb") as handle:
        environ = {**os.environ, "XPC_SEED": str(seed)}
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environ, stdout=handle, stderr=subprocess.STDOUT, check=False
        )
    with open(log, encoding="utf-8", errors="replace") as handle:
        lines = handle.read().splitlines()
    last = next((line for line in reversed(lines) if line.strip()), "")
    again = f"XPC_SEED={seed} " + " ".join(["python" if one == sys.executable else one for one in command])
    event = {"piece": name, "seed": seed, "seconds": round(time.monotonic() - began), "status": done.returncode,
             "last": last, "again": again}  # fmt: skip
    with open(os.path.join(out, "soak.jsonl"), "a", encoding="utf-8") as handle:
        handle.write(json.dumps(event) + "\n")
    print(f"{name}: seed {seed}, {event['seconds']} s: {last}", flush=True)
    if done.returncode == 0:
        os.remove(log)
        return 0
    print("\n".join(lines[-60:]))
    print(f"FAILED; repeat it with\n  {again}", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
