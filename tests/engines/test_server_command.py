"""README.md has a command that starts a vLLM server. The command runs as written, and has the bundle's model, revision
and port.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from case_support import spec
from cluster_support import GRPO, PROMPTS
from compile_support import compiled, put

from xpc.compiler.stacks import names

SAYS = '#!/bin/sh\nprintf \'%s\\n\' "$SAID" "$VLLM_SERVER_DEV_MODE" "$@"\n'


def grpo(*lines: str) -> str:
    server = GRPO.format(vllm="vllm(mode=server, port=8123)")
    return spec("model(revision=abc123)", server, *lines, train=PROMPTS, batch="gbs=128 micro=16")


@pytest.mark.slow
@pytest.mark.parametrize("stack", names())
@pytest.mark.parametrize("more", ["", 'launch local(env=["SAID=so"])'])
def test_it_is_started_as_the_page_says(tmp_path: Path, stack: str, more: str) -> None:
    files = compiled(grpo(f"target {stack}", more))
    put(tmp_path, {**files, "bin/vllm": SAYS})
    (tmp_path / "bin" / "vllm").chmod(0o755)
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    command = next(line for line in files["README.md"].decode().splitlines() if "vllm_server.py" in line)
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "XPC_VLLM": f"{tmp_path}/bin/vllm"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    first, *words = done.stdout.splitlines()
    assert first.startswith("[server] ")
    assert words[:2] == ["so" if more else "", "1"]
    reported = dict(pairwise(words))
    size = "--data-parallel-size" if "--data-parallel-size" in reported else "--data_parallel_size"
    assert (reported["--port"], reported["--revision"], reported[size]) == ("8123", "abc123", "8")
    assert "Qwen/Qwen2.5-3B" in words[:5]


def test_the_page_says_whose_server_it_is() -> None:
    """If the user must start the vLLM server, README.md tells them to do so before `launch.sh`. If the launch starts
    the server, README.md says on which node.
    """
    by_hand = compiled(grpo())["README.md"].decode()
    assert "Start\nit before `launch.sh`" in by_hand
    assert "its revision and the port, 8123:" in by_hand
    assert not re.search(r"vllm[ -]serve|MODEL", by_hand)
    slurm = compiled(grpo("launch slurm"))["README.md"].decode()
    assert "one more node, which runs the vLLM server" in slurm
