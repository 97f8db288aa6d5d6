"""The compiler reads rows with Alpaca's columns (`instruction`, `input`, `output`), and prompts that have a context
column.
"""

from __future__ import annotations

import json

import pytest
from case_support import data, spec, trained
from compile_support import checked, codes, errors, only, put, shown

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text, compile_text

ROWS = [{"instruction": "Add.", "input": "1 2", "output": "3"}, {"instruction": "Greet.", "input": "", "output": "Hi"}]
QUESTION = [{"question": "Who?", "passage": "A story.", "answer": "He"}]
FILE = trained('qwen2.5-3b on "rows.jsonl"')
ALPACA = ("prompt_completion", ("instruction", "output"), "input", "alpaca")


@pytest.fixture
def folder(tmp_path):
    lines = "".join(json.dumps(row) + "\n" for row in ROWS * 64)
    return put(
        tmp_path, {"rows.jsonl": lines, "asked.jsonl": "".join(json.dumps(row) + "\n" for row in QUESTION * 128)}
    )


def read(found):
    assert found.spec is not None, shown(found)
    assert errors(found) == []
    (source,) = found.spec.data
    return source.shape, source.columns, source.context, source.wording


def test_a_file_is_known_by_its_columns(folder):
    assert read(checked(spec(train=FILE), folder)) == ALPACA
    assert read(checked(spec("data(format=alpaca)", train=FILE), folder)) == ALPACA


def test_an_input_is_no_must(tmp_path):
    location = put(tmp_path, {"rows.jsonl": '{"instruction": "Greet.", "output": "Hi"}\n' * 128})
    assert read(checked(spec(train=FILE), location)) == ALPACA


def test_own_names_for_the_three_columns(folder):
    named = data('"asked.jsonl" { columns = [question, passage, answer] }', "format = alpaca", name="mix")
    found = checked(spec(named, train=trained("qwen2.5-3b on mix")), folder)
    assert read(found) == ("prompt_completion", ("question", "answer"), "passage", "alpaca")
    two = named.replace("question, passage, answer", "question, answer")
    found = checked(spec(two, train=trained("qwen2.5-3b on mix")), folder)
    assert read(found) == ("prompt_completion", ("question", "answer"), None, "alpaca")
    one = named.replace("question, passage, answer", "question")
    assert "XP124" in codes(checked(spec(one, train=trained("qwen2.5-3b on mix")), folder))


def test_a_registered_set_of_these_columns_has_the_same_words():
    assert read(checked(spec(train=trained("qwen2.5-3b on alpaca")))) == ALPACA
    plain = checked(spec("data(format=prompt_completion)", train=trained("qwen2.5-3b on alpaca")))
    assert read(plain) == (*ALPACA[:3], None)
    assert read(checked(spec(train=trained("qwen2.5-3b on dolly-15k"))))[2:] == ("context", None)


def test_a_context_column_is_read_and_its_absence_reported(folder):
    row = data(
        '"asked.jsonl" { columns = [question, answer], context = passage }', "format = prompt_completion", name="m"
    )
    found = checked(spec(row, train=trained("qwen2.5-3b on m")), folder)
    assert read(found) == ("prompt_completion", ("question", "answer"), "passage", None)
    requested = ("method grpo(rewards=format, generations=8)", data("prompt = question", "context = passage"))
    found = checked(spec(*requested, train=trained('qwen2.5-3b on "asked.jsonl"')), folder)
    assert read(found) == ("prompt", ("question",), "passage", None)
    other = spec(requested[0], requested[1].replace("passage", "story"), train=trained('qwen2.5-3b on "asked.jsonl"'))
    assert "`story`" in only(checked(other, folder), "XP553").message


def test_messages_have_no_prompt_that_a_context_could_follow():
    assert errors(checked(spec("data(context=passage)"))) == ["XP124"]


def test_a_context_that_is_no_text_is_found(tmp_path):
    location = put(tmp_path, {"rows.jsonl": '{"instruction": "Greet.", "input": 3, "output": "Hi"}\n' * 128})
    assert "`input` is not text" in only(checked(spec(train=FILE), location), "XP554").message


def test_pairs_of_a_registered_dataset_without_a_prompt_have_no_context():
    train = "qwen2.5-3b-instruct on hh-rlhf for 3 epochs"
    found = only(checked(spec("method dpo", "data(context=main)", train=train)), "XP124")
    assert "have no prompt column that a context could follow" in found.message


def test_what_a_bundle_writes_out_reads_back(folder):
    rows = (
        "alpaca",
        "dolly-15k { take = 50% }",
        '"rows.jsonl"',
        "org/x { columns = [question, answer], context = passage }",
    )
    for lines in (rows[:3], (rows[3], "format = prompt_completion"), (rows[2], "format = alpaca"),
                  ('"asked.jsonl" { columns = [question, passage, answer] }', "format = alpaca")):  # fmt: skip
        text = spec(data(*lines, name="mix"), train=trained("qwen2.5-3b on mix"))
        files, found = compile_text(text.encode(), "t.xp", Workspace(folder))
        assert files is not None, shown(found)
        again = check_text(files["spec.xp"], "spec.xp", Workspace(folder))
        assert again.spec is not None, shown(again)
        for one, other in zip(found.spec.data, again.spec.data, strict=True):
            assert (one.shape, one.columns, one.context, one.wording) == (
                other.shape, other.columns, other.context, other.wording,
            )  # fmt: skip


def test_a_set_to_evaluate_on_has_the_words_too(folder):
    held = data('"asked.jsonl" { columns = [question, passage, answer] }', "format = alpaca", name="held")
    for lines in ((held, "eval(data=held, every=epoch)"), ('eval(data="rows.jsonl", every=epoch)',)):
        text = spec(*lines, train=FILE)
        files, found = compile_text(text.encode(), "t.xp", Workspace(folder))
        assert files is not None, shown(found)
        (one,) = found.spec.evaluated
        assert one.sources[0].wording == "alpaca"
        again = check_text(files["spec.xp"], "spec.xp", Workspace(folder))
        assert again.spec is not None, shown(again)
        assert again.spec.evaluated[0].sources[0].context == one.sources[0].context


def test_columns_of_the_methods_own_count_decide_over_a_format_that_it_cannot_train_on(tmp_path):
    """A file with a column `prompt` looks like prompts alone, on which `method reward` cannot train."""
    lines = "".join(
        json.dumps({"prompt": f"{one}?", "good": "yes", "bad": "no", "id": one}) + "\n" for one in range(128)
    )
    location = put(tmp_path, {"rows.jsonl": lines})
    for method in ("reward", "dpo"):
        found = checked(spec(f"method {method}", "data(columns=[prompt, good, bad])", train=FILE), location)
        assert read(found)[:2] == ("preference", ("prompt", "good", "bad"))
    two = checked(spec("method reward", "data(columns=[prompt, good])", train=FILE), location)
    assert "XP503" in codes(two)
