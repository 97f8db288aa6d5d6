"""Hooks of the site: the README is its first page, repository files that pages link to are included, `xp` has colours,
and the search prefers pages that answer questions to lists.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from typing import Any

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(ROOT, "docs"))

from xp_lexer import register  # noqa: E402

OUTSIDE = re.compile(r"\]\(\.\./([^)#]+?)/?(?=[)#])")
CARRIED = "repository/"
"""The site's folder for files from outside docs/. `.txt` is added to their names, so that browsers show them."""
BOOST = {
    "faq.md": 1.5,
    "methods.md": 1.2,
    "rules.md": 0.5,
    "rules/": 0.3,
    "recipes.md": 0.5,
    "import-keys.md": 0.3,
    "import-measured.md": 0.3,
    "stack-": 0.2,
    "differential.md": 0.2,
    "requirements.md": 0.4,
    "casts.md": 0.6,
    "reports.md": 0.5,
    "plan-accuracy.md": 0.3,
    "import.md": 0.7,
}
"""Weight of pages in the search, by the beginning of their path; all other pages have the weight 1."""
WIDE = ("rules.md", "reference.md")
"""Pages of long tables, which take the space of the table of contents."""
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.S | re.M)
SPEC = re.compile(r"(?:\s*#.*\n|\s*\n)*(?:xpc 1\b|train \S+ on |extends \"|\w+ ?(?:\w+ )?\{|\w+\([a-z_]+=)", re.M)
WORKER = re.compile(r'(?<=")([./]*)assets/javascripts/workers/(search\.\w+\.min\.js)(?=")')
"""The address of the theme's search in a page; docs/search.js loads it."""
TOPIC = re.compile(r"^\*\*([A-Z][^*\n]*)\.\*\* ", re.M)
"""The beginning of a paragraph with its topic in bold. The topic becomes a heading, so that the search indexes it."""
BAR = re.compile(r"`([^`\n]*\\\|[^`\n]*)`")


def _text(*names: str) -> str:
    with open(os.path.join(ROOT, *names), encoding="utf-8") as handle:
        return handle.read()


def _shown(path: str) -> str:
    """The text that the site shows for a path of the repository: a file's text, or the names in a folder."""
    location = os.path.join(ROOT, path)
    return "\n".join(sorted(os.listdir(location))) if os.path.isdir(location) else _text(path)


def _index() -> str:
    """The README with its links relative to docs/."""
    return re.sub(r"\]\(docs/", "](", re.sub(r"\]\((?!docs/|#|[a-z]+://)", "](../", _text("README.md")))


def on_config(config: Any) -> None:
    """Register the language `xp`, so that its code blocks get syntax colours."""
    register()


def on_files(files: Files, config: Any) -> Files:
    """Add the README as the first page, and a copy of each file outside of docs/ to which a page links."""
    files.append(File.generated(config, "index.md", content=_index()))
    pages = [one for one in files.documentation_pages() if "/" not in one.src_uri]
    linked = {path for one in pages for path in OUTSIDE.findall(one.content_string)}
    for path in sorted(linked):
        files.append(File.generated(config, f"{CARRIED}{path}.txt", content=_shown(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Set the page's weight in the search, and change its Markdown in three ways.

    Links to files outside of docs/ lead to the copies. A code block without a language that begins as a spec becomes
    `xp`. Code with a bar in a table becomes HTML: GitHub needs `\\|`, of which Python-Markdown shows the backslash.
    """
    path = page.file.src_uri
    weight = next((weight for start, weight in BOOST.items() if path.startswith(start)), 1)
    page.meta["search"] = {"boost": weight}
    page.meta["hide"] = ["toc"] if path in WIDE else []
    if "/" not in path:
        markdown = OUTSIDE.sub(lambda found: f"]({CARRIED}{found[1]}.txt", markdown)
    markdown = TOPIC.sub(r"### \1\n\n", markdown)
    markdown = FENCE.sub(_fence, markdown)
    lines = [BAR.sub(_as_html, line) if line.startswith("|") else line for line in markdown.split("\n")]
    return "\n".join(lines)


def on_post_page(output: str, **_: Any) -> str:
    """Make each page load docs/search.js, which extends the theme's search."""
    page, found = WORKER.subn(r"\1search.js?theme=\2", output)
    assert found == 1, "no unique address of the theme's search matches WORKER"
    return page


@event_priority(-100)
def on_post_build(config: Any) -> None:
    """Add two kinds of words to the search index: the questions with which users look for a section (docs/asked.toml),
    and a setting's names in other tools.
    """
    path = os.path.join(config["site_dir"], "search", "search_index.json")
    with open(path, encoding="utf-8") as handle:
        index = json.load(handle)
    names, asked = _names(), tomllib.loads(_text("docs", "asked.toml"))
    for section in index["docs"]:
        if phrases := asked.pop(section["location"], None):
            section["asked"] = phrases
        if section["location"].startswith("reference/"):
            keys = re.findall(r"Decides: (.*)</", section["text"])
            paths = (section["title"], *re.findall(r"<code>(\w+)</code>", "".join(keys)))
            if known := sorted({name for one in paths for name in names.get(one, ())}):
                section["names"] = known
    assert not asked, f"docs/asked.toml has sections that the site does not have: {', '.join(asked)}"
    with open(path, "w", encoding="utf-8") as handle:
        json.dump(index, handle, separators=(",", ":"))


def _names() -> dict[str, list[str]]:
    """The names that other tools have for a setting. A key is the setting's path, or the argument of TRL that the
    setting decides.

    The names are the phrases of compiler/suggest/other_names.toml and the keys of the importers' tables.
    """
    names: dict[str, list[str]] = {}
    for typed, phrases in tomllib.loads(_text("compiler", "suggest", "other_names.toml")).items():
        names.setdefault(typed.partition("=")[0], []).extend(phrase.replace(" ", "_") for phrase in phrases)
    for source in sorted(os.listdir(os.path.join(ROOT, "compiler", "importing"))):
        table = os.path.join("compiler", "importing", source, "keys.toml")
        if os.path.exists(os.path.join(ROOT, table)):
            for key, row in tomllib.loads(_text(table)).items():
                for meaning in {row[kind] for kind in ("setting", "renamed", "read") if kind in row}:
                    names.setdefault(meaning, []).append(key.rpartition(".")[2])
    return names


def _fence(block: re.Match[str]) -> str:
    """Keep only the first word after the opening fence of a code block. Python-Markdown does not recognize a fence with
    more words, such as `json alpaca`, so it would take the closing fence for an opening one, and headings for code.
    """
    language = "xp" if _is_spec(block) else block[1].partition(" ")[0]
    return f"```{language}\n{block[2]}```"


def _is_spec(block: re.Match[str]) -> bool:
    return not block[1] and SPEC.match(block[2]) is not None


def _as_html(code: re.Match[str]) -> str:
    text = code[1].replace("\\|", "|").replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"<code>{text.replace('|', '&#124;')}</code>"
