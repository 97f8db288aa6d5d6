"""docs/sweep.md: the page's specs compile to the members that the page lists, and the commands print what the page
shows.
"""

from __future__ import annotations

import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from compile_support import put, read, xpc  # noqa: E402

from xpc.compiler.files.workspace import Workspace  # noqa: E402
from xpc.compiler.pipeline import check_text  # noqa: E402

MACHINE = 'hardware 8 x h100-80gb\nsave "out/run"\nprecision bf16\n'
HEAD = f"xpc 1\n\ntrain qwen2.5-3b-instruct on infinity-instruct\n{MACHINE}"


def blocks() -> list[str]:
    return re.findall(r"```\n(.*?)```", read("docs", "sweep.md"), re.S)


def test_the_specs_of_the_page_compile(tmp_path):
    specs = [one for one in blocks() if "sweep {" in one]
    counts = []
    for text in specs:
        if "train " in text:
            whole = f"xpc 1\n\n{text}"
        elif "extends" in text:
            put(tmp_path, {"plain.xp": f"{HEAD}strategy zero2\nbatch gbs=128 micro=16\n"})
            whole = f"xpc 1\n\n{text}"
        else:
            whole = HEAD + ("" if "strategy" in text else "strategy zero2\n") + text
        found = check_text(whole.encode(), "page.xp", Workspace(str(tmp_path)))
        assert not [one for one in found.problems if one.severity != "note"], found.problems
        counts.append(len(found.members))
    assert counts == [6, 64, 4, 3]


def test_the_session_of_the_page_is_what_is_printed(tmp_path):
    whole, session = blocks()[:2]
    put(tmp_path, {"scan.xp": f"xpc 1\n\n{whole}precision bf16\n"})
    compiled, listed = session.split("$ ./scan.bundle/launch.sh --list\n")
    done = xpc("compile", "scan.xp", cwd=str(tmp_path))
    assert f"$ xpc compile scan.xp\n{done.stdout.decode()}" == compiled
    names = subprocess.run(
        ["./scan.bundle/launch.sh", "--list"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert names.stdout == listed


def test_every_command_of_the_page_is_one_of_the_script():
    (commands,) = [one for one in blocks() if one.startswith("./launch.sh")]
    script = read("compiler", "lower", "sweep_launch.sh")
    for flag in re.findall(r"^\./launch\.sh (--\w+)", commands, re.M):
        assert f"\n  {flag})" in script


def test_links_exist():
    for page in ("sweep.md", "scale.md"):
        with open(os.path.join(ROOT, "docs", page), encoding="utf-8") as handle:
            for target in re.findall(r"\]\(([^)#:]+)\)", handle.read()):
                assert os.path.exists(os.path.join(ROOT, "docs", target)), target
