"""A seeded fuzzer of the whole compiler, in process: text in, diagnostics or a bundle out, and never an exception.

    python tests/fuzz/fuzz.py --inputs 100000 --seed 1 --jobs 2

There are three kinds of inputs: mutations of valid specs, specs generated token by token from the schema's table, and
random bytes. For each accepted spec, the bundle is made: its files must parse, and launch.sh must contain no text from
the spec.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import random
import sys
import time
import tomllib
from concurrent.futures import ProcessPoolExecutor

from attrs import define

from xpc.compiler import registry
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language import schema
from xpc.compiler.pipeline import Checked, check_text
from xpc.compiler.render import FORMATS, render
from xpc.compiler.stacks import DEFAULT, STACKS
from xpc.grammar.diagnostic import ERROR, NOTE, WARNING

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
from cpu import TooLong, limited
from fuzz_words import MARK, NASTY, PLAUSIBLE

try:
    import yaml
except ImportError:  # an environment without the extra `import` has no yaml
    yaml = None

HERE = os.path.dirname(os.path.abspath(__file__))

EXAMPLES = tuple(sorted(glob.glob(os.path.join(HERE, "..", "grammar", "examples", "*.xp"))))


class Failure(Exception):
    """Raised for an input with which the compiler fails, for example by an exception."""


def corpus() -> list[str]:
    """The valid specs that are mutated."""
    out = []
    for path in EXAMPLES:
        with open(path, encoding="utf-8") as handle:
            out.append(handle.read())
    out.append("train qwen2.5-3b on infinity-instruct with zero2 gbs=528 bf16 liger\n")
    out.append('xpc 1\ntrain gpt2 on alpaca for 100 steps with cpu gbs=8 micro=8\nsave "out/x" { every = 10 }\n')
    out.append("xpc 1\ntrain llama-3.1-8b on c4[train:10%] with fsdp gbs=64 packing\nmodel { \n attn = flash2\n}\n")
    return out


def mutated(rng: random.Random, texts: list[str]) -> str:
    """A spec with a few random changes: text inserted, removed, doubled, moved or replaced."""
    text = rng.choice(texts)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice((1, 1, 2, 5, 20)))
        kind = rng.randrange(7)
        if kind == 0:
            text = text[:at] + text[end:]
        elif kind == 1:
            text = text[:at] + rng.choice(NASTY) + text[at:]
        elif kind == 2:
            text = text[:at] + rng.choice(NASTY) + text[end:]
        elif kind == 3:
            text = text[:at] + text[at:end] * rng.choice((2, 3, 50)) + text[end:]
        elif kind == 4:
            lines = text.split("\n")
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(rng.choice(texts).split("\n")))
            text = "\n".join(lines)
        elif kind == 5:
            words = text.split(" ")
            words[rng.randrange(len(words))] = rng.choice(rng.choice(texts).split(" "))
            text = " ".join(words)
        else:
            lines = text.split("\n")
            del lines[rng.randrange(len(lines))]
            text = "\n".join(lines)
    return text


def _value(rng: random.Random, row: schema.Setting) -> str:
    if rng.random() < 0.06:
        return rng.choice(NASTY)
    if row.choices:
        return rng.choice(row.choices)
    if row.path == "target":
        return rng.choice((*STACKS, DEFAULT, "trl-2"))
    return rng.choice(PLAUSIBLE.get(row.kind.name, ("1",)))


def generated(rng: random.Random, models: tuple[str, ...], data: tuple[str, ...]) -> str:
    """A spec of random settings from the schema. Most of these settings are legal alone, but the whole spec is rarely
    legal.
    """
    model = rng.choice((rng.choice(models), "org/model@main", f'"models/{MARK}"', "a/b", '"c:\\\\x1"'))
    source = rng.choice(
        (
            rng.choice(data),
            "infinity-instruct",
            "org/data:conf[split:20%]@rev",
            f'"{MARK}.jsonl"',
            "mix",
            '"d\\\\x.csv"',
        )
    )
    out = ["xpc 1"] if rng.random() < 0.8 else []
    budget = rng.choice((" for 3 epochs", " for 100 steps", " for 0.5 epochs", ""))
    out.append(f"train {model} on {source}{budget}")
    rows = [row for row in schema.TABLE if row.path not in ("train.epochs", "train.steps")]
    clauses: dict[str, list[str]] = {}
    for row in rng.sample(rows, rng.choice((0, 1, 2, 3, 5, 8))):
        if row.path.count(".") == 2:
            parent = row.path.split(".")
            clauses.setdefault(parent[0], []).append(f"{parent[1]}({row.name}={_value(rng, row)})")
        elif row.head:
            text = _value(rng, row)
            clauses.setdefault(row.path, []).insert(0, "\0" + text)
        else:
            clauses.setdefault(row.clause, []).append(f"{row.name} = {_value(rng, row)}")
    for clause, lines in clauses.items():
        head = "".join(line[1:] for line in lines[:1] if line.startswith("\0"))
        inner = [line for line in lines if not line.startswith("\0")]
        title = f"{clause} {head}".rstrip() + (" mix" if clause == "data" and source == "mix" else "")
        if inner and "\n" not in "".join(inner) and rng.random() < 0.3:
            out.append(f"{title} {{ {', '.join(inner)} }}")
        else:
            out.append(title + (" {\n" + "".join(f"  {line}\n" for line in inner) + "}" if inner else ""))
    if rng.random() < 0.05:
        key = rng.choice(("lr_scheduler_type", "neftune_noise_alpha", "wall_clock_breakdown", "zero_optimization", "x"))
        out.append(
            f"extra {rng.choice(schema.EXTRA_TARGETS)} {{\n  {key} = {rng.choice(('1', 'true', '[1]', MARK))}\n}}"
        )
    return "\n".join(out) + "\n"


def raw(rng: random.Random) -> bytes:
    """Random bytes, or random characters of the language."""
    length = rng.choice((0, 1, 5, 40, 300, 2000))
    if rng.random() < 0.5:
        return rng.randbytes(length)
    alphabet = 'abctrain onwith=[]{}(),"#:@%.-_/0123456789eEkM \n\n\\'
    return "".join(rng.choice(alphabet) for _ in range(length)).encode()


@define
class Counts:
    accepted: int = 0
    rejected: int = 0
    seconds: float = 0.0


def examine(data: bytes, every_format: bool = False) -> Checked:
    """Compile one input. Raises Failure for an exception, for a wrong diagnostic or bundle, or if the compilation takes
    more than two CPU seconds.
    """
    try:
        with limited(2.0):
            return _examine(data, every_format)
    except TooLong as error:
        raise Failure(str(error)) from error


def _examine(data: bytes, every_format: bool) -> Checked:
    workspace = Workspace(HERE + "/no-such-folder")
    try:
        found = check_text(data, "t.xp", workspace)
    except Exception as error:
        raise Failure(f"check raised {type(error).__name__}: {error}") from error
    _diagnostics(found)
    try:
        for format in FORMATS if every_format else ("concise",):
            text = render(found.problems, format)
            if format in ("json", "sarif"):
                json.loads(text)
    except Exception as error:
        raise Failure(f"render raised {type(error).__name__}: {error}") from error
    if found.spec is not None:
        from xpc.compiler.lower import lower

        try:
            files = lower(found.spec)
        except Exception as error:
            raise Failure(f"lower raised {type(error).__name__}: {error}") from error
        try:
            _files(files, found)
        except (ValueError, LookupError) as error:
            raise Failure(f"a file does not read back: {type(error).__name__}: {error}") from error
    return found


def _diagnostics(found: Checked) -> None:
    wrong = False
    for one in found.problems:
        wrong = wrong or one.severity == ERROR
        if one.severity not in (ERROR, WARNING, NOTE) or not one.message or not one.slug:
            raise Failure(f"{one.code} is not complete")
        if one.primary is None:
            raise Failure(f"{one.code} has no place")
        for label in (one.primary, *one.related):
            if not 0 <= label.span.start <= label.span.end <= len(label.source.text):
                raise Failure(f"{one.code} points outside of its text")
        if one.severity == ERROR and one.help is None and one.code in NEED_HELP:
            raise Failure(f"{one.code} has no help: {one.message}")
    if wrong is not (found.spec is None):
        raise Failure("a spec stands beside an error, or neither is there")


NEED_HELP = (
    "XP101",
    "XP102",
    "XP103",
    "XP104",
    "XP105",
    "XP106",
    "XP107",
    "XP112",
    "XP113",
    "XP120",
    "XP121",
    "XP201",
    "XP301",
)


def _files(files: dict[str, bytes], found: Checked) -> None:
    assert found.spec is not None
    json.loads(files["trainer_args.json"])
    if "deepspeed.json" in files:
        json.loads(files["deepspeed.json"])
    table = tomllib.loads(files["bundle.toml"].decode())
    if set(table["files"]) != set(files) - {"bundle.toml"}:
        raise Failure("bundle.toml does not name the files")
    if table["bundle"]["spec"] != found.spec.source.name or table["bundle"]["name"] != found.spec.name:
        raise Failure("bundle.toml reads back another name")
    for mine, theirs in zip(found.spec.data, table["data"]):
        if mine.path != theirs.get("path") or mine.id != theirs.get("id"):
            raise Failure(f"bundle.toml reads back {theirs.get('path')!r} for {mine.path!r}")
    if found.spec.model.path != table["model"].get("path"):
        raise Failure("bundle.toml reads back another model")
    if yaml is not None:
        yaml.safe_load(files["accelerate.yaml"])
    if MARK.encode() in files["launch.sh"]:
        raise Failure("launch.sh holds a text of the spec")
    if MARK.encode() in files.get("evaluate.sh", b""):
        raise Failure("evaluate.sh holds a text of the spec")
    again = check_text(files["spec.xp"], "t.xp", Workspace(HERE + "/no-such-folder"))
    if again.spec is None:
        first = next(one for one in again.problems if one.severity == ERROR)
        raise Failure(f"the bundle's spec.xp does not compile: {first.code} {first.message}")
    if (
        found.spec.model.path is None
        and all(source.path is None for source in found.spec.data)
        and not found.spec.bundled
    ):
        from xpc.compiler.lower import lower

        second = lower(again.spec)
        for name in ("trainer_args.json", "accelerate.yaml", "deepspeed.json", "launch.sh", "requirements.txt"):
            if files.get(name) != second.get(name):
                raise Failure(f"the bundle's spec.xp compiles to another {name}")


def one_input(rng: random.Random, texts: list[str], models: tuple[str, ...], data: tuple[str, ...]) -> bytes:
    """Make the next input: 50 % are mutations of valid specs, 40 % are generated specs, and 10 % are random bytes."""
    kind = rng.random()
    if kind < 0.5:
        return mutated(rng, texts).encode("utf-8", "surrogatepass")
    if kind < 0.9:
        return generated(rng, models, data).encode("utf-8", "surrogatepass")
    return raw(rng)


def run(seed: int, inputs: int, stop_at: int = 20) -> tuple[Counts, list[tuple[str, bytes]]]:
    """Examine `inputs` random texts; return the counts, and up to `stop_at` failures with their inputs."""
    rng, texts = random.Random(seed), corpus()
    models, data = registry.model_names(), registry.dataset_names()
    counts, failures = Counts(), []
    start = time.perf_counter()
    for number in range(inputs):
        text = one_input(rng, texts, models, data)
        try:
            found = examine(text, every_format=number % 50 == 0)
        except Failure as failure:
            failures.append((str(failure), text))
            if len(failures) >= stop_at:
                break
            continue
        if found.spec is None:
            counts.rejected += 1
        else:
            counts.accepted += 1
    counts.seconds = time.perf_counter() - start
    return counts, failures


def _job(arguments: tuple[int, int]) -> tuple[Counts, list[tuple[str, bytes]]]:
    return run(*arguments)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    share = options.inputs // options.jobs
    parts = [share + (1 if job < options.inputs % options.jobs else 0) for job in range(options.jobs)]
    jobs = [(options.seed * 1000 + number, part) for number, part in enumerate(parts)]
    start = time.perf_counter()
    if options.jobs == 1:
        results = [_job(jobs[0])]
    else:
        with ProcessPoolExecutor(options.jobs) as pool:
            results = list(pool.map(_job, jobs))
    failures = [one for _, found in results for one in found]
    for why, text in failures:
        print(f"FAILED {why}\n  {text!r}")
    accepted = sum(counts.accepted for counts, _ in results)
    rejected = sum(counts.rejected for counts, _ in results)
    print(
        f"{accepted + rejected + len(failures)} inputs, seed {options.seed}: {accepted} accepted, {rejected} rejected, "
        f"{len(failures)} failed, {time.perf_counter() - start:.0f} s"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
