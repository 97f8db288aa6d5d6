"""The site, built once for the tests of this folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """Build the site and return its folder. `XPC_SITE_PYTHON` names an interpreter that has mkdocs."""
    folder = tmp_path_factory.mktemp("site")
    python = os.environ.get("XPC_SITE_PYTHON") or _installed(folder / "venv")
    built = subprocess.run(
        [python, "-m", "mkdocs", "build", "--site-dir", folder / "site"],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return folder / "site"


def _installed(folder: Path) -> Path:
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as handle:
        needs = tomllib.load(handle)["project"]["optional-dependencies"]["site"]
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", *needs], check=True)
    return folder / "bin" / "python"
