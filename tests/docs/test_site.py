"""The site of the docs: it is built as `make site` builds it, in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib

import pytest

pytestmark = pytest.mark.nightly

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def test_every_page_is_built_and_no_link_is_broken(tmp_path):
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as handle:
        needs = tomllib.load(handle)["project"]["optional-dependencies"]["site"]
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    bin = tmp_path / "venv" / "bin"
    subprocess.run([bin / "python", "-m", "pip", "install", "--quiet", *needs], check=True)
    built = subprocess.run(
        [bin / "mkdocs", "build", "--site-dir", tmp_path / "site"],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    pages = {name.removesuffix(".md") for name in os.listdir(os.path.join(ROOT, "docs")) if name.endswith(".md")}
    assert {f"{name}.html" for name in (*pages, "index")} <= set(os.listdir(tmp_path / "site"))
    with open(tmp_path / "site" / "recipes.html", encoding="utf-8") as handle:
        assert 'href="repository/specs/' in handle.read()
    assert (tmp_path / "site" / "repository" / "specs" / "vicuna-7b-sharegpt-lora-1xa100.xp.txt").exists()
