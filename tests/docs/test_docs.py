"""The documents say what is true: the generated page is fresh, and what the README shows is what the tool prints."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator

import pytest
from compile_support import put, read, xpc
from evidence import PATH, evidence, measured, stated
from rules_page import page as rules_page

from xpc.compiler import stacks
from xpc.compiler.explain.reference import reference
from xpc.compiler.explain.stack_pages import file_name, with_menu
from xpc.compiler.explain.stack_pages import page as stack_page

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def test_reference_is_fresh():
    assert read("docs", "reference.md") == reference(), "`make docs` rewrites it"


def test_evidence_is_fresh():
    with open(PATH, encoding="utf-8") as handle:
        assert handle.read() == evidence(stated()), "`make docs` rewrites it"


@pytest.mark.slow
def test_the_stacks_that_a_rule_holds_for_are_measured():
    assert measured() == stated(), "`make docs` rewrites it"


@pytest.mark.parametrize("name", stacks.names())
def test_page_of_a_stack_is_fresh(name):
    page = read("docs", file_name(name))
    assert page == stack_page(name), "`make docs` rewrites it"
    assert f"]({file_name(name)})" in read("docs", "stacks.md"), "`make docs` rewrites it"
    assert all(f"`{one}` | {version}" in page for one, version in stacks.load(name).pins.items())


def test_rules_page_is_fresh():
    assert read("docs", "rules.md") == rules_page(), "`make docs` rewrites it"


def test_picture_of_the_readme_is_what_the_tool_prints():
    spec = importlib.util.spec_from_file_location("pictures", os.path.join(ROOT, "docs", "pictures.py"))
    assert spec is not None
    assert spec.loader is not None
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    assert read("docs", "error.svg") == pictures.error(), "`make docs` writes it anew"


def test_readme_is_short():
    assert len(read("README.md").splitlines()) <= 140


def _replayed(block: str, folder: str) -> Iterator[tuple[str, str, str]]:
    """Each command of a block with what the page shows of its output and what it prints; `echo` writes a spec."""
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.M):
        if written := re.fullmatch(r"echo '(.*)' > (\S+)", command):
            put(folder, {written[2]: written[1] + "\n"})
        else:
            yield command, shown, xpc(*command.split()[1:], cwd=folder).stdout.decode()


def test_changelog_shows_real_output(tmp_path):
    os.symlink(os.path.join(ROOT, "specs"), tmp_path / "specs")
    blocks = re.findall(r"```\n(\$ .*?)```", read("CHANGELOG.md"), re.S)
    sessions = [one for block in blocks for one in _replayed(block, str(tmp_path))]
    assert len(sessions) >= 4
    for command, shown, printed in sessions:
        # Three dots stand for lines that the page leaves out.
        excerpts = map(re.escape, re.split(r"^\.\.\.\n", shown, flags=re.M))
        assert re.match("(?s:.*)".join(excerpts), printed), f"{command} prints\n{printed}"


def test_a_row_of_a_table_is_one_line():
    for name in os.listdir(os.path.join(ROOT, "docs")):
        if name.endswith(".md"):
            text = re.sub(r"^```.*?^```", "", read("docs", name), flags=re.S | re.M)
            assert not [line for line in text.splitlines() if line.startswith("|") and not line.endswith("|")], name


def test_links_of_the_pages_exist():
    pages = [os.path.join("docs", name) for name in ("language.md", "methods.md")]
    for page in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", *pages):
        for target in re.findall(r"\]\(([^)#:]+)\)", read(page)):
            assert os.path.exists(os.path.join(ROOT, os.path.dirname(page), target)), f"{page} links to {target}"


def test_every_page_is_in_the_menu_of_the_site():
    menu = set(re.findall(r"^ +- ([\w.-]+\.md)$", read("mkdocs.yml"), re.M))
    assert menu == {name for name in os.listdir(os.path.join(ROOT, "docs")) if name.endswith(".md")}


def test_the_menu_has_the_page_of_a_new_stack():
    menu, newest = read("mkdocs.yml"), f"      - {file_name(stacks.DEFAULT)}\n"
    assert with_menu(menu) == with_menu(menu.replace(newest, "")) == menu
