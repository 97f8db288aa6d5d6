"""docs/environment.md lists the variables that the sources read, and docs/outputs.md the keys that they write."""

from __future__ import annotations

import os
import re

from compile_support import read

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def sources(*folders: str) -> str:
    paths = [
        os.path.join(where, name)
        for folder in folders
        for where, _, names in os.walk(os.path.join(ROOT, folder))
        for name in names
        if name.endswith((".py", ".sh"))
    ]
    return "".join(read(os.path.relpath(path, ROOT)) for path in paths)


def test_every_variable_of_ours_has_a_line():
    used = set(re.findall(r"\bXPC_[A-Z_]+[A-Z]\b", sources("compiler", "grammar", "runtime")))
    named = set(re.findall(r"\bXPC_[A-Z_]+[A-Z]\b", read("docs", "environment.md")))
    assert len(used) >= 10
    assert not used - named, "docs/environment.md has no line for these variables"
    assert not named - used, "nothing reads these variables any more; remove them from docs/environment.md"


def test_the_keys_of_the_summary_are_those_that_are_written():
    source = sources("runtime")
    body = source[source.index("        facts = {", source.index("def finish(")) :]
    written = set(re.findall(r'^            "(\w+)":', body.partition("        }\n")[0], re.M))
    page = read("docs", "outputs.md")
    table = page[page.index("## summary.json") :]
    named = {name for row in re.findall(r"^\| (`.*?) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert len(written) >= 10
    assert written == named


def test_the_counts_of_rows_are_those_that_are_written():
    found = re.search(r'names = \(("rows", [^)]*)\)', sources("runtime"))
    assert found is not None
    page = read("docs", "outputs.md")
    for name in re.findall(r'"(\w+)"', found[1]):
        assert f"`{name}`" in page[page.index("`data` has these counts") :], name


def test_the_messages_of_the_troubleshooting_page_are_those_of_the_program():
    cells = [line.split("|")[1] for line in read("docs", "troubleshooting.md").splitlines() if line.startswith("| ")]
    quoted = [one for cell in cells for one in re.findall(r"`([^`]+)`", cell)]
    messages = [one for one in quoted if not re.match(r"(error\[)?XP\d|did you mean", one)]
    output = re.sub(r'"\s*\n\s*f?"', "", sources("compiler", "runtime"))
    output = re.sub(
        r"\{(loss|bad|word|name|used|signal\.Signals\(-status\)\.name)\}",
        lambda found: {"word": "nan"}.get(found[1], "SIGKILL" * found[1].endswith("name")),
        output,
    )
    assert len(messages) > 25
    assert [one for one in messages if one not in output] == []
