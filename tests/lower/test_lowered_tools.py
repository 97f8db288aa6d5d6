"""A bundle of grpo has the files of its tools and environment. A wrong value for the tools or the environment is
refused.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from case_support import spec, trained
from compile_support import checked, compiled, only

from xpc.compiler import stacks

ON = trained("qwen2.5-3b-instruct on deepmath-103k")
CODE = """\
def search(query: str) -> str:
    \"\"\"Search.

    Args:
        query: What to look for.
    \"\"\"
    return "red"

class Maze:
    def reset(self, **row): ...
    def get_reward(self): return 1.0

WORDS = {"red": "a colour"}
finds = search
"""
BOTH = 'tools=["own.py:search"], environment="own.py:Maze"'


def tools(tmp_path: Path, settings: str, target: str = stacks.DEFAULT) -> str:
    (tmp_path / "own.py").write_text(CODE)
    return spec(f"method grpo({settings})", f"target {target}", train=ON)


def test_a_bundle_has_the_files_and_says_what_it_executes(tmp_path: Path) -> None:
    files = compiled(tools(tmp_path, f"{BOTH}, tool_turns=4, tool_timeout=2m"), str(tmp_path))
    plan = json.loads(files["trainer_args.json"])
    stated = plan["method"]["tools"]
    (copy,) = [name for name in files if name.startswith("files/own-")]
    assert files[copy].decode() == CODE
    assert stated["seconds"] == 120
    assert stated["functions"] == [{"file": copy, "function": "search", "sha256": stated["environment"]["sha256"]}]
    assert (stated["environment"]["file"], stated["environment"]["function"]) == (copy, "Maze")
    assert plan["arguments"]["max_tool_calling_iterations"] == 4
    assert plan["method"]["rewards"] == []
    assert "trainer/features/method/tools.py" in files
    readme = files["README.md"].decode()
    assert f"- {copy}: Python that the model calls, with arguments that it writes" in readme.replace("\\_", "_")
    assert "calls search, Maze while generating, 120 s a call at most" in readme
    assert f'tools = "{copy}:search"' in files["spec.xp"].decode()


def test_a_call_has_a_time_limit_by_default(tmp_path: Path) -> None:
    text = tools(tmp_path, 'rewards=format, tools="own.py:search"')
    plan = json.loads(compiled(text, str(tmp_path))["trainer_args.json"])
    assert (plan["method"]["tools"]["seconds"], plan["arguments"]["max_tool_calling_iterations"]) == (60, None)
    plain = json.loads(compiled(spec("method grpo(rewards=format)", train=ON), str(tmp_path))["trainer_args.json"])
    assert "tools" not in plain["method"]


@pytest.mark.parametrize("target", [one for one in stacks.STACKS if one != stacks.DEFAULT])
def test_other_stacks_have_no_tools(tmp_path: Path, target: str) -> None:
    found = only(checked(tools(tmp_path, f"rewards=format, {BOTH}", target), str(tmp_path)), "XP127")
    assert found.message == f"grpo on {target} calls no tools and has no environments"
    assert found.help == f"write `target {stacks.DEFAULT}`"


@pytest.mark.parametrize(
    ("settings", "code", "message"),
    [
        ('tools="own.py:serch"', "XP114", "`own.py` defines no `serch`"),
        ('tools="own.py"', "XP107", "`own.py` does not name a Python file and a function in it"),
        ('environment="own"', "XP107", "`own` does not name a Python file and a class in it"),
        ("tools=[search]", "XP104", "`tools`"),
        ("tools=search", "XP104", "`tools`"),
        ('tools="own.py:Maze"', "XP114", "`Maze` in `own.py` is a class, and `tools` takes a function"),
        ('tools="own.py:WORDS"', "XP114", "`WORDS` in `own.py` is a value, and `tools` takes a function"),
        ('environment="own.py:search"', "XP114", "is a function, and `environment` takes a class"),
        ('rewards=["own.py:Maze"]', "XP114", "`Maze` in `own.py` is a class, and `rewards` takes a function"),
        ('tools="gone.py:search"', "XP114", "gone.py"),
        ('environment=["own.py:Maze", "own.py:Maze"]', "XP104", "a run has one environment"),
        ('tools=["own.py:search"], tool_timeout=0s', "XP107", "tool_timeout"),
        ('tools=["own.py:search"], tool_turns=0', "XP107", "tool_turns"),
    ],
)
def test_what_names_no_tool_is_refused(tmp_path: Path, settings: str, code: str, message: str) -> None:
    stated = settings if settings.startswith("rewards") else f"rewards=format, {settings}"
    found = checked(tools(tmp_path, stated), str(tmp_path))
    assert any(one.code == code and message in one.message for one in found.problems), found.problems


@pytest.mark.parametrize(
    ("settings", "help"),
    [
        ('tools="own.py"', 'write `"own.py:search"`'),
        ('tools="own.py:Maze"', 'write `"own.py:search"`'),
        ('tools="own.py:WORDS"', 'write `"own.py:search"`'),
        ('tools="own.py:zzz"', 'write `"own.py:search"`'),
        ('environment="own.py"', 'write `"own.py:Maze"`'),
        ('rewards=["own.py"]', 'write `"own.py:search"`'),
        ("rewards=[own.py:search]", 'write `"own.py:search"`'),
        ("tools=own.py:search", 'write `"own.py:search"`'),
        ('rewards=["other.py"]', "name a file next to the spec, and a function in it, such as `"),
    ],
)
def test_the_help_names_what_the_file_defines(tmp_path: Path, settings: str, help: str) -> None:
    stated = settings if settings.startswith("rewards") else f"rewards=format, {settings}"
    found = checked(tools(tmp_path, stated), str(tmp_path))
    assert next(one.help for one in found.problems if one.code in ("XP104", "XP107", "XP114")).startswith(help)


def test_the_help_names_at_most_three_functions(tmp_path: Path) -> None:
    (tmp_path / "many.py").write_text("".join(f"def {one}(): ...\n" for one in ("_own", "a", "b", "c", "d")))
    found = only(checked(tools(tmp_path, 'rewards=format, tools="many.py"'), str(tmp_path)), "XP107")
    assert found.help == 'write `"many.py:a"` or `"many.py:b"` or `"many.py:c"`'


def test_a_name_whose_kind_is_not_known_may_be_a_tool(tmp_path: Path) -> None:
    files = compiled(tools(tmp_path, 'rewards=format, tools="own.py:finds"'), str(tmp_path))
    assert json.loads(files["trainer_args.json"])["method"]["tools"]["functions"][0]["function"] == "finds"


def test_other_methods_have_no_tools(tmp_path: Path) -> None:
    text = tools(tmp_path, 'rewards=format, tools="own.py:search"').replace("method grpo", "method rloo")
    found = only(checked(text, str(tmp_path)), "XP126")
    assert (found.message, found.help[:22]) == ("`tools` is not a setting of rloo", "leave `tools` out, or ")
