"""The VS Code extension: its grammar is generated from the table of settings, and vsce packages it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import zipfile

import pytest
from textmate import PATH, grammar

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EDITORS = os.path.join(ROOT, "editors")

SPEC = """\
train qwen2.5-3b on alpaca with zero2 gbs=528
optimizer adamw { lr = 1e-5 } # a rate
save "out" { every = 5% }
"""


def colours(line: str) -> dict[str, str]:
    """The scope (kind of colour) that an editor gives to each piece of a line. The pattern that matches earliest wins;
    of two that match at the same offset, the first in the grammar wins.
    """
    out, at = {}, 0
    patterns = [(one["name"], re.compile(one["match"], re.M)) for one in json.loads(grammar())["patterns"]]
    while at < len(line):
        found = [(match.start(), number, name, match) for number, (name, one) in enumerate(patterns)
                 if (match := one.search(line, at)) and match[0]]  # fmt: skip
        if not found:
            break
        _, _, name, match = min(found, key=lambda one: one[:2])
        out[match[0].strip()] = name
        at = match.end()
    return out


def test_the_grammar_is_fresh():
    with open(PATH, encoding="utf-8") as handle:
        assert handle.read() == grammar(), "`make docs` rewrites it"


def test_words_are_coloured_by_their_kind():
    first, second, third = map(colours, SPEC.splitlines())
    assert first["train"] == "keyword.control.xp"
    assert first["zero2"] == "constant.language.xp"
    assert first["gbs"] == second["lr"] == "variable.other.property.xp"
    assert "qwen2.5-3b" not in first
    assert "3b" not in first, "digits inside a name are not a number"
    assert second["1e-5"] == third["5%"] == "constant.numeric.xp"
    assert second["# a rate"] == "comment.line.number-sign.xp"
    assert second["optimizer"] == third["save"] == "entity.name.type.clause.xp"
    assert third['"out"'] == "string.quoted.double.xp"


@pytest.mark.nightly
def test_the_extension_packages_with_vsce(tmp_path):
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path / "vscode"
    shutil.copytree(os.path.join(EDITORS, "vscode"), folder, ignore=shutil.ignore_patterns("node_modules"))
    shutil.copy(os.path.join(ROOT, "LICENSE"), folder)
    subprocess.run(["npm", "install", "--no-audit", "--no-fund"], cwd=folder, check=True)
    packaged = ["npx", "vsce", "package", "--allow-missing-repository", "--out", "xpc.vsix"]
    subprocess.run(packaged, cwd=folder, check=True)
    with zipfile.ZipFile(folder / "xpc.vsix") as archive:
        names = archive.namelist()
    assert {"extension/extension.js", "extension/syntaxes/xp.tmLanguage.json"} <= set(names)
    assert any(name.startswith("extension/node_modules/vscode-languageclient/") for name in names)
