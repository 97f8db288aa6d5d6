"""The rewards in `specs/rewards/judged.py` judge generated programs as Open-R1's rewards do. A sandbox would run the
programs; here it is replaced.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from recipe_support import RECIPES, SPECS, view

from xpc.compiler.stacks import STACKS

FENCE = "```"


@pytest.fixture
def judged() -> ModuleType:
    spec = importlib.util.spec_from_file_location("judged", os.path.join(SPECS, "rewards", "judged.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Sandbox:
    """A stand-in for E2B's interpreter: it runs a script and returns the value of the last expression."""

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    @classmethod
    def create(cls, timeout: int) -> Sandbox:
        assert timeout == 30
        return cls()

    def run_code(self, script: str, language: str) -> Any:
        assert language == "python"
        *lines, last = ast.parse(script).body
        assert isinstance(last, ast.Expr)
        names: dict[str, Any] = {}
        try:
            exec(compile(ast.Module(lines, []), "script", "exec"), names)
            return SimpleNamespace(text=str(eval(compile(ast.Expression(last.value), "script", "eval"), names)))
        except Exception:
            # E2B returns no value if the program raises an exception
            return SimpleNamespace(text=None)


def answered(program: str, language: str = "python") -> list[dict[str, str]]:
    text = f"<think>\nhm\n</think>\n<answer>\n{FENCE}{language}\n{program}\n{FENCE}\n</answer>"
    return [{"role": "assistant", "content": text}]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "score"),
    [
        ("print(int(input()) * 2)", 1.0),
        ("print(2)", 0.5),
        ("print(2 +)", 0.0),
        ("raise SystemExit(1)", 0.0),
        ("", 0.5),  # an empty program prints nothing, as one of its two test cases expects
    ],
)
def test_code_is_the_share_of_the_cases(
    judged: ModuleType, monkeypatch: pytest.MonkeyPatch, program: str, score: float
) -> None:
    monkeypatch.setitem(sys.modules, "e2b_code_interpreter", SimpleNamespace(Sandbox=Sandbox))
    cases = [{"input": "1\n", "output": "2"}, {"input": "2\n", "output": "4\n" if program else "\n"}]
    if not program:
        cases[0]["output"] = "2"
    info = {"language": "python", "test_cases": cases}
    assert judged.code([answered(program)], verification_info=[info], prompts=["p"]) == [score]


PROBLEM: dict[str, list[Any]] = {
    "id": ["Square"], "year": [2024], "subtask": ["1"], "score_precision": [2], "time_limit": [2.0],
    "memory_limit": [10**6], "grader_files": [[["graders/grader.cpp", "int main;"], ["empty", ""]]],
    "test_names": [["1", "2", "3", "4", "5"]],
}  # fmt: skip


def test_ioi_code_is_the_worst_test_and_stops_at_a_failure(judged: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged, "tests", lambda year, problem: {str(n): (f"in{n}", f"out{n}") for n in range(1, 6)})
    sent: list[dict[str, Any]] = []
    scores = {"in1": "1.0", "in2": "0.5", "in3": "0.75", "in4": "0.4", "in5": "1.0"}

    def ask(what: dict[str, Any]) -> Any:
        sent.append(what)
        given = next(file["content"] for file in what["files"] if file["name"] == "input.txt")
        return {"run": {"stdout": scores[given], "stderr": "", "code": 0}}

    monkeypatch.setattr(judged, "ask", ask)
    program = [answered("int f() { return 1; }", "cpp")]
    assert judged.ioi_code(program, prompts=["p"], **PROBLEM) == [0.4]
    assert len(sent) == 5
    first = sent[0]
    assert (first["run_timeout"], first["language"]) == (5000, "cms_ioi")
    names = [file["name"] for file in first["files"]]
    assert names == ["graders/square.cpp", "input.txt", "correct_output.txt", "graders/grader.cpp"]
    scores["in2"] = "0"
    sent.clear()
    assert judged.ioi_code(program, **PROBLEM) == [0.0]
    assert len(sent) == 3
    sent.clear()
    assert judged.ioi_code([answered("print(1)", "python")], **PROBLEM) == [0.0]
    assert not sent


def test_a_program_gets_the_headers_that_it_leaves_out(judged: ModuleType) -> None:
    whole = '#include <bits/stdc++.h>\n#include "a.h"\nusing namespace std;\nint f();'
    assert judged.whole_program("int f();", "a") == whole
    assert judged.whole_program(whole, "a") == whole
    assert "using namespace" not in judged.whole_program("std::string s;", "a")
    assert judged.whole_program("", "a") == ""


def test_the_format_asks_for_cpp(judged: ModuleType) -> None:
    assert judged.cpp_format([answered("x", "cpp"), answered("x", "python")]) == [1.0, 0.0]


JUDGED = {
    "qwen2.5-1.5b-coding-problems-grpo-7xh100": ["code", None],
    "qwen2.5-1.5b-ioi-grpo-7xh100": ["ioi_code", "cpp_format", None],
}


@pytest.mark.parametrize(
    ("recipe", "functions", "target"),
    [
        (recipe, functions, target)
        for recipe, functions in JUDGED.items()
        for target in STACKS
        if target not in RECIPES[recipe].get("refused", ())
    ],
)
def test_the_bundle_holds_the_judge(recipe: str, functions: list[str | None], target: str) -> None:
    found = view(recipe, target)
    assert [one["function"] for one in found["method"]["rewards"]] == functions
    with open(os.path.join(SPECS, "rewards", "judged.py"), "rb") as handle:
        assert found["files"][found["method"]["rewards"][0]["file"]] == handle.read()
