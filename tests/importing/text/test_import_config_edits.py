"""A shell script may change a configuration file with sed, yq or jq. The import computes the changed text."""

from __future__ import annotations

import json
import subprocess

import pytest

from xpc.compiler.importing.text import config_edits, filters


def test_assignments_of_yq_and_jq_change_the_text() -> None:
    yaml = "a: 1  # first\nb:\n  c: x\n  d:\n  - 1\n  - 2\nlist:\n- 1\nlast: {e: 1}\n"

    def made(program: str, text: str = yaml, **arguments: str) -> str | None:
        return config_edits.assigned(program, text, arguments, {"LR": "1e-5", "NAME": "yes"})

    assert made(".a = 2") == yaml.replace("a: 1  # first", "a: 2")
    assert made('.b.c = "y"') == yaml.replace("c: x", 'c: "y"')
    assert made(".b.d = [3]") == yaml.replace("d:\n  - 1\n  - 2", "d: [3]")
    assert made(".list = []") == yaml.replace("list:\n- 1", "list: []")
    assert made('.b.new = env(LR) | ."name" = 1') is None
    both = made('.b.new = env(LR) | .["name"] = strenv(NAME)')
    assert both == yaml.replace("- 2", "- 2\n  new: 1e-5") + 'name: "yes"\n'
    assert made(".x.y = true", "") == "x:\n  y: true\n"
    assert made(".last.e = 2") is None, "the value is in braces"
    assert made(".a = $x", x="3") == yaml.replace("a: 1  # first", "a: 3")
    assert made(".a = $y") is None
    table = '{"a": {"b": 1}, "c": "auto"}'
    changed = json.loads(made(".a.b = ($n | tonumber) | .c = $ENV.NAME", table, n='"4"') or "")
    assert changed == {"a": {"b": 4}, "c": "yes"}
    words = ["jq", "--arg", "lr", "1e-5", "--argjson", "n", "4", ".a = $n", "ds.json"]
    assert config_edits.split(words) == (".a = $n", "ds.json", {"lr": '"1e-5"', "n": "4"})


@pytest.mark.parametrize("pattern", [
    "lr: .*", r"^\(\s*model:\) ", r"\(lr:\) [0-9.e-]*", "b: [0-9]*$", "/org", "lr: .* x", r"b: [0-9]\+",
])  # fmt: skip
def test_patterns_of_sed_find_what_sed_finds(pattern: str) -> None:
    text = "lr: 1e-5 # x\n  model: org/a\nb: 3\nlr: lr: 1.5\n"
    group = r"\1" if r"\(" in pattern else ""
    for command in (f"s|{pattern}|{group}N|", f"s|{pattern}|N|g"):
        found = subprocess.run(["sed", command], input=text, text=True, capture_output=True, check=True).stdout
        assert filters.replaced(command, text) == found


def test_a_long_line_takes_linear_time() -> None:
    line = "a" * 400_000
    assert filters.replaced("s/a[a]*b/c/g", line) is None
    assert filters.replaced("s/a.*b/c/g", line) == line
