"""A stack is only its folder: if a copy of the default stack's folder, under another name, is made the default, every
case of a rule has the same result as before.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COPY = "trl-9.9"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package `xpc`. In the copy, the default stack is `COPY`, which is a copy of the real
    default stack.
    """
    location = tmp_path_factory.mktemp("copy")
    package = location / "xpc"
    for part in ("grammar", "compiler", "runtime"):
        shutil.copytree(os.path.join(ROOT, part), package / part, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__init__.py").touch()
    folder = package / "compiler" / "stacks"
    shutil.copytree(folder / DEFAULT, folder / COPY)
    module = folder / "__init__.py"
    text, found = re.subn(r"(?m)^DEFAULT = .*$", f'DEFAULT = "{COPY}"', module.read_text(encoding="utf-8"))
    assert found == 1
    module.write_text(text, encoding="utf-8")
    return location


def test_a_spec_is_compiled_for_the_copy(package: Path) -> None:
    code = "from xpc.compiler import stacks; print(stacks.__file__, stacks.DEFAULT, stacks.load(stacks.DEFAULT).name)"
    done = run(package, "-c", code)
    assert done.stdout.split() == [str(package / "xpc" / "compiler" / "stacks" / "__init__.py"), COPY, COPY]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "file",
    [
        "rules/core/test_rules.py",
        "language/test_language.py",
        "language/test_equivalences.py",
        "lower/test_arguments.py",
        "lower/test_hub.py",
    ],
)
def test_no_case_fails(package: Path, file: str) -> None:
    done = run(package, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", f"tests/{file}")
    assert done.returncode == 0, "\n".join(
        line for line in done.stdout.splitlines() if line.startswith(("FAILED", "E  "))
    )


def run(package: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the root of the repository. It imports xpc from ``package``, and not the installed xpc."""
    environment = {**os.environ, "PYTHONPATH": str(package), "XPC_CACHE": "off"}
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
