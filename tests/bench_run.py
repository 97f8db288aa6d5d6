"""`make bench-run`: time a bundle and, alternately, a plain TRL script with the same arguments. A slow result does not
fail the benchmark.

Bundle and script are each started in a new process, as a user starts them: the bundle by `launch.sh`, the script by
`python script.py`. With `--llamafactory PYTHON`, a run of the LLaMA-Factory in the interpreter PYTHON is also timed.
The benchmark prints the seconds to the first logged step and to the end, the CPU seconds (which a busy machine changes
less than the wall-clock seconds), steps per second between the first and the last step, and whether the losses of
bundle and script are equal to the last digit.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "tests", "support")]

SPEC = """\
xpc 1
train "model" on "rows.jsonl" for {steps} steps with gbs=8 micro=4 seq=128
hardware cpu
precision fp32
optimizer adamw(lr=1e-4)
memory(checkpointing=false)
track none(every=1)
save "out" every=never
"""
MODEL = """
from tiny import build, write_messages
write_messages("rows.jsonl", 512)
sizes = dict(hidden_size=256, intermediate_size=768, num_hidden_layers=8)
print(build("model", **sizes, num_attention_heads=8, num_key_value_heads=4))
"""
FACTORY = {
    "model_name_or_path": "../model", "dataset": "rows", "dataset_dir": "..", "template": "qwen", "stage": "sft",
    "do_train": True, "finetuning_type": "full", "cutoff_len": 128, "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2, "learning_rate": 1e-4, "logging_steps": 1, "save_strategy": "no",
    "output_dir": "out", "report_to": "none", "use_cpu": True, "disable_gradient_checkpointing": True,
}  # fmt: skip


class Run:
    """One run of a bundle or a script, with its times and losses."""

    def __init__(self, command: Sequence[str], folder: str, log: str, environment: dict[str, str]) -> None:
        os.makedirs(os.path.join(folder, "out"), exist_ok=True)
        path, before, size, times = os.path.join(folder, log), _processors(), 0, list[float]()
        began = time.perf_counter()
        with open(os.path.join(folder, "said"), "w", encoding="utf-8") as output:
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
            while process.poll() is None:
                if os.path.exists(path) and os.path.getsize(path) != size:
                    size = os.path.getsize(path)
                    times += [time.perf_counter() - began] * (_steps(path) - len(times))
                time.sleep(0.02)
        self.whole = time.perf_counter() - began
        if process.returncode:
            with open(os.path.join(folder, "said"), encoding="utf-8") as output:
                sys.exit(f"{command[0]} ended with {process.returncode}:\n{output.read()[-3000:]}")
        self.processors = _processors() - before
        self.first, self.rate = times[0], (len(times) - 1) / (times[-1] - times[0])
        with open(path, encoding="utf-8") as handle:
            events = [json.loads(line) for line in handle]
        self.losses = [event["loss"] for event in events if "loss" in event]


def _steps(path: str) -> int:
    """Count the steps that a run has logged. Complete lines with the key `loss` count; the summary at the end of a run
    has no such key.
    """
    with open(path, "rb") as handle:
        return sum(b'"loss"' in line for line in handle if line.endswith(b"\n"))


def _processors() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Build the model. Then run the bundle, the script and LLaMA-Factory in turn, `--runs` times each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="how often the bundle and each script run (default: 3)")
    parser.add_argument("--steps", type=int, default=60, help="the number of optimizer steps of a run (default: 60)")
    parser.add_argument("--llamafactory", metavar="PYTHON", help="an interpreter that has LLaMA-Factory installed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as location:
        support = os.path.join(ROOT, "tests", "support")
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHON": sys.executable}
        made = subprocess.run([sys.executable, "-c", MODEL], cwd=location, env={**environment, "PYTHONPATH": support},
                              text=True, capture_output=True, check=True)  # fmt: skip
        _put(location, "run.xp", SPEC.format(steps=options.steps))
        compiled = [sys.executable, "-m", "xpc.compiler.cli", "compile", "run.xp"]
        subprocess.run(compiled, cwd=location, env=environment, capture_output=True, check=True)
        script = [
            sys.executable,
            os.path.join(support, "plain_trl.py"),
            os.path.join(location, "run.bundle", "trainer_args.json"),
        ]
        factory = {**FACTORY, "max_steps": options.steps}
        _put(location, "dataset_info.json", json.dumps({"rows": {
            "file_name": "rows.jsonl", "formatting": "sharegpt", "columns": {"messages": "messages"},
            "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"},
        }}))  # fmt: skip
        count = 0

        def ready(files: dict[str, str]) -> str:
            nonlocal count
            count += 1
            folder = os.path.join(location, str(count))
            os.makedirs(folder)
            for name in ("model", "rows.jsonl"):
                os.symlink(os.path.join(location, name), os.path.join(folder, name))
            for name, text in files.items():
                _put(folder, name, text)
            return folder

        environment["OMP_NUM_THREADS"] = str(os.cpu_count())
        ways: dict[str, Callable[[], Run]] = {
            "bundle": lambda: Run(
                [os.path.join(location, "run.bundle", "launch.sh")], ready({}), "out/metrics.jsonl", environment
            ),
            "script": lambda: Run(script, ready({}), "out/metrics.jsonl", environment),
        }
        if options.llamafactory:
            words = [options.llamafactory, "-m", "llamafactory.cli", "train", "run.yaml"]
            ways["llamafactory"] = lambda: Run(
                words, ready({"run.yaml": json.dumps(factory)}), "out/trainer_log.jsonl", environment
            )
        found: dict[str, list[Run]] = {name: [] for name in ways}
        for _ in range(options.runs):
            for name, way in ways.items():
                found[name].append(way())
        print(f"{int(made.stdout.split()[-1]):,} parameters, {options.steps} steps, {os.cpu_count()} cores")
        heads = f"{'first step':>11} {'whole':>8} {'processors':>11} {'steps/s':>8}"
        print(f"{'seconds, median':16} {heads}   n={options.runs}")
        for name, runs in found.items():
            first, whole, used = (
                statistics.median(getattr(one, kind) for one in runs) for kind in ("first", "whole", "processors")
            )
            rate = statistics.median(one.rate for one in runs)
            print(f"{name:16} {first:11.1f} {whole:8.1f} {used:11.1f} {rate:8.2f}")
        same = all(one.losses == other.losses for one in found["bundle"] for other in found["script"])
        print(f"losses of the bundle {'are' if same else 'ARE NOT'} those of the script to the last digit")


def _put(folder: str, name: str, text: str) -> None:
    with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
        out.write(text)


if __name__ == "__main__":
    main()
