"""The documents say what is true: the generated page is fresh, and what the README shows is what the tool prints."""

from __future__ import annotations

import os
import re
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "evidence"))

from evidence import PATH, evidence, measured, stated
from rules_page import page as rules_page

from xpc.compiler import stacks
from xpc.compiler.explain.reference import reference
from xpc.compiler.explain.stack_pages import file_name
from xpc.compiler.explain.stack_pages import page as stack_page
from xpc.compiler.files import Workspace
from xpc.compiler.language.schema import CLAUSES
from xpc.compiler.methods import METHODS
from xpc.compiler.pipeline import check_text, compile_text
from xpc.compiler.render import render
from xpc.grammar.parse import parse
from xpc.grammar.source import Source

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _read(*names: str) -> str:
    with open(os.path.join(ROOT, *names), encoding="utf-8") as handle:
        return handle.read()


def test_reference_is_fresh():
    assert _read("docs", "reference.md") == reference(), "`make docs` writes it anew"


def test_evidence_is_fresh():
    with open(PATH, encoding="utf-8") as handle:
        assert handle.read() == evidence(stated()), "`make docs` writes it anew"


@pytest.mark.slow
def test_the_stacks_that_a_rule_holds_for_are_measured():
    assert measured() == stated(), "`make docs` writes it anew"


@pytest.mark.parametrize("name", stacks.names())
def test_page_of_a_stack_is_fresh(name):
    page = _read("docs", file_name(name))
    assert page == stack_page(name), "`make docs` writes it anew"
    assert f"]({file_name(name)})" in _read("docs", "stacks.md"), "`make docs` writes it anew"
    assert all(f"`{one}` | {version}" in page for one, version in stacks.load(name).pins.items())


def test_rules_page_is_fresh():
    assert _read("docs", "rules.md") == rules_page(), "`make docs` writes it anew"


def _sessions(page: str) -> list[tuple[str, str, str]]:
    """`$ cat NAME` or `$ echo` with the spec, then `$ xpc check NAME` with its output, from fenced blocks."""
    found = []
    for block in re.findall(r"```\n(.*?)```", page, re.S):
        match = re.match(r"\$ echo '(.*?)' > (\S+)\n\$ xpc check (\S+)\n(.*)", block, re.S)
        if match:
            spec, name, checked, output = match.groups()
            assert name == checked
            found.append((spec + "\n", name, output))
    return found


def test_sessions_of_the_readme_are_what_the_tool_prints():
    sessions = _sessions(_read("README.md"))
    assert len(sessions) >= 2
    for spec, name, output in sessions:
        problems = check_text(spec.encode(), name, Workspace(ROOT)).problems
        assert render(problems, "full") == output


def test_changelog_shows_real_output():
    for spec, name, output in _sessions(_read("CHANGELOG.md")):
        shown = output.removeprefix("...\n").rstrip("\n")
        assert shown in render(check_text(spec.encode(), name, Workspace(ROOT)).problems, "full")


def test_links_of_the_pages_exist():
    pages = [os.path.join("docs", name) for name in ("language.md", "methods.md")]
    for page in ("README.md", "CONTRIBUTING.md", *pages):
        for target in re.findall(r"\]\(([^)#:]+)\)", _read(page)):
            assert os.path.exists(os.path.join(ROOT, os.path.dirname(page), target)), f"{page} links to {target}"


MACHINE = 'hardware 8 x h200-141gb\nsave "out/run"\n'


def test_specs_of_the_methods_page_compile():
    specs = re.findall(r"```\n(.*?)```", _read("docs", "methods.md"), re.S)
    seen = []
    for spec in specs:
        text = "xpc 1\n" + spec + MACHINE + ("" if "batch" in spec else "batch gbs=128\n")
        files, found = compile_text(text.encode(), "page.xp", Workspace(ROOT))
        told = [one for one in found.problems if one.severity != "note"]
        assert files is not None, render(found.problems, "full")
        assert not told, render(told, "full")
        seen.append(str(found.spec.get("method")))
    assert set(seen) == set(METHODS)


DOCS = sorted(name for name in os.listdir(os.path.join(ROOT, "docs")) if name.endswith(".md"))
PAGES = ("README.md", *(os.path.join("docs", name) for name in DOCS))
ANY = f"(?:{'|'.join(CLAUSES)})"
HEADER = "train qwen2.5-3b on capybara for 100 steps\n"
SPEC_LINE = re.compile(rf"(?:train|extends|xpc 1)\b|{ANY}(?: [^=|$]*)?\{{|{ANY} \S")
INLINE = re.compile(ANY + r"(?: [^=]*)?\{.*\}")


def _fenced() -> list[tuple[str, str]]:
    """Every fenced block of the pages that is a spec or a part of one, with the page.

    Pages whose specs come with files of their own are tried by test_tutorial_pages.py.
    """
    found = []
    for page in PAGES:
        if os.path.basename(page) in ("tutorial.md", "data.md", "cookbook.md"):
            continue
        for block in re.findall(r"^```\w*\n(.*?)^```", _read(page), re.S | re.M):
            lines = [line for line in block.splitlines() if line.strip() and not line.lstrip().startswith("#")]
            if lines and SPEC_LINE.match(lines[0]):
                found.append((page, block))
    return found


def _inline() -> list[tuple[str, str]]:
    """Every `clause { ... }` that a page writes in a line of text."""
    return [
        (page, text)
        for page in PAGES
        for text in re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", _read(page), flags=re.S))
        if INLINE.fullmatch(text) and "..." not in text
    ]


# What may be wrong with a clause that a page names without the rest of its spec.
BARE = ("XP104", "XP114", "XP124")


def _misnamed(text: str) -> list[str]:
    """Errors of syntax and of names in a part of a spec."""
    found = check_text((HEADER + text + "\n").encode(), "page.xp", Workspace(ROOT)).problems
    errors = [one for one in found if one.severity == "error" and one.code not in BARE]
    return [f"{one.code} {one.message}" for one in errors if one.code.startswith(("XP0", "XP1"))]


def test_every_spec_of_the_pages_compiles():
    whole = [(page, text) for page, text in _fenced() if "train " in text]
    assert len(whole) >= 10
    for page, text in whole:
        found = check_text(text.encode(), "page.xp", Workspace(ROOT)).problems
        assert not [one for one in found if one.severity == "error"], f"{page}:\n{render(found, 'full')}"


def test_every_clause_of_the_pages_is_legal():
    fenced, inline = [(page, text) for page, text in _fenced() if "train " not in text], _inline()
    assert len(fenced) >= 8
    assert len(inline) >= 25
    for page, text in (*fenced, *inline):
        source = Source(page, re.sub(r"^extends .*\n", "", text))
        file, wrong = parse(source)
        assert not wrong, (page, text, wrong)
        # One by one: a page may show two engines of `launch` in one block.
        for statement in file.statements:
            one = source.text[statement.span.start : statement.span.end]
            assert not _misnamed(one), (page, one)
