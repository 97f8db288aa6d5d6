"""Generated pages are up to date, and the output that the README and the CHANGELOG show is what the commands print."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator

import pytest
from compile_support import put, read, xpc
from evidence import PATH, evidence, measured, stated
from rules_page import pages as rules_pages
from rules_page import topics

from xpc.compiler import registry, stacks
from xpc.compiler.explain.reference import page_of
from xpc.compiler.explain.reference import pages as reference
from xpc.compiler.explain.stack_pages import file_name, with_menu
from xpc.compiler.explain.stack_pages import page as stack_page
from xpc.compiler.language.codes import CODES
from xpc.compiler.language.schema import TABLE
from xpc.compiler.rules import codes
from xpc.grammar.codes import CODES as SYNTAX

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def generated(folder: str) -> dict[str, str]:
    """Read docs/FOLDER.md and every page in docs/FOLDER/."""
    paths = [f"{folder}.md", *(f"{folder}/{name}" for name in sorted(os.listdir(os.path.join(ROOT, "docs", folder))))]
    return {path: read("docs", path) for path in paths}


def test_reference_is_fresh():
    assert generated("reference") == reference(), "`make docs` rewrites it"


def test_every_setting_has_an_anchor_and_a_link():
    pages = generated("reference")
    for row in TABLE:
        page = f"reference/{page_of(row.path.partition('.')[0])}.md"
        assert f'<a id="{row.path}"></a>' in pages[page], row.path
        assert f"[{row.path}]({page}#{row.path})" in pages["reference.md"], row.path


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


def test_rules_pages_are_fresh():
    assert generated("rules") == rules_pages(), "`make docs` rewrites it"


def test_every_code_has_its_old_anchor_and_its_section():
    """Older bundles and pages link to a code as `docs/rules.md#xp310`, so docs/rules.md keeps an anchor for each code,
    next to the link to the code's section.
    """
    pages = generated("rules")
    for code, topic in topics().items():
        anchor = f'<a id="{code.lower()}"></a>'
        assert f"{anchor}[{code} " in pages["rules.md"], code
        assert anchor in pages[f"rules/{topic}.md"], code
    assert {*codes(), *CODES, *SYNTAX} == {*topics()}


def test_pictures_show_what_the_tool_says():
    spec = importlib.util.spec_from_file_location("pictures", os.path.join(ROOT, "docs", "pictures.py"))
    assert spec is not None
    assert spec.loader is not None
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    shown = "".join(read("docs", name) for name in os.listdir(os.path.join(ROOT, "docs")) if name.endswith(".md"))
    for name, draw in pictures.PICTURES.items():
        assert read("docs", name) == draw(), "`make docs` rewrites it"
        assert f"]({name})" in shown + read("README.md").replace("](docs/", "]("), f"no page shows {name}"


def test_readme_is_short():
    assert len(read("README.md").splitlines()) <= 140


def _replayed(block: str, folder: str) -> Iterator[tuple[str, str, str]]:
    """Run the commands in a block. Yield each command, its output on the page, and its real output.

    A line `echo '...' > FILE` is not run as a command: it writes the file that later commands read.
    """
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.M):
        if written := re.fullmatch(r"echo '(.*)' > (\S+)", command):
            put(folder, {written[2]: written[1] + "\n"})
        else:
            yield command, shown, xpc(*command.split()[1:], cwd=folder).stdout.decode()


def test_counts_of_quality_are_current():
    """docs/quality.md states how many rules, recipes, models, GPUs and datasets there are."""
    recipes = len(re.findall(r"^### ", read("docs", "recipes.md"), re.M))
    page = read("docs", "quality.md")
    for count in (
        f"the {len(codes())} rules",
        f"{recipes} published recipes",
        f"{len(registry.model_names())} models, and {len(registry.families())} families",
        f"{len(registry.gpu_names())} GPUs, {len(registry.dataset_names())} datasets",
    ):
        assert count in page, f"docs/quality.md must state: {count}"


def test_changelog_shows_real_output(tmp_path):
    os.symlink(os.path.join(ROOT, "specs"), tmp_path / "specs")
    blocks = re.findall(r"```\n(\$ .*?)```", read("CHANGELOG.md"), re.S)
    sessions = [one for block in blocks for one in _replayed(block, str(tmp_path))]
    assert len(sessions) >= 4
    for command, shown, printed in sessions:
        # Three dots stand for lines that the page omits.
        excerpts = map(re.escape, re.split(r"^\.\.\.\n", shown, flags=re.M))
        assert re.match("(?s:.*)".join(excerpts), printed), f"{command} prints\n{printed}"


def pages_of_docs() -> list[str]:
    """The names of all pages below docs/."""
    folder = os.path.join(ROOT, "docs")
    found = [os.path.join(location, name) for location, _, names in os.walk(folder) for name in names]
    return sorted(os.path.relpath(path, folder) for path in found if path.endswith(".md"))


def test_a_row_of_a_table_is_one_line():
    for name in pages_of_docs():
        text = re.sub(r"^```.*?^```", "", read("docs", name), flags=re.S | re.M)
        assert not [line for line in text.splitlines() if line.startswith("|") and not line.endswith("|")], name


def test_links_of_the_pages_exist():
    pages = [os.path.join("docs", name) for name in ("language.md", "methods.md", "faq.md", "reference.md")]
    for page in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", *pages):
        for target in re.findall(r"\]\(([^)#:]+)\)", read(page)):
            assert os.path.exists(os.path.join(ROOT, os.path.dirname(page), target)), f"{page} links to {target}"


def test_every_page_is_in_the_menu_of_the_site():
    menu = re.findall(r"^ +- (?:\w+: )?([\w./-]+\.md)$", read("mkdocs.yml"), re.M)
    assert sorted(menu) == sorted([*pages_of_docs(), "index.md"])


def test_the_menu_has_the_page_of_a_new_stack():
    menu, newest = read("mkdocs.yml"), f"      - {file_name(stacks.DEFAULT)}\n"
    assert with_menu(menu) == with_menu(menu.replace(newest, "")) == menu
