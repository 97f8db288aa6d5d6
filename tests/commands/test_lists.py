"""`xpc` and `xpc list` without arguments print the commands to type, and each name in a list has a description."""

from __future__ import annotations

import json

from compile_support import xpc

from xpc.compiler.commands.listing import KINDS
from xpc.compiler.language.model_choices import TEMPLATES
from xpc.compiler.language.rewards import REWARDS
from xpc.compiler.rules.core.all_codes import all_codes


def text(*words: str) -> str:
    done = xpc(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def rows(kind: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(text("list", kind, "--format", "json"))
    return found


def test_bare_xpc_shows_its_commands_and_how_to_begin():
    done = xpc()
    assert done.returncode == 2
    shown = done.stderr.decode()
    assert "xpc new run.xp" in shown
    assert "check a spec and write its bundle" in shown


def test_bare_list_shows_the_lists():
    lines = text("list").splitlines()
    assert [one.split()[0] for one in lines] == ["kind", *KINDS]
    assert all(len(one.split()) > 3 for one in lines[1:])
    assert [one["kind"] for one in json.loads(text("list", "--format", "json"))] == [*KINDS]


def test_bare_explain_says_what_can_be_asked():
    done = xpc("explain")
    assert done.returncode == 2
    assert "xpc list codes" in done.stderr.decode()


def test_no_template_is_described_by_half_a_sentence():
    found = rows("templates")
    assert [one["name"] for one in found] == [*TEMPLATES]
    for one in found:
        assert one["for"].endswith("."), one
        assert "  " not in one["for"], one


def test_rewards_say_what_they_reward():
    found = rows("rewards")
    assert [one["name"] for one in found] == [*REWARDS]
    assert all(len(one["rewards"].split()) >= 4 for one in found)
    assert "0.5 for the shortest" in text("explain", "length")


def test_a_code_that_does_not_exist_leads_to_a_list_that_a_wheel_has():
    done = xpc("explain", "XP9999")
    assert done.returncode == 2
    assert "docs/" not in done.stderr.decode()
    assert "xpc list codes" in done.stderr.decode()
    assert [one["name"] for one in rows("codes")] == [*all_codes()]
    assert "packing-without-flash" in text("list", "codes", "XP310")


def test_an_unknown_setting_leads_to_a_list_that_a_wheel_has(tmp_path):
    (tmp_path / "a.xp").write_text("xpc 1\ntrain qwen2.5-3b on capybara for 1 epochs\nzzqq = 3\n")
    shown = xpc("check", "a.xp", cwd=str(tmp_path)).stdout.decode()
    assert "`xpc list settings` prints them all" in shown


def test_the_list_of_gpus_has_their_memory():
    gpus = {one["name"]: one for one in rows("gpus")}
    assert gpus["h100-80gb"] == {"name": "h100-80gb", "memory_gib": 79.1, "capability": "9.0", "bf16": True}
    assert gpus["v100-16gb"]["bf16"] is False
