"""`make bench`, second part: compare `launch.sh --prepare` with trl's own preparation of the same rows.

The rows are conversations of random words. The tokenizer is a byte-level BPE trained on random words of the same kind.
The chat template marks the assistant's answers.

Three ways to prepare the rows are timed alternately, each in a new fork. The time starts with the reading of the data
file and ends when the trainer holds the rows; imports are not timed. `trl` is trl's own preparation in the bundle's
trainer, `prepare` is `launch.sh --prepare`, and `floor` does the least possible work: it renders each conversation once
and encodes the texts in batches.

The table has medians: CPU seconds on one core, wall-clock seconds on all cores, and peak memory. On a busy machine,
only the CPU seconds are reliable. A slow result does not fail the benchmark.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from runpy import run_path

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CASES = {"no masks": "sft", "masks": "sft(assistant_only)"}
SPEC = """\
xpc 1
train "model" on "rows.jsonl" for 1 epochs with gbs=8 micro=4 seq=512
method {method}
hardware cpu
precision fp32
optimizer adamw(lr=1e-4)
track none
save "out" every=never
"""
VOCABULARY = 32_000
TURNS = 4
WORDS_A_TURN = 50


def words() -> Iterator[str]:
    """Random words made of syllables. As in a natural language, frequencies follow Zipf's law: word n has the weight 1
    / n.
    """
    drawn = random.Random(0)
    parts = [a + b + c for a in "bdfgklmnprstvw" for b in "aeiou" for c in ("", "n", "r", "s", "l", "t", "ck")]
    known = list(dict.fromkeys("".join(drawn.choices(parts, k=drawn.choice((1, 1, 2, 2, 3)))) for _ in range(60_000)))
    total, bounds = 0.0, list[float]()
    for rank in range(len(known)):
        total += 1 / (rank + 5)
        bounds.append(total)
    while True:
        for word in drawn.choices(known, cum_weights=bounds, k=WORDS_A_TURN):
            yield word + drawn.choice(("", "", "", "", "", "", ",", ".", ".\n"))


def write(location: str, rows: int) -> None:
    """Write the model with its tokenizer, the rows, and a compiled bundle for each case."""
    from tiny import build

    from xpc.compiler import cli

    drawn = words()
    texts = [" ".join(next(drawn) for _ in range(WORDS_A_TURN)) for _ in range(20_000)]
    build(os.path.join(location, "model"), texts, vocab=VOCABULARY)
    with open(os.path.join(location, "rows.jsonl"), "w", encoding="utf-8") as out:
        for _ in range(rows):
            turns = [
                {"role": ("user", "assistant")[at % 2], "content": " ".join(next(drawn) for _ in range(WORDS_A_TURN))}
                for at in range(TURNS)
            ]
            out.write(json.dumps({"messages": turns}) + "\n")
    for name, method in CASES.items():
        path = os.path.join(location, f"{name.replace(' ', '-')}.xp")
        with open(path, "w", encoding="utf-8") as out:
            out.write(SPEC.format(method=method))
        if cli.main(["compile", path, "-o", path.replace(".xp", ".bundle")]):
            sys.exit(f"{path} does not compile")


def floor(location: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(os.path.join(location, "model"))
    with open(os.path.join(location, "rows.jsonl"), encoding="utf-8") as handle:
        while lines := [line for line, _ in zip(handle, range(1000), strict=False)]:
            texts = [tokenizer.apply_chat_template(json.loads(one)["messages"], tokenize=False) for one in lines]
            assert len(tokenizer(texts, add_special_tokens=False)["input_ids"]) == len(lines)


def prepared(location: str, case: str, way: str) -> None:
    """Prepare the rows of a bundle. If `way` is "trl", the bundle's own preparation is switched off, and trl prepares
    the rows by `Dataset.map`.
    """
    bundle = os.path.join(location, f"{case.replace(' ', '-')}.bundle")
    sys.path.insert(0, bundle)
    program = run_path(os.path.join(bundle, "prepare_rows.py"))["_prepare"]
    if way == "trl":
        program.__globals__["_writing"] = lambda *_: lambda real, rows, *args, **options: real(rows, *args, **options)
        program.__globals__["_counts"] = lambda *_: {"rows": 0}
    program(bundle, os.path.join(location, "prepared"))


def once(location: str, case: str, way: str, cores: int) -> list[float]:
    """Prepare the rows once in a fork; return CPU seconds, wall-clock seconds and peak memory in MiB."""
    read, write = os.pipe()
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        try:
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
            with open(os.path.join(location, "said"), "w", encoding="utf-8") as output:
                os.dup2(output.fileno(), 1)
            before, began = _processors(), time.perf_counter()
            if way == "floor":
                floor(location)
            else:
                prepared(location, case, way)
            spent, took = _processors() - before, time.perf_counter() - began
            peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
            os.write(write, json.dumps([spent, took, peak / 1024]).encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(write)
    with open(read, encoding="utf-8") as handle:
        answer = handle.read()
    if os.waitpid(child, 0)[1]:
        sys.exit(f"the preparation failed: {location}")
    for kept in ("prepared", "cache"):
        shutil.rmtree(os.path.join(location, kept), ignore_errors=True)
    found: list[float] = json.loads(answer)
    return found


def _processors() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def table(location: str, runs: int, rows: int) -> None:
    """Time the ways of preparing rows. Each way runs `runs` times, and the ways alternate. Print the medians."""
    cores = len(os.sched_getaffinity(0))
    for case in CASES:
        found: dict[tuple[str, int], list[list[float]]] = {}
        for _ in range(runs):
            for way, count in (("trl", cores), ("prepare", 1), ("prepare", cores), ("floor", 1)):
                measured = once(location, case, way, count)
                print(f"{case}, {way}, {count}: {measured}", file=sys.stderr, flush=True)
                found.setdefault((way, count), []).append(measured)
        medians = {
            key: [statistics.median(column) for column in zip(*each, strict=True)] for key, each in found.items()
        }
        trl, one, every, floor = medians.values()  # trl prepares in one process, however many cores there are
        print(f"\n{rows:,} rows, {case}, n={runs:<8} {'s of one core':>14} {f'clock, {cores} cores':>15} {'MiB':>7}")
        print(f"{'trl':32} {trl[0]:14.1f} {trl[1]:15.1f} {trl[2]:7.0f}")
        print(f"{'prepare':32} {one[0]:14.1f} {every[1]:15.1f} {one[2]:7.0f}")
        print(f"{'floor':32} {floor[0]:14.1f}")
        print(f"{'trl / prepare':32} {trl[0] / one[0]:14.2f} {trl[1] / every[1]:15.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="how often each way is measured (default: 5)")
    parser.add_argument(
        "--rows", type=int, default=20_000, help="the number of conversations of 200 words (default: 20,000)"
    )
    options = parser.parse_args()
    sys.path[:0] = [os.path.join(ROOT, "tests", "support")]
    with tempfile.TemporaryDirectory() as location:
        os.environ.update(
            HF_HUB_OFFLINE="1", HF_HOME=os.path.join(location, "cache"), TMPDIR=location, OMP_NUM_THREADS="1",
            TOKENIZERS_PARALLELISM="false", TRANSFORMERS_VERBOSITY="error", DS_ACCELERATOR="cpu",
        )  # fmt: skip
        tempfile.tempdir = None
        write(location, options.rows)
        from transformers import LlamaForCausalLM  # noqa: F401
        from trl import SFTTrainer  # noqa: F401

        table(location, options.runs, options.rows)


if __name__ == "__main__":
    main()
