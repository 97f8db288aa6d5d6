"""For `eval { tasks = [...] }`, the bundle has an evaluate.sh with the right arguments. A task is a name from a table,
or a file of the user.
"""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from case_support import on_cpu, spec
from compile_support import checked, compiled, errors, only, put, shown

from xpc.compiler.files.bundle import write
from xpc.compiler.stacks import harness

OWN = "task: mine\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: rows.jsonl\n"
ROWS = {"tasks/rows.jsonl": '{"question": "2 + 2", "answer": "4"}\n'}


def asks(*tasks: str, more: str = "") -> str:
    """A line of a spec with the clause `eval` for these tasks."""
    return f"eval(tasks=[{', '.join(tasks)}]{more})"


BIG = "qwen2.5-72b on infinity-instruct for 3 epochs"
SCRIPTS = {
    "data-parallel": spec(asks("gsm8k")),
    "one-gpu": spec(asks("gsm8k"), hardware="1 x h100-80gb", strategy="ddp"),
    "cpu": on_cpu(asks("gsm8k")),
    "two-nodes": spec("nodes 2", asks("gsm8k"), batch="gbs=128 micro=8"),
}


def evaluation(text: str, root: str = "") -> dict[str, object]:
    """Compile a spec; return its evaluation.json."""
    return dict(json.loads((compiled(text, root) if root else compiled(text))["evaluation.json"]))


def names(text: str) -> list[str]:
    found = evaluation(text)["tasks"]
    assert isinstance(found, list)
    return [task["name"] for task in found]


def test_a_spec_without_tasks_has_none_of_it():
    files = compiled(spec())
    assert not {"evaluate.sh", "evaluation.json", "requirements-eval.txt"} & set(files)
    assert b"evaluate" not in files["README.md"]


def test_a_dry_run_prints_and_runs_nothing(tmp_path):
    out = str(tmp_path / "a b $(touch pwned)")
    write(compiled(SCRIPTS["data-parallel"]), out)
    script = os.path.join(out, "evaluate.sh")
    environment = {"PATH": os.environ["PATH"], "PYTHON": "/no/python"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([script, *words], cwd=tmp_path, capture_output=True, text=True, check=False,
                              env=environment)  # fmt: skip

    done = run("--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("/no/python -P -m torch.distributed.run --standalone --nproc_per_node 8 ")
    assert done.stdout.rstrip().endswith("/trainer/evaluate.py")
    for wrong in (["--tasks", "mmlu"], ["--tasks=mmlu"], ["$(touch pwned)"], ["x", "y"]):
        done = run(*wrong)
        assert done.returncode == 2
        assert done.stderr.startswith("evaluate.sh: ")
    os.symlink(script, str(tmp_path / "started"))
    done = subprocess.run([str(tmp_path / "started"), "--dry-run"], cwd="/", capture_output=True, text=True, check=True)
    words = subprocess.run(["bash", "-c", f"printf '%s\\n' {done.stdout}"], capture_output=True, text=True, check=True)
    assert words.stdout.splitlines()[-1] == f"{os.path.realpath(out)}/trainer/evaluate.py"
    assert sorted(os.listdir(tmp_path)) == ["a b $(touch pwned)", "started"]


def test_no_text_of_the_spec_stands_in_the_script(tmp_path):
    evil = "zq7 $(touch pwned) `id`;'.yaml"
    root = put(tmp_path, {f"tasks/{evil}": OWN.replace("mine", "zq7"), **ROWS})
    files = compiled(spec(asks(f'"tasks/{evil}"'), 'track none(name="zq7")', save='save "zq7"'), root)
    assert b"zq7" not in files["evaluate.sh"]


def test_harness_gets_these_settings():
    assert evaluation(spec(asks("gsm8k", "mmlu"))) == {
        "format": 1,
        "harness": harness.version(),
        "tasks": [{"name": "gsm8k", "file": None}, {"name": "mmlu", "file": None}],
        "allow_code_execution": False,
        "dtype": "bfloat16",
        "batch_size": "auto",
        "processes": 8,
        "parallelize": False,
    }
    found = evaluation(spec("eval(tasks=[humaneval], allow_code_execution, micro=4, every=10)", "data(holdout=5%)"))
    assert (found["allow_code_execution"], found["batch_size"]) == (True, 4)


def test_a_model_larger_than_a_gpu_is_spread():
    found = evaluation(spec(asks("gsm8k"), "lora", train=BIG, strategy="zero3"))
    assert (found["processes"], found["parallelize"]) == (1, True)
    assert [evaluation(SCRIPTS[name])["parallelize"] for name in ("one-gpu", "cpu")] == [False, False]


def test_the_leaderboard_is_its_groups_but_one():
    five = ["leaderboard_bbh", "leaderboard_gpqa", "leaderboard_ifeval", "leaderboard_mmlu_pro", "leaderboard_musr"]
    assert names(spec(asks("leaderboard"))) == five
    assert names(spec(asks("leaderboard", "leaderboard_math_hard"))) == [*five, "leaderboard_math_hard"]
    assert names(spec(asks("leaderboard_bbh", "leaderboard"))) == five


def test_the_harness_is_pinned_in_a_file_of_its_own():
    files = compiled(spec(asks("leaderboard")))
    assert files["requirements-eval.txt"] == b"lm-eval[hf,ifeval]==0.4.13\n"
    assert b"lm-eval" not in files["requirements.txt"]
    assert b"pip install -r requirements-eval.txt\n./evaluate.sh\n" in files["README.md"]
    assert compiled(spec(asks("gsm8k")))["requirements-eval.txt"] == b"lm-eval[hf]==0.4.13\n"
    requested = spec(asks("leaderboard", "leaderboard_math_hard"))
    assert compiled(requested)["requirements-eval.txt"] == b"lm-eval[hf,ifeval,math]==0.4.13\n"


def test_the_table_has_tasks_groups_and_tags():
    assert {
        "gsm8k",
        "leaderboard",
        "mmlu",
        "mmlu_anatomy",
        "humaneval",
        "ifeval",
        *harness.LEADERBOARD,
    } <= harness.names()
    assert harness.MATH_HARD in harness.names()
    assert {"humaneval", "humaneval_plus", "mbpp", "mbpp_instruct", "cruxeval_output", "longproc"} <= harness.unsafe()
    assert not {"gsm8k", "leaderboard", "mmlu"} & harness.unsafe()
    assert harness.unsafe() <= harness.names()


@pytest.mark.parametrize(
    ("typed", "near"),
    [("hellaswagg", "hellaswag"), ("mlmu", "mmlu"), ("gsm_8k", "gsm8k"), ("human-eval", "humaneval"),
     ("leaderboard_bhh", "leaderboard_bbh"), ("arc_chalenge", "arc_challenge"), ("zzzzqqqqxxxx", None)],
)  # fmt: skip
def test_near_misses_are_suggested(typed, near):
    assert harness.nearest_task(typed) == near


def test_the_place_of_an_unknown_task_is_its_own():
    found = only(checked(spec(asks("gsm8k", "hellaswagg"))), "XP106")
    assert found.primary is not None
    assert found.primary.source.text[found.primary.span.start : found.primary.span.end] == "hellaswagg"
    assert [edit.text for edit in found.edits] == ["hellaswag"]


def test_a_task_file_is_copied_with_what_it_names(tmp_path):
    files = {
        "tasks/mine.yaml": "include: [base.yaml]\ntask: mine\ndoc_to_target: !function words.answer\n",
        "tasks/base.yaml": 'dataset_path: "json"\ndataset_kwargs: {data_files: {test: "rows/a.jsonl"}} # b.jsonl\n',
        "tasks/rows/a.jsonl": "{}\n",
        "tasks/words.py": "def answer(row):\n    return row\n",
        "tasks/other.txt": "not named\n",
    }
    root = put(tmp_path, files)
    made = compiled(spec(asks('"tasks/mine.yaml"')), root)
    copies = {name: data for name, data in made.items() if name.startswith("files/")}
    folder = os.path.dirname(next(name for name in copies if name.endswith("mine.yaml")))
    assert copies == {
        f"{folder}/{name.removeprefix('tasks/')}": text.encode() for name, text in files.items() if "other" not in name
    }
    assert f'"{folder}/rows/a.jsonl" = "sha256:'.encode() in made["bundle.toml"]
    assert b'"tasks/words.py" = "sha256:' in made["bundle.toml"]
    changed = compiled(spec(asks('"tasks/mine.yaml"')), put(tmp_path / "b", {**files, "tasks/rows/a.jsonl": "{ }\n"}))
    assert folder not in {os.path.dirname(name) for name in changed}


def test_the_bundles_own_spec_compiles_again(tmp_path):
    made = compiled(spec(asks('"tasks/mine.yaml"', "gsm8k")), put(tmp_path, {"tasks/mine.yaml": OWN, **ROWS}))
    again = evaluation(made["spec.xp"].decode(), put(tmp_path / "bundle", made))
    tasks = again["tasks"]
    assert isinstance(tasks, list)
    assert tasks[1] == {"name": "gsm8k", "file": None}
    assert tasks[0]["file"].endswith("/mine.yaml")


def test_file_of_a_base_is_relative_to_the_base(tmp_path):
    root = put(tmp_path, {
        "base/all.xp": "xpc 1\n" + asks('"mine.yaml"') + "\n", "base/mine.yaml": OWN, "base/rows.jsonl": "{}\n",
    })  # fmt: skip
    text = spec().replace("xpc 1\n", 'xpc 1\nextends "base/all.xp"\n')
    found = evaluation(text, root)["tasks"]
    assert isinstance(found, list)
    assert found[0]["file"].endswith("/mine.yaml")


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"tasks/mine.yaml": OWN}, "XP114"),
        ({"tasks/mine.yaml": OWN.replace("rows.jsonl", "*.jsonl"), **ROWS}, "XP129"),
        ({"tasks/mine.yaml": OWN.replace("rows.jsonl", "/etc/a.jsonl"), **ROWS}, "XP129"),
        ({"tasks/mine.yaml": "include: ../base.yaml\n" + OWN, "base.yaml": "", **ROWS}, "XP129"),
        ({"tasks/mine.yaml": OWN + "doc_to_text: !function words.question\n", **ROWS}, "XP114"),
        ({"tasks/mine.yaml": OWN.encode("utf-16"), **ROWS}, "XP114"),
    ],
)
def test_a_task_file_that_cannot_be_copied_is_an_error(files, code, tmp_path):
    found = checked(spec(asks('"tasks/mine.yaml"')), put(tmp_path, files))
    assert errors(found) == [code], shown(found)


def test_data_of_the_hub_is_not_looked_for(tmp_path):
    text = OWN.replace("dataset_path: json", "dataset_path: org/name")
    assert evaluation(spec(asks('"tasks/mine.yaml"')), put(tmp_path, {"tasks/mine.yaml": text}))["tasks"]


def test_words_of_a_list_stand_below_their_key_or_as_deep():
    from xpc.compiler.resolve.tasks import _listed

    assert _listed("group: g\ndata_files:\n- a\n- b\nother: c\n", "data_files") == ["a", "b"]
    assert _listed("data_files:\n  - a\n  - b\nother: c\n", "data_files") == ["a", "b"]
    assert _listed("data_files: [a, b]\nother:\n- c\n", "data_files") == ["a", "b"]


def test_task_with_python_functions_is_refused(tmp_path):
    plain = {"mine.yaml": "task: mine\ndataset_path: json\ndataset_kwargs:\n  data_files: rows.jsonl\n"}
    named = {"mine.yaml": plain["mine.yaml"] + "process_docs: !function helpers.f\n", "helpers.py": "f = None\n"}
    for files, output in ((plain, False), (named, True)):
        root = put(tmp_path / str(output), {**files, "rows.jsonl": "{}\n"})
        readme = compiled(spec('eval(tasks=["mine.yaml"])'), root)["README.md"].decode()
        assert ("a task of `evaluate.sh`" in readme) is True
        assert (", which names Python functions" in readme) is output
