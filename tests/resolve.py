"""`make resolve`: take each different requirements file that bundles have, ask uv whether pip could install it, and
write docs/requirements.md.

The files of the golden bundles and of the specs in specs/ are sets of packages. For each stack, there are two more
sets: one has all optional packages, and the other one has also vLLM. If these two can be installed, so can every
smaller set. Each set is resolved for Linux on x86-64 and several Pythons; nothing is installed.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from tests.golden_bundles import SPECS, compiled  # noqa: E402
from xpc.compiler import stacks  # noqa: E402
from xpc.compiler.files.workspace import Workspace  # noqa: E402
from xpc.compiler.pipeline import compile_text  # noqa: E402

PAGE = os.path.join(ROOT, "docs", "requirements.md")
PYTHONS = ("3.11", "3.12", "3.14")
PLATFORM = "x86_64-manylinux_2_28"
FILES = ("requirements.txt", "requirements-flash.txt", "requirements-eval.txt")
"""The requirements files whose packages a bundle's README installs together into one environment."""
FLASH_ATTN = """
[[dependency-metadata]]
name = "flash-attn"
requires-dist = ["torch", "einops"]
"""
"""The requirements of flash-attn 2.8.3 (from its setup.py). The package itself reports them only if torch and CUDA are
installed.
"""
HEAD = """\
# Requirements that resolve together

`make resolve` asks `uv pip compile` whether each distinct set of requirements can be installed. A set is the files that
a bundle's README installs into one environment. The sets are those of every golden bundle and recipe and, for each
stack, all optional packages at once, with and without vLLM. They are resolved for Linux on x86-64 (glibc 2.28); nothing
is installed. A line lists what a set has in addition to the packages that every bundle of its stack pins. Last run:
{day}, {right} of {all} resolve.

flash-attn publishes no wheel on PyPI, and its build needs torch and a CUDA compiler before it reports its
requirements. Here it is assumed to need torch and einops, as its setup.py states; whether it builds is not tested.

"""


def additions(stack: stacks.Stack, pins: Mapping[str, str]) -> str:
    """The packages of a bundle that some other bundles of its stack lack, with their versions, as one text."""
    base = stack.requirements()
    return (
        ", ".join(f"{name} {pins[name]}" for name in sorted(pins) if base.get(name) != pins[name]) or "no other package"
    )


def sets() -> dict[tuple[str, str], str]:
    """Map each different set of requirements to the text of a requirements file for uv. The key of a set is a pair: the
    stack's name, and those packages of the set that only some bundles of the stack have.
    """
    found = {}
    for name, text in emitted():
        stack = stacks.load(name)
        assert stack is not None
        pins = dict(line.split("==") for line in text.splitlines())
        found[name, additions(stack, pins)] = text
    return dict(sorted(found.items()))


def emitted() -> Iterator[tuple[str, str]]:
    """For every bundle, yield a pair: the name of its stack, and the text of its requirements. Duplicates are not
    removed.
    """
    for files in bundles():
        target = next(line for line in files["bundle.toml"].decode().splitlines() if line.startswith("target"))
        yield target.split('"')[1], "".join(files[name].decode() for name in FILES if name in files)
    for name in stacks.names():
        stack = stacks.load(name)
        assert stack is not None
        extras = [one for one in stack.table["policy"]["extras"] if not one.startswith("flash")]
        for some in ([], extras):
            for vllm in (False, True):
                pins = stack.requirements(*some, vllm=vllm)
                yield name, "".join(f"{package}=={version}\n" for package, version in pins.items())


def bundles() -> Iterator[Mapping[str, bytes]]:
    """Yield the files of every golden bundle, and of every spec in specs/ that compiles to a single bundle."""
    for name in SPECS:
        yield compiled(name)
    folder = os.path.join(ROOT, "specs")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".xp"):
            with open(os.path.join(folder, name), "rb") as handle:
                files, _ = compile_text(handle.read(), name, Workspace(folder))
            if files is not None and "bundle.toml" in files:
                yield files


def resolved(text: str, python: str, uv: str) -> str:
    """Ask uv whether these requirements can be installed together on a Python version. Return "" if they can, otherwise
    uv's reason.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("set.in", text), ("uv.toml", FLASH_ATTN)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as handle:
                handle.write(content)
        words = [uv, "pip", "compile", "--quiet", "--config-file", "uv.toml", "--python-version", python,
                 "--python-platform", PLATFORM, "--output-file", "set.txt", "set.in"]  # fmt: skip
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    if done.returncode == 0:
        return ""
    cause = " ".join(lines).partition("cause: ")[2].partition(", we can conclude")[0]
    return cause[:400] or f"uv ended with {done.returncode}"


def table(results: Mapping[tuple[str, str], Mapping[str, str]]) -> str:
    """The table of docs/requirements.md, and the reasons below it."""
    versions = " | ".join(f"Python {one}" for one in PYTHONS)
    lines = [f"| stack | in addition to its base | {versions} |", "|---|---|" + "---|" * len(PYTHONS)]
    reasons = []
    for (stack, what), by_python in results.items():
        cells = [f"{'does not resolve' if by_python[one] else 'resolves'} on Python {one}" for one in PYTHONS]
        lines.append(f"| {stack} | {what} | {' | '.join(cells)} |")
        for python, reason in by_python.items():
            if reason:
                reasons.append(f"- {stack} with {what}, Python {python}: {reason}")
    return "\n".join([*lines, *(["", "## What does not resolve", "", *reasons] if reasons else [])]) + "\n"


def main(words: list[str]) -> int:
    """Resolve all sets and write the page. The exit status is 1 if some set cannot be installed on one of the two
    oldest Python versions.
    """
    parser = argparse.ArgumentParser(
        description="Check that pip can install every set of requirements that a bundle can have."
    )
    parser.add_argument("--uv", default=os.path.join(os.path.dirname(sys.executable), "uv"), help="the program")
    options = parser.parse_args(words)
    wanted = sets()
    pairs = [(key, python) for key in wanted for python in PYTHONS]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda pair: resolved(wanted[pair[0]], pair[1], options.uv), pairs))
    results: dict[tuple[str, str], dict[str, str]] = {}
    for (key, python), answer in zip(pairs, answers, strict=True):
        results.setdefault(key, {})[python] = answer
    right = sum(not any(one.values()) for one in results.values())
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    with open(PAGE, "w", encoding="utf-8") as handle:
        handle.write(HEAD.format(day=day, right=right, all=len(results)) + table(results))
    wrong = {key: one for key, one in results.items() if any(one[python] for python in PYTHONS[:2])}
    for (stack, what), one in wrong.items():
        print(f"{stack} with {what}: {next(filter(None, one.values()))}", file=sys.stderr)
    print(f"{right} of {len(results)} sets can be installed on Python {', '.join(PYTHONS)}; {PAGE}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
