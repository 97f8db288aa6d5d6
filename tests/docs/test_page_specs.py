"""Every spec on the pages is legal. Every `setting = value` in running text is legal as a part of a spec."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest
from compile_support import read

from xpc.compiler import stacks
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language.launch_settings import ENGINES
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.schema import BY_PATH, CLAUSES
from xpc.compiler.pipeline import check_text, compile_text
from xpc.compiler.render import render
from xpc.grammar.parse import parse
from xpc.grammar.source import Source

pytestmark = pytest.mark.slow

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DOCS = sorted(name for name in os.listdir(os.path.join(ROOT, "docs")) if name.endswith(".md"))
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", *(os.path.join("docs", name) for name in DOCS))
"""The pages whose specs are tested, including `docs/rules.md`."""
ANY = f"(?:{'|'.join(CLAUSES)})"
NAMES = {*CLAUSES, *BY_PATH, *(path.rpartition(".")[2] for path in BY_PATH)}
HEADER = "train qwen2.5-3b on capybara for 100 steps\n"
MACHINE = 'hardware 8 x h200-141gb\nsave "out/run"\n'
SPEC_LINE = re.compile(rf"(?:train|extends|xpc 1)\b|{ANY}(?: [^=|$]*)?\{{|{ANY}\(|{ANY} \S")
FILES_OF_THEIR_OWN = ("README.md", "tutorial.md", "data.md", "raw-text.md", "cookbook.md")
"""Pages whose specs read files that are shown on the same page. test_tutorial_pages.py tests these pages."""
NO_SETTING = {
    "warmup = 0.03": "shown as refused, with its help",
    "save { warmup = 3% }": "shown as a mistake",
    "train M on chat": "shown as a mistake",
    "data chats { ... }": "shown as a mistake",
    "lr=1e-06,schedule=cosine": "the name of a sweep's member",
    "lr=1e-06,seed=2": "the name of a sweep's member",
    "train on for with extends x xpc": "the list of keywords",
    "data NAME { ... }": "a block without its contents",
    "micro = 2: 40.1 GiB, 21% faster; checkpointing goes off": "a line of a plan",
    'train "out/lora/merged"': "the beginning of a sentence",
}
"""Maps a text in backticks that looks like a setting with a value to the reason why it need not be legal."""
WORDS = {"MODEL": "qwen2.5-3b", "DATA": "capybara", "LENGTH": "3 epochs", "ENGINE": "slurm", "NAME": "mix", "N": "2"}
"""Maps placeholders on the pages to a name or number for each."""


@pytest.fixture
def files(tmp_path):
    """A folder with the files that specs on the pages name."""
    search = (
        'def search(query: str) -> str:\n    """Search.\n\n    Args:\n        query: words\n    """\n    return query\n'
    )
    (tmp_path / "tools.py").write_text(search, encoding="utf-8")
    (tmp_path / "env.py").write_text("class Maze:\n    def reset(self, **row):\n        pass\n", encoding="utf-8")
    turns = '[{"role": "user", "content": "%d + 1 = ?"}, {"role": "assistant", "content": "%d"}]'
    rows = ['{"messages": ' + turns % (number, number + 1) + "}\n" for number in range(160)]
    (tmp_path / "train.jsonl").write_text("".join(rows), encoding="utf-8")
    (tmp_path / "base.xp").write_text("xpc 1\nhardware 1 x rtx-4090\nlora\n", encoding="utf-8")
    return Workspace(str(tmp_path))


def test_specs_of_the_methods_page_compile(files):
    found = re.findall(r"```(\w*)\n(.*?)```", read("docs/methods.md"), re.S)
    specs = [text for language, text in found if not language]
    seen = []
    for spec in specs:
        text = "xpc 1\n" + spec + MACHINE + ("" if "batch" in spec else "batch gbs=128\n")
        bundle, found = compile_text(text.encode(), "page.xp", files)
        reported = [one for one in found.problems if one.severity != "note"]
        assert bundle is not None, render(found.problems, "full")
        assert not reported, render(reported, "full")
        seen.append(str(found.spec.get("method")))
    assert set(seen) == set(METHODS)


def first_line(block: str) -> str:
    """The first line of a text that is neither empty nor only a comment."""
    return next((line for line in block.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")


def _fenced() -> list[tuple[str, str]]:
    """Every fenced block of the pages that is a spec or a part of a spec, with its page."""
    found = []
    for page in PAGES:
        if os.path.basename(page) in FILES_OF_THEIR_OWN:
            continue
        for block in re.findall(r"^```\w*\n(.*?)^```", read(page), re.S | re.M):
            if SPEC_LINE.match(first_line(block)):
                found.append((page, block))
    return found


def _wrong(text: str, allowed: tuple[str, ...] = ()) -> list[str]:
    """The errors of syntax and names that a check finds in a text."""
    found = check_text(text.encode(), "page.xp", Workspace(ROOT)).problems
    errors = [one for one in found if one.severity == "error" and one.code not in allowed]
    return [f"{one.code} {one.message}" for one in errors if one.code.startswith(("XP0", "XP1"))]


BARE = ("XP104", "XP110", "XP114", "XP118", "XP119", "XP123", "XP124")
"""Codes of errors that are allowed if a page shows a clause without the rest of its spec. They report missing files,
`data` blocks and columns.
"""


def test_every_spec_of_the_pages_compiles(files):
    whole = [(page, text) for page, text in _fenced() if "train " in text]
    assert len(whole) >= 10
    for page, text in whole:
        found = check_text(text.encode(), "page.xp", files).problems
        assert not [one for one in found if one.severity == "error"], f"{page}:\n{render(found, 'full')}"


def test_every_clause_of_the_pages_is_legal():
    fenced = [(page, text) for page, text in _fenced() if "train " not in text]
    assert len(fenced) >= 8
    for page, text in fenced:
        source = Source(page, re.sub(r"^extends .*\n", "", text))
        file, wrong = parse(source)
        assert not wrong, (page, text, wrong)
        # Each line is tested alone, because a page may show two `launch` engines in one block, and a spec accepts only
        # one.
        for statement in file.statements:
            one = source.text[statement.span.start : statement.span.end]
            assert not _wrong(f"{HEADER}{one}\n", BARE), (page, one)


def _inline() -> list[tuple[str, str]]:
    """Every text in backticks within running text that looks like `clause ...`, `setting = value`, `setting(...)` or
    `setting { ... }`, without repeats.
    """
    found: dict[str, str] = {}
    for page in PAGES:
        for text in re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", read(page), flags=re.S | re.M)):
            text = text.replace(r"\|", "|")
            name = re.match(r"[\w.]+", text)
            if name is None or name[0] not in NAMES:
                continue
            if re.match(r"\s*(=|\{|\(.)" + (r"|\s[^-]" if name[0] in CLAUSES else ""), text[name.end() :]):
                found.setdefault(text, page)
    return [(page, text) for text, page in found.items()]


def _locations(text: str) -> Iterator[str]:
    """Yield several specs that contain the text. Each spec has the text at another place where a reader could write it:
    on its own line, after `with` in the first line, or inside a clause that has a setting of this name.
    """
    if text.startswith("train "):
        yield text + "\n"
        return
    yield f"{HEADER}{text}\n"
    yield f"{HEADER.rstrip()} with {text}\n"
    name = re.match(r"[\w.]+", text)[0]
    for path in BY_PATH:
        *outer, last = path.split(".")
        if last == name and outer:
            inside = re.sub(r"^(\w+) \{ (.*) \}$", r"\1(\2)", text)
            for one in reversed(outer[1:]):
                inside = f"{one}({inside})"
            heads = {"method": METHODS, "launch": ENGINES}.get(outer[0], ("",))
            for head in heads:
                yield f"{HEADER}{outer[0]} {head}({inside})\n"
    for head in METHODS:
        yield f"{HEADER}{re.sub('^method', f'method {head}', text) if name == 'method' else f'method {head}({text})'}\n"


def _legal(text: str) -> bool:
    """Whether a text from the documentation is legal. `_locations` makes several specs that contain the text. On at
    least one stack, at least one of these specs must have no errors of syntax and names.

    Three dots stand for any value, so the test checks only the names around the dots. If the text has alternatives,
    such as `a | b`, the test tries the first one.
    """
    text = re.sub(r"\b[A-Z]+\b", lambda found: WORDS.get(found[0], found[0]), re.sub(r" \| [^}]*", " ", text)).strip()
    allowed = BARE
    if "..." in text:
        for dots, intended in (
            ("on ...", "on capybara"),
            ("with ...", "with bf16"),
            ("{ ... }", "{\n}"),
            ("(...)", ""),
            ("...", "0"),
        ):
            text = text.replace(dots, intended)
        allowed = (*BARE, "XP105", "XP106", "XP107")
    return any(
        not _wrong(f"{location}{target}", allowed)
        for location in _locations(text)
        for target in ("", *(f"target {name}\n" for name in stacks.names()))
    )


def test_every_setting_in_a_line_of_text_is_legal():
    inline = _inline()
    assert len(inline) >= 240
    wrong = [(page, text) for page, text in inline if not _legal(text)]
    assert [one for one in wrong if one[1] not in NO_SETTING] == []
    assert {text for _, text in wrong} == set(NO_SETTING), (
        "the list has a text that is now legal, or that no page has any more"
    )
