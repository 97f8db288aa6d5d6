"""Hooks of the site: the README is its first page, and files of the repository that a page links to go along."""

from __future__ import annotations

import os
import re
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUTSIDE = re.compile(r"\]\(\.\./([^)#]+?)/?(?=[)#])")
CARRIED = "repository/"
"""Where a file from outside of docs/ lies in the site. A text file is shown as one: `.txt` is added to its name."""


def _text(*names: str) -> str:
    with open(os.path.join(ROOT, *names), encoding="utf-8") as handle:
        return handle.read()


def _shown(path: str) -> str:
    """The text of a file, or the names in a folder."""
    place = os.path.join(ROOT, path)
    return "\n".join(sorted(os.listdir(place))) if os.path.isdir(place) else _text(path)


def _index() -> str:
    """The README with its links as they are from within docs/."""
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
