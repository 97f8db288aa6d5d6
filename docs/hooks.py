"""Hooks of the site: the README is its first page, and repository files that pages link to are included."""

from __future__ import annotations

import os
import re
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUTSIDE = re.compile(r"\]\(\.\./([^)#]+?)/?(?=[)#])")
CARRIED = "repository/"
"""The site's folder for files from outside docs/. `.txt` is added to their names, so that browsers show them."""


def _text(*names: str) -> str:
    with open(os.path.join(ROOT, *names), encoding="utf-8") as handle:
        return handle.read()


def _shown(path: str) -> str:
    """The text of a file, or the names in a folder."""
    place = os.path.join(ROOT, path)
    return "\n".join(sorted(os.listdir(place))) if os.path.isdir(place) else _text(path)


def _index() -> str:
    """The README with its links relative to docs/."""
    return re.sub(r"\]\(docs/", "](", re.sub(r"\]\((?!docs/|#|[a-z]+://)", "](../", _text("README.md")))


def on_files(files: Files, config: Any) -> Files:
    """Adds the first page and every linked file."""
    files.append(File.generated(config, "index.md", content=_index()))
    linked = {path for one in list(files.documentation_pages()) for path in OUTSIDE.findall(one.content_string)}
    for path in sorted(linked):
        files.append(File.generated(config, f"{CARRIED}{path}.txt", content=_shown(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to files outside of docs/ lead to the copies."""
    return OUTSIDE.sub(lambda found: f"]({CARRIED}{found[1]}.txt", markdown)
