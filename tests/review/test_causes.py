"""The comment on a pull request groups specs and sweeps by the lines that change them. It says which warnings are newly
silenced.
"""

from __future__ import annotations

import html
import os
from pathlib import Path

import pytest
from compile_support import put, xpc
from git_commands import branch_off, git
from test_known_edits import lock

from xpc.compiler.review.pull_request import Entry, comment, entries

HOUSE = """\
xpc 1

precision bf16
hardware 2 x h100-80gb
strategy zero2
optimizer adamw { lr = 1e-5, weight_decay = 0 }
seed 7
batch gbs=16 micro=4 seq=512
"""
MIDDLE = 'xpc 1\n\nextends "../base/house.xp"\n\ntrain qwen2.5-0.5b-instruct on alpaca for 1 epochs with seed 8\n'
LEAF = 'xpc 1\n\nextends "../middle/trained.xp"\n\nsave "out/NAME"\n'
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% generation %}{{ m.content }}{% endgeneration %}<|im_end|>\n{% endfor %}"
)
FSDP = "  # xpc: allow XP410 the cluster has only this"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two bases in two folders, two specs and two sweeps that extend the second base."""
    monkeypatch.chdir(tmp_path)
    put(tmp_path, {
        "base/house.xp": HOUSE, "middle/trained.xp": MIDDLE,
        **{f"specs/{name}.xp": LEAF.replace("NAME", name) for name in ("a", "b")},
        "specs/lr.xp": LEAF.replace("NAME", "lr") + "sweep {\n  lr = [1e-6, 2e-6]\n  warmup = [10, 20, 30]\n}\n",
        "specs/decay.xp": LEAF.replace("NAME", "decay") + "sweep { weight_decay = [0, 0.1] }\n",
    })  # fmt: skip
    branch_off(tmp_path)
    return tmp_path


def changed(root: Path, files: dict[str, str]) -> tuple[dict[str, Entry], list[str]]:
    """Commit the files; return the entries by path, and the lines of the comment without escapes."""
    put(root, files)
    git(root, "add", "-A")
    git(root, "commit", "-qm", "change")
    found = list(entries(".", "main"))
    return {one.path: one for one in found}, html.unescape(comment(found)).splitlines()


def summaries(lines: list[str]) -> list[str]:
    found = [line.removeprefix("<details><summary>").removesuffix("</summary>").removeprefix("- ") for line in lines]
    return [one for one, line in zip(found, lines, strict=True) if line.startswith("<details>")]


def test_sweeps_are_grouped_with_specs_and_members_that_do_not_change_are_not_counted(repository: Path) -> None:
    found, lines = changed(repository, {"base/house.xp": HOUSE.replace("weight_decay = 0", "weight_decay = 0.1")})
    assert set(found) == {"middle/trained.xp", "specs/a.xp", "specs/b.xp", "specs/lr.xp"}  # not specs/decay.xp
    assert lines[1] == "**base/house.xp:6 optimizer.weight_decay 0 -> 0.1: 3 specs, 1 sweep (6 members)**"
    assert [f"**{one}**" for one in summaries(lines)] == [lines[1]]
    assert found["specs/lr.xp"].line == "6 of 6 runs"


def test_a_setting_that_one_member_restates_is_counted_without_it(repository: Path) -> None:
    """The base gets a value that one of the sweep's two members already has, so only the other member changes."""
    sweep = "sweep { strategy = [zero2, zero2(overlap_comm=true)] }\n"
    put(repository, {"specs/two.xp": LEAF.replace("NAME", "two") + sweep})
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "a sweep")
    git(repository, "branch", "-f", "main")
    found, lines = changed(repository, {"base/house.xp": HOUSE.replace("zero2", "zero2(overlap_comm=true)")})
    assert found["specs/two.xp"].members == 1, found["specs/two.xp"]
    assert summaries(lines) == ["base/house.xp:5 strategy.overlap_comm unset -> true: 3 specs, 3 sweeps (9 members)"]


def test_lines_of_models_data_and_extra_are_named(repository: Path) -> None:
    more = MIDDLE.replace("seed 8", "seed 9") + "extra trl { logging_first_step = true }\n"
    _, lines = changed(repository, {"middle/trained.xp": more})
    assert summaries(lines) == [
        "middle/trained.xp:6 extra trl.logging_first_step unset -> true; middle/trained.xp:5 seed 8 -> 9: "
        "3 specs, 2 sweeps (8 members)"
    ]
    other = MIDDLE.replace("qwen2.5-0.5b-instruct on alpaca", "qwen2.5-1.5b-instruct on ultrachat-200k")
    _, lines = changed(repository, {"middle/trained.xp": other})
    (line,) = summaries(lines)
    assert line.startswith("middle/trained.xp:5 model Qwen/Qwen2.5-0.5B-Instruct -> Qwen/Qwen2.5-1.5B-Instruct; middle")
    assert line.endswith(": 3 specs, 2 sweeps (8 members)")


def test_a_sweep_whose_members_change_is_not_in_the_group(repository: Path) -> None:
    """The sweep's own file changes, too: its axis `lr` gets a third value. So the base is not the only cause, and the
    sweep is not in the base's group.
    """
    found, lines = changed(repository, {
        "base/house.xp": HOUSE.replace("weight_decay = 0", "weight_decay = 0.1"),
        "specs/lr.xp": LEAF.replace("NAME", "lr") + "sweep {\n  lr = [1e-6, 2e-6, 3e-6]\n  warmup = [10, 20, 30]\n}\n",
    })  # fmt: skip
    assert found["specs/lr.xp"].cause == ()
    assert summaries(lines)[0] == "base/house.xp:6 optimizer.weight_decay 0 -> 0.1: 3 specs"
    assert summaries(lines)[1].startswith("specs/lr.xp: swept: optimizer.lr (2), ")


def test_a_change_that_a_line_does_not_explain_has_no_cause(repository: Path) -> None:
    """The base's line changes all specs. The same commit also changes a template and the torch of a lock, which no line
    states. The comment in another lock, and a template that stays the same, change no run.
    """
    names = ("edited", "kept", "torch", "comment")
    put(repository, {
        **{f"specs/{name}.xp": LEAF.replace("NAME", name) for name in names[2:]},
        **{f"specs/{name}.xp.lock": lock() for name in names[2:]},
        **{f"specs/{name}.jinja": TEMPLATE for name in names[:2]},
        **{f"specs/{name}.xp": LEAF.replace("NAME", name) + f'model {{ chat_template = file("{name}.jinja") }}\n'
           for name in names[:2]},
    })  # fmt: skip
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "templates and locks")
    git(repository, "branch", "-f", "main")
    found, _ = changed(repository, {
        "base/house.xp": HOUSE.replace("weight_decay = 0", "weight_decay = 0.1"),
        "specs/edited.jinja": TEMPLATE + "\n", "specs/torch.xp.lock": lock("2.12.0"),
        "specs/comment.xp.lock": "# resolved today\n" + lock(),
    })  # fmt: skip
    line = ("base/house.xp:6 optimizer.weight_decay 0 -> 0.1",)
    assert {name: found[f"specs/{name}.xp"].cause for name in names} == {
        "edited": (), "kept": line, "torch": (), "comment": line,
    }  # fmt: skip


def test_each_sweep_of_a_group_shows_its_totals(repository: Path) -> None:
    found, _ = changed(repository, {"base/house.xp": HOUSE.replace("micro=4", "micro=8")})
    line = found["specs/lr.xp"].line
    assert line.startswith("6 of 6 runs; GPU-hours "), line
    assert "steps" not in line


def test_a_newly_silenced_warning_is_in_the_first_line(repository: Path) -> None:
    """If an edited spec silences a warning and changes nothing else, the first line of the comment and of `xpc diff`
    says so.
    """
    fsdp1 = LEAF.replace("NAME", "a") + "strategy fsdp1\n"
    put(repository, {"specs/a.xp": fsdp1})
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "fsdp1")
    git(repository, "branch", "-f", "main")
    _, lines = changed(repository, {"specs/a.xp": fsdp1.replace("fsdp1", f"fsdp1{FSDP}")})
    assert lines[1] == "**specs/a.xp: the same run; newly allowed: XP410 fsdp1-deprecated**"
    assert any(line.startswith("  warning XP410 fsdp1-deprecated: ") for line in lines)
    assert any(line.endswith("(silenced: the cluster has only this)") for line in lines)
    assert not any(line.startswith("  - warning XP410") for line in lines)
    back, _ = xpc("diff", "specs/a.xp", "main:specs/a.xp", cwd=str(repository)).stdout.decode().split("\n", 1)
    assert back == "the same run"


def test_a_warning_that_a_base_silences_is_one_group(repository: Path) -> None:
    fsdp1 = HOUSE.replace("zero2", "fsdp1")
    put(repository, {"base/house.xp": fsdp1})
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "fsdp1")
    git(repository, "branch", "-f", "main")
    found, lines = changed(repository, {"base/house.xp": fsdp1.replace("fsdp1", f"fsdp1{FSDP}")})
    assert {one.kind for one in found.values()} == {"silenced"}
    assert lines[1] == "**base/house.xp:5 allows XP410 fsdp1-deprecated: 3 specs, 2 sweeps (8 members)**"
    text = HOUSE.replace("zero2", f"fsdp1{FSDP}").replace("weight_decay = 0", "weight_decay = 0.1")
    _, lines = changed(repository, {"specs/a.xp": LEAF.replace("NAME", "other"), "base/house.xp": text})
    counts = "4 changed, 1 unchanged with newly silenced warnings"
    assert lines[1] == f"**{counts}; newly allowed: XP410 fsdp1-deprecated**"


@pytest.mark.parametrize(
    ("line", "what", "meaning"),
    [
        (
            "precision bf16 { nan = allow }",
            "losses of nan",
            "precision.nan = allow: a loss of nan or infinity does",
        ),
        ("precision bf16 { idle = allow }", "learning nothing", "precision.idle = allow: a run that learns nothing is"),
        ("data(omit = [reasoning])", "rows without their reasoning", "data.omit = [reasoning]: the chat template may"),
    ],
)
def test_settings_that_turn_off_a_check_are_in_the_first_line(
    repository: Path, line: str, what: str, meaning: str
) -> None:
    text = LEAF.replace("NAME", "a") + f"seed 1\nbatch gbs=64 micro=2\nmemory(liger=true)\n{line}\n"
    found, _ = changed(repository, {"specs/a.xp": text, "specs/new.xp": text})
    assert found["specs/a.xp"].line.endswith(f"; newly allowed: {what}"), found["specs/a.xp"].line
    assert f"Newly allowed\n  {meaning}" in found["specs/a.xp"].text
    assert found["specs/new.xp"].line.endswith(f"; allowed: {what}")


def test_a_silence_of_some_members_is_in_the_first_line_of_a_sweep(tmp_path: Path) -> None:
    sweep = HOUSE + MIDDLE.partition("\n\n")[2].partition("\n\n")[2] + "sweep { strategy = [zero2, fsdp1] }\n"
    sweep = sweep.replace("strategy zero2\n", "").replace("seed 7\n", "").replace("xpc 1\n\n", "", 1)
    head, train = sweep.split("train ")
    body = train.partition("\n")
    sweep = f"xpc 1\n\ntrain {body[0]}\n\n{head}{body[2]}"
    put(tmp_path, {"a.xp": sweep, "b.xp": sweep.replace("fsdp1] }", "fsdp1] }" + FSDP)})
    out = xpc("diff", "a.xp", "b.xp", "--exit-code", cwd=os.fspath(tmp_path))
    assert (out.returncode, out.stdout.decode().split("\n")[0]) == (
        0, "the same 2 runs; newly allowed: XP410 fsdp1-deprecated",
    )  # fmt: skip
