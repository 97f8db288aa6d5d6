"""Cases of the evaluation after training (XP106, XP114 and XP129 of tasks, XP52x)."""

from __future__ import annotations

from case_support import Case, spec, trained

OWN = "task: mine\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: rows.jsonl\n"
ROWS = {"tasks/rows.jsonl": '{"question": "2 + 2", "answer": "4"}\n'}


def asks(*tasks: str, more: str = "") -> str:
    """The clause that names tasks."""
    return f"eval(tasks=[{', '.join(tasks)}]{more})"


MINE = asks('"tasks/mine.yaml"')
CASES: tuple[Case, ...] = (
    Case("XP106", spec(asks("hellaswagg")), spec(asks("hellaswag")), variant="task"),
    Case("XP106", spec(asks("gsm8k", "leaderboard_bhh")), spec(asks("gsm8k", "leaderboard_bbh")), variant="task-group"),
    Case("XP114", spec(asks('"tasks/other.yaml"')), spec(MINE), {"tasks/mine.yaml": OWN, **ROWS}, "task-file"),
    Case(
        "XP129",
        spec(asks('"tasks/nameless.yaml"')),
        spec(MINE),
        {"tasks/mine.yaml": OWN, "tasks/nameless.yaml": OWN.replace("task: mine\n", ""), **ROWS},
    ),
    Case(
        "XP129",
        spec(asks('"tasks/far.yaml"')),
        spec(MINE),
        {"tasks/mine.yaml": OWN, "tasks/far.yaml": OWN.replace("rows.jsonl", "../rows.jsonl"), **ROWS},
        "above-its-folder",
    ),
    Case("XP520", spec(asks("humaneval")), spec(asks("humaneval", more=", allow_code_execution"))),
    Case(
        "XP520",
        spec(asks("gsm8k", "cruxeval_output", more=", allow_code_execution=false")),
        spec(asks("gsm8k", "cruxeval_output", more=", allow_code_execution")),
        variant="one-of-two",
    ),
    Case(
        "XP520",
        spec(MINE),
        spec(asks('"tasks/mine.yaml"', more=", allow_code_execution")),
        {"tasks/mine.yaml": OWN + "unsafe_code: true\n", **ROWS},
        "file",
    ),
    Case("XP521", spec(asks("gsm8k", more=", allow_code_execution")), spec(asks("gsm8k"))),
    Case("XP521", spec("eval(allow_code_execution)"), spec(), variant="no-tasks"),
    Case("XP522", spec(asks("leaderboard")), spec(asks("leaderboard_bbh", "leaderboard_musr"))),
    Case("XP523", spec(asks("leaderboard", "leaderboard_math_hard")), spec(asks("leaderboard"))),
    Case(
        "XP524",
        spec("method reward", asks("gsm8k"), train=trained("qwen2.5-3b on ultrafeedback-binarized")),
        spec(asks("gsm8k")),
    ),
)
