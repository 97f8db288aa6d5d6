"""launch.sh from every place that a person starts it from: it finds its bundle, or says what is wrong in a sentence."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

import pytest
from emitted import FILES, compiled, cpu, put


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A bundle in a folder whose name has what shells trip over."""
    folder = str(tmp_path_factory.mktemp("launch") / "-a b\n$(c)'\"")
    return compiled(cpu("one").text, put(folder, FILES), os.path.join(folder, "x y.bundle\n"))


def dry(words: list[str], cwd: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What `--dry-run` says, with an interpreter that shows its words between brackets."""
    environment: Mapping[str, str] = {**os.environ, **variables}
    return subprocess.run([*words, "--dry-run"], cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def runs(printed: str, bundle: str) -> bool:
    """Whether the printed command, read by bash again, names the files of the bundle."""
    script = f"set -- {printed}\nprintf '%s\\0' \"$@\""
    words = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split("\0")
    started = f"{bundle}/trainer/start.py"
    return words[1:3] == [started, "accelerate.commands.launch"] and words[-2] == f"{bundle}/trainer/main.py"


def test_by_its_path_from_elsewhere(bundle: str, tmp_path: object) -> None:
    done = dry([os.path.join(bundle, "launch.sh")], str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert runs(done.stdout, bundle)


def test_as_a_word_of_bash_beside_it(bundle: str) -> None:
    assert runs(dry(["bash", "launch.sh"], bundle).stdout, bundle)
    # A folder that begins with a dash, and a CDPATH that makes `cd` print
    above = os.path.dirname(bundle)
    relative = os.path.join(os.path.basename(above), os.path.basename(bundle), "launch.sh")
    assert runs(dry(["bash", "--", relative], os.path.dirname(above), CDPATH="/tmp:.").stdout, bundle)


def test_through_a_link_and_through_the_path(bundle: str, tmp_path: object) -> None:
    links = os.path.join(str(tmp_path), "bin")
    os.mkdir(links)
    os.symlink(os.path.join(bundle, "launch.sh"), os.path.join(links, "start-run"))
    assert runs(dry([os.path.join(links, "start-run")], "/").stdout, bundle)
    assert runs(dry(["bash", "-c", 'start-run "$@"', "-"], "/", PATH=f"{links}:{os.environ['PATH']}").stdout, bundle)


@pytest.mark.skipif(shutil.which("dash") is None, reason="there is no other shell here")
def test_another_shell_is_told_so(bundle: str) -> None:
    done = dry(["dash", "launch.sh"], bundle)
    assert done.returncode == 2
    assert done.stderr == "launch.sh: this is a script for bash: bash launch.sh\n"
