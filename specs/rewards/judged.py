"""Rewards for programs that a model wrote, executed in a sandbox: Open-R1's `code` and `ioi_code`.

`code` sends each program to an E2B sandbox (package e2b-code-interpreter, the key in E2B_API_KEY). `ioi_code` sends it
to Piston servers with the package cms_ioi (comma-separated addresses in PISTON_ENDPOINTS) and reads the tests of the
olympiads from open-r1/ioi-test-cases. The training machine executes none of these programs.

Rules and formulas are those of Open-R1: https://github.com/huggingface/open-r1 at 1416fa0, src/open_r1/rewards.py and
src/open_r1/utils/competitive_programming/ioi_scoring.py.
"""

from __future__ import annotations

import json
import os
import random
import re
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

JUDGE = """
import json, subprocess
code, cases = json.loads({code}), json.loads({cases})
passed = 0
for case in cases:
    done = subprocess.run(["python3", "-c", code], input=case["input"], text=True, capture_output=True, timeout=5)
    lines = zip(done.stdout.strip().split("\\n"), case["output"].split("\\n"))
    passed += done.returncode == 0 and all(one.strip() == other.strip() for one, other in lines)
passed / len(cases)
"""
"""The script in the sandbox: it computes the share of test cases that a program passes, compared line by line. A
timeout ends the script, which counts as no case passed."""
AT_ONCE = 3
"""How many tests of a problem run in parallel. If one of them scores 0, the problem's further tests are skipped."""
GRACE = 3
"""Seconds that are added to the problem's time limit to get the limit of the server."""


def last_block(text: str, language: str) -> str:
    """The last fenced code block of the language in an answer, or an empty text."""
    found = re.findall(rf"```{re.escape(language)}\n(.*?)```", text, re.DOTALL)
    return found[-1] if found else ""


def code(completions: list[Any], verification_info: list[Mapping[str, Any]], **_: Any) -> list[float]:
    """The share of test cases that each answer's Python program passes."""
    from e2b_code_interpreter import Sandbox

    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(
            pool.map(lambda pair: _in_sandbox(Sandbox, *pair), zip(completions, verification_info, strict=True))
        )


def _in_sandbox(sandbox: Any, completion: Any, info: Mapping[str, Any]) -> float:
    program = last_block(completion[-1]["content"], "python")
    script = JUDGE.format(code=repr(json.dumps(program)), cases=repr(json.dumps(info["test_cases"])))
    with sandbox.create(timeout=30) as box:
        said = box.run_code(script, language=info["language"]).text
    try:
        return float(said)
    except (TypeError, ValueError):
        return 0.0


def cpp_format(completions: list[Any], **_: Any) -> list[float]:
    """1 for thoughts between think tags, then an answer with a block of C++ between answer tags, and nothing else."""
    wanted = re.compile(r"^<think>\n.*?\n</think>\n<answer>\n.*?```cpp.*?```.*?\n</answer>$", re.DOTALL | re.MULTILINE)
    return [float(bool(wanted.match(completion[0]["content"]))) for completion in completions]


def ioi_code(completions: list[Any], **columns: list[Any]) -> list[float]:
    """The score of each answer's C++ program on its subtask, between 0 and 1: the score of its worst test."""
    names = [name for name, values in columns.items() if isinstance(values, list) and len(values) == len(completions)]
    problems = [{name: columns[name][i] for name in names} for i in range(len(completions))]
    with ThreadPoolExecutor() as pool:
        return list(pool.map(_subtask, problems, completions))


def _subtask(problem: Mapping[str, Any], completion: Any) -> float:
    program = whole_program(last_block(completion[-1]["content"], "cpp"), problem["id"])
    if not program:
        return 0.0
    worst, cases, names = 1.0, tests(problem["year"], problem["id"]), list(problem["test_names"])
    for start in range(0, len(names), AT_ONCE):
        batch = [cases[name] for name in names[start : start + AT_ONCE]]
        with ThreadPoolExecutor() as pool:
            scores = list(pool.map(lambda case: judge(problem, program, *case), batch))
        worst = min(worst, *scores)
        if 0.0 in scores:
            break
    return round(worst, int(problem["score_precision"]))


def whole_program(program: str, problem: str) -> str:
    """The program with the headers that an answer may omit; an empty program stays empty."""
    if not program:
        return ""
    lines = [line for line in ("#include <bits/stdc++.h>", f'#include "{problem}.h"') if line.split()[1] not in program]
    if "using namespace std;" not in program and "std::" not in program:
        lines.append("using namespace std;")
    return "\n".join([*lines, program])


@cache
def tests(year: int, problem: str) -> dict[str, tuple[str, str]]:
    """The tests of a problem by name: input and expected output."""
    from datasets import load_dataset

    rows = load_dataset("open-r1/ioi-test-cases", str(year), split="train")
    mine = rows.filter(lambda one: one == problem, input_columns="problem_id")
    return {row["test_name"]: (row["test_input"], row["test_output"]) for row in mine}


def judge(problem: Mapping[str, Any], program: str, given: str, expected: str) -> float:
    """The score of one test as the judge's script prints it; 0 if the program does not compile or times out."""
    files = [(f"graders/{problem['id'].lower()}.cpp", program), ("input.txt", given), ("correct_output.txt", expected)]
    files += [(name, content) for name, content in problem["grader_files"]]
    sent = {
        "language": "cms_ioi", "version": "*",
        "files": [{"name": name, "content": content} for name, content in files if content],
        "run_timeout": round((problem["time_limit"] + GRACE) * 1000), "run_memory_limit": problem["memory_limit"],
    }  # fmt: skip
    answer = ask(sent)
    if answer.get("compile", {}).get("code"):
        return 0.0
    try:
        return float(answer["run"]["stdout"] or 0.0)
    except ValueError:
        return 0.0


def ask(sent: Mapping[str, Any]) -> Any:
    """The answer of a random Piston server. Raises KeyError without PISTON_ENDPOINTS."""
    servers = os.environ["PISTON_ENDPOINTS"].split(",")
    body = json.dumps(sent).encode()
    place = random.choice(servers).rstrip("/") + "/execute"
    request = urllib.request.Request(place, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answered:
        return json.loads(answered.read())
