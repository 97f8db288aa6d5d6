"""All time between two logged steps is counted to some phase, so that the run can print a line about a slow phase
(`runtime/core/progress.py`).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from method_runs import Warm, small

from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow

PROGRAM = """
import json, os, sys

os.chdir({cwd!r})
sys.path.insert(0, {bundle!r})
from trainer.core import progress, run

names, real = [], progress.now
def now(name):
    names.append(name)
    real(name)
progress.now = now
status = run.main({bundle!r}, [])
print(json.dumps(dict(status=status, names=names)))
"""


def test_each_part_of_a_run_has_a_phase(warm: Warm, tmp_path: Any) -> None:
    best = "extra trl {\n  load_best_model_at_end = true\n}"
    text = small('eval(every=2, data="messages.jsonl")', best, method="sft", save='save "out" every=2')
    program = PROGRAM.format(cwd=str(tmp_path), bundle=warm.compiled(text, "phases"))
    (found,) = [one for one in warm.program(DEFAULT, program) if "names" in one]
    assert found["status"] == 0
    names = found["names"]
    assert [one for one in dict.fromkeys(names) if one][:8] == [
        "checking this machine",
        "importing the libraries and connecting the processes",
        "reading the output folder",
        "loading the tokenizer",
        "reading the rows",
        "loading the model",
        "preparing the rows",
        "preparing the first step",
    ], json.dumps(names)
    assert names.count("evaluating") >= 2
    assert {"writing checkpoint-2", "writing the final model"} <= set(names)
    end = names[len(names) - names[::-1].index("writing checkpoint-4") :]
    assert end.index("loading the best checkpoint") < end.index("writing the final model")
    assert names[-1] == "ending the run"
