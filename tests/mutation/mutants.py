"""Mutation testing: change random lines of the source, one at a time, and check that a test fails for each changed line
(mutant).

    python tests/mutation/mutants.py --places 400 --seed 1 --out mutants
    python tests/mutation/mutants.py --places 100 --since 10.days  # only files that a commit has changed since

First every test of the fast tier runs once under coverage, which records which tests reach which line (OUT/map.sqlite;
--map records it again). Then the program draws the same number of lines from each group of modules (such as rules or
lowering), and for each line one of the mutations in operators.py. A mutant is tested in a copy of the repository until
a test fails: first by the fast tests that reach its line, then by the slow tests of its room (slow_tests.py), for at
most `MINUTES`. Each result is a line of OUT/results.jsonl, so an interrupted run can continue. With --slow, the lines
are those of the runtime that only a training run reaches. Use --again after writing new tests: with this option, the
mutants that survived are tested once more, by all tests of their rooms and then by the complete fast tier.

mutmut 3 and cosmic-ray cannot be used. mutmut switches a mutant on inside one process, so a test that starts `python -m
xpc.compiler` or a bundle as a new process runs the unchanged code. cosmic-ray runs one command for all mutants, and
this command would have to be the whole test suite.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatch
from functools import cache
from threading import local

from coverage.numbits import num_in_numbits, numbits_to_nums
from operators import Finder, Mutation, works
from slow_tests import slow_tests

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))
GROUPS = {
    "derivation": ("compiler/resolve/*.py", "compiler/language/convert*.py", "compiler/language/expand/*.py",
                   "compiler/plan/*.py"),
    "rules": ("compiler/rules/*/*.py",),
    "lowering": ("compiler/lower/*.py", "compiler/engines/*.py"),
    "reading": ("compiler/language/*.py", "compiler/spec/*.py", "compiler/data/*.py", "compiler/files/*.py",
                "compiler/registry/*.py", "compiler/stacks/*.py", "grammar/*.py"),
    "advice": ("compiler/suggest/*.py", "compiler/suggest/*/*.py", "compiler/importing/*.py"),
    "runtime": ("runtime/*.py",),
    "commands": ("compiler/*.py",),
}  # fmt: skip
"""Maps each group to patterns for its files. `*` also matches slashes. A file belongs to the first group of which a
pattern matches it.
"""
AT_ONCE = 150
"""Of the tests of other rooms, at first this many run against a mutant, because a few tests notice most mutants."""
SECONDS = 600
"""The limit of CPU seconds for the tests of one mutant. It ends a mutant that loops forever."""
MINUTES = 4
"""The limit of minutes for the slow tests of one mutant."""
PACKAGES = ("grammar", "compiler", "runtime")
NOT_FOUND = "ERROR: not found: "
PUBLISHED = os.environ.get("XPC_PUBLISHED") or os.path.join(REPOSITORY, "..", "shared", "published")


def fast(*words: str) -> list[str]:
    """A pytest command that runs tests of the fast tier; these load neither torch nor TRL."""
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *words]


def slow_command(*names: str) -> list[str]:
    """A pytest command that runs the slow tests of these files and folders."""
    return [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "slow", *names]


def made_map(out: str) -> str:
    """Run the fast tier under coverage. Return the path of the file that records which test runs which line."""
    path = os.path.join(out, "map.sqlite")
    if not os.path.exists(path):
        environ = {**os.environ, "COVERAGE_FILE": path + ".part", "XPC_CPU_LIMIT": "10"}
        covered = [f"--cov={one}" for one in ("compiler", "grammar", "runtime")]
        words = fast("-n", "2", "--dist", "worksteal", "--cov-context=test", "--cov-report=", *covered)
        if subprocess.run(words, cwd=REPOSITORY, env=environ, check=False).returncode:
            sys.exit("the fast tests fail without any mutation: correct this first")
        os.replace(path + ".part", path)
    return path


class Map:
    """Maps each line to the tests that run it. The data comes from coverage's database file (table "line_bits", which
    coverage documents).
    """

    def __init__(self, path: str) -> None:
        self.file = sqlite3.connect(path, check_same_thread=False)

    @cache  # noqa: B019  # the cache keeps the map alive, which is harmless: a program has one map until it ends
    def _bits(self, file: str) -> list[tuple[str, bytes]]:
        """For each test that runs any line of a file: the test's name, and a bit set with a bit for each line that the
        test runs.
        """
        found = self.file.execute(
            "select context.context, line_bits.numbits from line_bits join context on context.id = line_bits.context_id"
            " join file on file.id = line_bits.file_id where file.path = ?",
            (os.path.join(REPOSITORY, file),),
        )
        return [(name.rpartition("|")[0], bits) for name, bits in found]

    @cache  # noqa: B019
    def _lines(self, file: str) -> frozenset[int]:
        return frozenset(line for bits in {bits for _, bits in self._bits(file)} for line in numbits_to_nums(bits))

    def reached(self, file: str, line: int) -> bool:
        """Whether any test runs a line. A line at module level runs on import, so any test that imports the file
        counts.
        """
        return line in self._lines(file) and any(name for name, _ in self._bits(file))

    def tests(self, file: str, line: int) -> list[str]:
        """The tests that run a line."""
        # a line that runs once in a process, such as on import, has at most one test of each of the two processes
        found = {name for name, bits in self._bits(file) if name and num_in_numbits(line, bits)}
        return sorted(found if len(found) > 2 else {name for name, _ in self._bits(file) if name})


def files(since: str | None = None) -> dict[str, list[str]]:
    """Map each group in `GROUPS` (such as rules) to the names of its source files. `since` is a date as git reads it.
    If it is given, only files that a commit after this date has changed are included.
    """

    def printed(*words: str) -> list[str]:
        return subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.split()

    names = printed("git", "ls-files", "*.py")
    if since is not None:
        names = sorted(
            {*names} & {*printed("git", "log", f"--since={since}", "--name-only", "--format=", "--", "*.py")}
        )
    found: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name in names:
        groups = (group for group, patterns in GROUPS.items() if any(fnmatch(name, pattern) for pattern in patterns))
        if group := next(groups, None):
            found[group].append(name)
    return found


def chosen_mutations(places: int, seed: int, known: Map, slow: bool, since: str | None) -> list[Mutation]:
    """Draw the same number of random lines from each group, and one mutation for each line."""
    out: list[Mutation] = []
    for group, names in files(since).items():
        if slow and group != "runtime":
            continue
        chance = random.Random(f"{seed} {group}")
        lines: dict[tuple[str, int], list[Mutation]] = {}
        sources: dict[str, bytes] = {}
        for name in names:
            with open(os.path.join(REPOSITORY, name), "rb") as handle:
                sources[name] = handle.read()
            for one in Finder(name, sources[name]).all():
                if known.reached(name, one.line) != slow:
                    lines.setdefault((name, one.line), []).append(one)
        count = places if slow else -(-places // len(GROUPS))
        chosen: list[Mutation] = []
        for location in chance.sample(sorted(lines), len(lines)):
            here = [
                one for one in chance.sample(lines[location], len(lines[location])) if works(one, sources[one.file])
            ][:1]
            chosen += here
            if len(chosen) == count:
                break
        out += chosen
    return out


class Copies:
    """A copy of the repository for each thread, in which one mutant after another is tested."""

    def __init__(self) -> None:
        self.root = tempfile.mkdtemp(prefix="xpc-mutants-")
        self.mine = local()

    def folder(self) -> str:
        """The copy of the repository that this thread uses. With its folder `.mutant` on the path, Python imports `xpc`
        from the copy.
        """
        if not hasattr(self.mine, "folder"):
            self.mine.folder = tempfile.mkdtemp(dir=self.root)
            listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True)
            for name in filter(None, listed.stdout.decode().split("\0")):
                target = os.path.join(self.mine.folder, name)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy2(os.path.join(REPOSITORY, name), target, follow_symlinks=False)
            os.makedirs(os.path.join(self.mine.folder, ".mutant", "xpc"))
            for name in (*PACKAGES, "specs"):  # `xpc new --from` copies a recipe of specs/
                os.symlink(os.path.join("..", "..", name), os.path.join(self.mine.folder, ".mutant", "xpc", name))
            for name in os.listdir(REPOSITORY):
                if name.startswith(".venv-"):  # the environments of the other stacks, in which slow tests run bundles
                    os.symlink(os.path.realpath(os.path.join(REPOSITORY, name)), os.path.join(self.mine.folder, name))
        return str(self.mine.folder)

    def touch(self, path: str) -> None:
        """Give a file a new modification time. Otherwise Python could use the bytecode of the previous mutant if the
        two mutants have the same size.
        """
        self.mine.clock = getattr(self.mine, "clock", 0) + 1
        os.utime(path, (self.mine.clock, self.mine.clock))

    def close(self) -> None:
        """Delete all copies of the repository."""
        shutil.rmtree(self.root, ignore_errors=True)


def noticed(folder: str, words: list[str], minutes: float | None = None) -> str | None:
    """Run a test command. Return the first test that fails, or None if no test has failed within this time."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))

    environ = {**os.environ, "PYTHONPATH": os.path.join(folder, ".mutant"), "XPC_CACHE": "off",
               "XPC_PUBLISHED": PUBLISHED}  # fmt: skip
    # Python may keep the bytecode of the copy's modules: compiling them anew would take longer than most tests
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        process = subprocess.Popen(
            words, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            preexec_fn=limited, start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(None if minutes is None else 60 * minutes)
        except subprocess.TimeoutExpired:
            status = 0
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        lines = output.read().splitlines()
    if status == 0 or (status == 5 and "::" not in words[-1]):  # a room may have no slow tests, or only these
        return None
    if status == 5:
        raise RuntimeError("no test ran: make the map anew with --map\n" + "\n".join(lines[-5:]))
    if missing := {os.path.relpath(line[len(NOT_FOUND) :], folder) for line in lines if line.startswith(NOT_FOUND)}:
        # the mutant renames or removes cases of these tests, which no test notices: run all of their cases instead
        words = [one for one in words if one.partition("[")[0] not in missing] + sorted(missing.difference(words))
        return noticed(folder, words, minutes) if any("::" in one for one in words) else None
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return failed[0] if failed else f"status {status}: {lines[-1] if lines else ''}"


def survivors(before: dict[tuple[object, ...], dict[str, object]]) -> list[Mutation]:
    """The mutations that survived an earlier run and whose lines still exist. If a file has such a line several times,
    the mutation gets the line that is nearest to the old line number.
    """
    out: list[Mutation] = []
    for name, result in before.items():
        file, text, old, new = map(str, name)
        if result["noticed"] is not None or not os.path.exists(os.path.join(REPOSITORY, file)):
            continue
        with open(os.path.join(REPOSITORY, file), "rb") as handle:
            source = handle.read()
        lines = [line.decode().strip() for line in source.splitlines()]
        same = [
            one
            for one in Finder(file, source).all()
            if (lines[one.line - 1], source[one.start : one.end].decode(), one.new) == (text, old, new)
        ]
        out += sorted(same, key=lambda one: abs(one.line - int(str(result["line"]))))[:1]
    return out


def rounds(one: Mutation, known: Map | None, seed: int) -> Iterator[list[str]]:
    """The commands of fast tests for a mutant: first the tests of its room that reach its line, because these notice
    most mutants and need few imports, then a few of the others, then all others, then all tests of its room. `known` is
    None for a mutant that survived an earlier run.
    """
    room = tuple(slow_tests(one.file))
    if known is None:
        yield fast("-x", *room)
        yield fast("-x", "-p", "no:pytest-lsp")
        return
    tests = known.tests(one.file, one.line) if known.reached(one.file, one.line) else []
    random.Random(f"{seed} {one.file} {one.line}").shuffle(tests)
    tests.sort(key=lambda name: "test_cli" in name or "hostile" in name)  # tests that start processes run last
    near = [name for name in tests if name.startswith(room)]
    others = [name for name in tests if not name.startswith(room)]
    for part in (near, others[:AT_ONCE], others[AT_ONCE:], room):
        if part:
            yield fast("-x", *part)


def examined(one: Mutation, known: Map | None, copies: Copies, seed: int) -> dict[str, object]:
    """Test one mutant; returns its line for results.jsonl."""
    folder = copies.folder()
    path = os.path.join(folder, one.file)
    with open(os.path.join(REPOSITORY, one.file), "rb") as handle:
        source = handle.read()
    try:
        with open(path, "wb") as out:
            out.write(one.applied(source))
        copies.touch(path)
        by = next(filter(None, (noticed(folder, words) for words in rounds(one, known, seed))), None)
        by_slow = None if by else noticed(folder, slow_command(*slow_tests(one.file)), MINUTES)
    finally:
        with open(path, "wb") as out:
            out.write(source)
        copies.touch(path)
    if by_slow and not fails_anyway(folder, by_slow):
        by = by_slow
    return {"file": one.file, "line": one.line, "kind": one.kind, "old": source[one.start : one.end].decode(),
            "new": one.new, "text": source.splitlines()[one.line - 1].decode().strip(), "noticed": by}  # fmt: skip


def fails_anyway(folder: str, failed: str) -> bool:
    """Whether a slow test fails without the mutation, too, for example because a program is not installed. `failed` is
    its line in the output of pytest.
    """
    kind, _, test = failed.partition(" - ")[0].partition(" ")
    return kind in ("FAILED", "ERROR") and noticed(folder, slow_command(test), MINUTES) is not None


def named(one: dict[str, object]) -> tuple[object, ...]:
    """The key of a result: the file, the text of the line, the replaced piece and its replacement. A mutant of an
    edited line is therefore a new mutant.
    """
    return tuple(one[key] for key in ("file", "text", "old", "new"))


def main() -> int:
    """Test the mutants. The exit status is 1 if the tests failed for fewer than 95 % of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", type=int, default=400)
    parser.add_argument("--since", help="only files that a commit has changed since this date")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", default="mutants")
    parser.add_argument("--map", action="store_true", help="measure again which tests run which lines")
    parser.add_argument("--slow", action="store_true", help="change lines of the runtime that only run in training")
    parser.add_argument(
        "--again", action="store_true", help="try the surviving mutants again, with all tests that run their line"
    )
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    if options.map and os.path.exists(os.path.join(options.out, "map.sqlite")):
        os.remove(os.path.join(options.out, "map.sqlite"))
    results = os.path.join(options.out, "results.jsonl")
    before: dict[tuple[object, ...], dict[str, object]] = {}
    if os.path.exists(results):
        with open(results, encoding="utf-8") as handle:
            before = {named(one): one for one in map(json.loads, handle)}
    known = None if options.again else Map(made_map(options.out))
    if known is None:
        chosen = survivors(before)
    else:
        chosen = chosen_mutations(options.places, options.seed, known, options.slow, options.since)
    copies, found = Copies(), []

    def one(mutation: Mutation) -> dict[str, object]:
        with open(os.path.join(REPOSITORY, mutation.file), "rb") as handle:
            source = handle.read()
        name = (mutation.file, source.splitlines()[mutation.line - 1].decode().strip(),
                source[mutation.start : mutation.end].decode(), mutation.new)  # fmt: skip
        if name in before and known is not None:
            return before[name]
        result = examined(mutation, known, copies, options.seed)
        with open(results, "a", encoding="utf-8") as out:
            out.write(json.dumps(result) + "\n")
        if result["noticed"] is None:
            print(f"SURVIVED {result['file']}:{result['line']} ({result['kind']}): {result['old']!r} -> "
                  f"{result['new']!r}\n    {result['text']}", flush=True)  # fmt: skip
        return result

    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            found = list(pool.map(one, chosen))
    finally:
        copies.close()
    return report(found)


def report(found: list[dict[str, object]]) -> int:
    """Print the counts by group, and the mutants that survived."""
    for group, names in files().items():
        here = [one for one in found if one["file"] in names]
        if here:
            print(f"{group}: {sum(one['noticed'] is not None for one in here)} of {len(here)} noticed")
    good = sum(one["noticed"] is not None for one in found)
    for one in found:
        if one["noticed"] is None:
            print(f"survived: {one['file']}:{one['line']} ({one['kind']}): {one['old']!r} -> {one['new']!r}")
    print(f"{good} of {len(found)} noticed ({100 * good / max(1, len(found)):.1f} %)")
    return 0 if good >= 0.95 * len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
