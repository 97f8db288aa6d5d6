"""`eval { data = ... }` accepts files, datasets and `data` blocks, one evaluation set or several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from case_support import ROW
from compile_support import checked, codes, errors, of, put, shown

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import compile_text
from xpc.grammar.diagnostic import applied

PAIR = json.dumps({"prompt": "2 + 2?", "chosen": "4", "rejected": "fish"}) + "\n"
QUESTION = json.dumps({"question": "2 + 2?", "answer": "4"}) + "\n"
FILES = {
    "rows.jsonl": ROW * 40,
    "eval.jsonl": ROW.replace("2 + 2?", "held out?") * 7,
    "far/eval.jsonl": ROW.replace("2 + 2?", "far away?") * 3,
    "hard.jsonl": ROW.replace("2 + 2?", "hard?") * 5,
    "pairs.jsonl": PAIR * 40,
    "asked.jsonl": QUESTION * 40,
    "asked2.jsonl": QUESTION.replace("2", "3") * 4,
}
BODY = 'hardware 2 x cpu\nstrategy ddp\nprecision fp32\nbatch gbs=8 micro=2\nsave "out"\n'


def text(*more: str, train: str = '"rows.jsonl"') -> str:
    return "\n".join(["xpc 1", "", f"train qwen2.5-0.5b on {train} for 1 epochs", "", BODY, *more, ""])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    return put(tmp_path_factory.mktemp("evaluation"), FILES)


def bundle(spec: str, root: str) -> dict[str, bytes]:
    files, found = compile_text(spec.encode(), "run.xp", Workspace(root))
    assert files is not None, shown(found)
    return files


def plan(spec: str, root: str) -> dict[str, Any]:
    return json.loads(bundle(spec, root)["trainer_args.json"])


def test_a_file_is_copied_hashed_and_evaluated_each_epoch(root: str) -> None:
    files = bundle(text('eval(data="eval.jsonl")'), root)
    facts = json.loads(files["trainer_args.json"])
    (one,) = facts["data"]["evaluation"]["sets"]
    (source,) = one["sources"]
    assert not facts["data"]["evaluation"]["named"]
    assert files[source["bundled"]] == FILES["eval.jsonl"].encode()
    assert source["sha256"] in files["bundle.toml"].decode()
    assert facts["arguments"]["eval_strategy"] == "epoch"
    assert 'evaluated = "eval"' in files["bundle.toml"].decode()
    assert "| evaluated on | eval: eval.jsonl" in files["README.md"].decode()


@pytest.mark.parametrize(
    ("written", "here"), [('train="rosw.jsonl"', "rows.jsonl"), ('eval(data="evla.jsonl")', "eval.jsonl")]
)
def test_a_misspelt_file_has_an_edit(written: str, here: str, root: str) -> None:
    name = written.split('"')[1]
    spec = text(train=f'"{name}"') if written.startswith("train") else text(written)
    (found,) = of(checked(spec, root), "XP123")
    assert found.severity == "error"
    assert applied(spec, found.edits) == spec.replace(name, here)


def test_never_is_never_and_is_warned_of(root: str) -> None:
    found = checked(text('eval(data="eval.jsonl", every=never)'), root)
    assert codes(found).count("XP502") == 1


@pytest.mark.parametrize(
    "written",
    ["eval {\n  data = hard\n}", "eval(data=hard)", "with eval(data=hard)"],
)
def test_a_block_is_a_set_and_not_trained_on(written: str, root: str) -> None:
    block = 'data hard {\n  "hard.jsonl" {\n    take = 3\n  }\n}'
    train, body = ('"rows.jsonl"', written)
    if written.startswith("with"):
        spec = text(block).replace("1 epochs", f"1 epochs {written}")
    else:
        spec = text(block, body, train=train)
    data = plan(spec, root)["data"]
    assert [one["path"] for one in data["sources"]] == ["rows.jsonl"]
    (one,) = data["evaluation"]["sets"]
    assert one["name"] == "hard"
    assert [(source["path"], source["take"]) for source in one["sources"]] == [("hard.jsonl", {"rows": 3})]


def test_a_list_names_its_sets(root: str) -> None:
    block = 'data hard {\n  "hard.jsonl"\n  "far/eval.jsonl"\n}'
    data = plan(text(block, 'eval(data=[hard, "eval.jsonl", oasst-guanaco[test]])', "method sft"), root)["data"]
    assert data["evaluation"]["named"]
    sets = data["evaluation"]["sets"]
    assert [one["name"] for one in sets] == ["hard", "eval", "oasst-guanaco_test"]
    assert [len(one["sources"]) for one in sets] == [2, 1, 1]
    assert sets[2]["sources"][0]["split"] == "test"


def test_two_sets_of_one_name_need_blocks(root: str) -> None:
    found = checked(text('eval(data=["eval.jsonl", "far/eval.jsonl"])'), root)
    assert errors(found) == ["XP103"], shown(found)
    block = 'data eval_2 {\n  "far/eval.jsonl"\n}'
    assert not errors(checked(text(block, 'eval(data=["eval.jsonl", eval_2])'), root))


def test_the_spec_of_the_bundle_means_the_same(tmp_path: Path, root: str) -> None:
    block = 'data corpus {\n  "hard.jsonl" {\n    take = 50%\n  }\n}'
    spec = text(block, 'eval(data=[corpus, "eval.jsonl"], every=5, micro=3)')
    files = bundle(spec, root)
    before, after = (json.loads(one["trainer_args.json"]) for one in (files, bundle(files["spec.xp"].decode(), root)))
    for one in (before, after):
        one["arguments"].pop("run_name", None)
    assert before["data"] == after["data"]
    assert before["arguments"]["eval_steps"] == after["arguments"]["eval_steps"] == 5


def test_a_child_has_its_bases_blocks(tmp_path: Path) -> None:
    base = text('data hard {\n  "hard.jsonl"\n}', "eval(data=hard)")
    root = put(tmp_path, {**FILES, "base.xp": base})
    child = 'xpc 1\nextends "base.xp"\n\neval(data=[hard, "eval.jsonl"])\n'
    sets = plan(child, root)["data"]["evaluation"]["sets"]
    assert [one["name"] for one in sets] == ["hard", "eval"]
    replaced = 'xpc 1\nextends "base.xp"\n\ndata hard {\n  "eval.jsonl"\n}\n'
    assert plan(replaced, root)["data"]["evaluation"]["sets"][0]["sources"][0]["path"] == "eval.jsonl"


def test_rows_are_read_like_the_training_rows(root: str) -> None:
    """The spec maps the columns of the training data to prompt and answer. An evaluation file with the same column
    names gets this mapping, too, without a mapping of its own in the spec.
    """
    block = 'data corpus {\n  "asked.jsonl" {\n    columns = [question, answer]\n  }\n  format = prompt_completion\n}'
    data = plan(text(block, 'eval(data="asked2.jsonl")', train="corpus"), root)["data"]
    (source,) = data["evaluation"]["sets"][0]["sources"]
    assert (source["shape"], source["columns"]) == ("prompt_completion", ["question", "answer"])
    own = 'data own {\n  "asked2.jsonl" {\n    columns = [question, answer]\n  }\n  format = prompt_completion\n}'
    assert plan(text(block, own, "eval(data=own)", train="corpus"), root)["data"]["evaluation"]["sets"][0][
        "sources"
    ] == [source]


def test_prompts_of_grpo_are_found_by_the_column_that_training_names(root: str) -> None:
    body = ("data(prompt=question)", "method grpo(rewards=format, generations=2)", 'eval(data="asked2.jsonl")')
    (source,) = plan(text(*body, train='"asked.jsonl"'), root)["data"]["evaluation"]["sets"][0]["sources"]
    assert (source["shape"], source["columns"]) == ("prompt", ["question"])


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ('eval(data="eval.jsonl")\ndata(holdout=5%)', "XP550"),
        ('eval(data="eval.jsonl", split=test)', "XP550"),
        ("eval(data=nothing-of-the-kind)", "XP110"),
        ("eval(data=3)", "XP104"),
        ("eval(data=[])", "XP104"),
        ('eval(data="pairs.jsonl")', "XP503"),
        ("eval(data=hard)\ndata hard {\n  format = messages\n}", "XP110"),
        ('eval(data=hard)\ndata hard {\n  "hard.jsonl"\n  holdout = 5%\n}', "XP102"),
        ('eval(data=hard)\ndata hard {\n  "hard.jsonl"\n}\ndata hard {\n  "eval.jsonl"\n}', "XP103"),
        ('eval(data="eval.jsonl")\ndata hard {\n  "hard.jsonl"\n}', "XP119"),
        ('eval(data=hard)\ndata hard {\n  "hard.jsonl" {\n    take = 6\n  }\n}', "XP555"),
        ("sweep {\n  eval.data = [hard, easy]\n}", "XP882"),
    ],
)
def test_what_cannot_be_evaluated_on_is_refused(written: str, code: str, root: str) -> None:
    found = checked(text(written), root)
    assert code in errors(found), shown(found)


def test_a_bad_row_of_an_evaluation_file_is_found(tmp_path: Path) -> None:
    root = put(tmp_path, {**FILES, "eval.jsonl": ROW + '{"messages": [{"role": "user"}]}\n'})
    (found,) = of(checked(text('eval(data="eval.jsonl")'), root), "XP554")
    assert "row 1" in found.message


@pytest.mark.parametrize("written", ['"eval.jsonl"', "hard", "oasst-guanaco", "org/name[test]"])
def test_rows_after_eval_get_their_right_place(written: str, root: str) -> None:
    spec = text('data hard {\n  "hard.jsonl"\n}', f"eval {written}")
    (one,) = of(checked(spec, root), "XP104")
    assert f"data = {written}" in (one.help or "")
    assert one.edits
