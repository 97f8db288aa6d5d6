"""A spec can name a built-in chat template: `chat_template = chatml`. Messages report a wrong name, and a template
whose tokens are not in the model's vocabulary.
"""

from __future__ import annotations

import json
import os

import pytest
from case_support import PLAIN, data, spec, trained
from compile_support import CONFIG, checked, codes, compiled, errors, only, put, shown

from xpc.compiler import registry
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language.model_choices import TEMPLATES
from xpc.compiler.pipeline import check_text, compile_text
from xpc.compiler.registry import build
from xpc.compiler.registry import chat_templates as templates
from xpc.compiler.review.differences.template_environment import environment

TINY = {
    "tiny/config.json": json.dumps(CONFIG),
    "tiny/tokenizer_config.json": '{"tokenizer_class": "PreTrainedTokenizerFast"}',
    "tiny/tokenizer.json": '{"added_tokens": [{"content": "<|im_start|>"}, {"content": "<|im_end|>"}]}',
}
"""A local model whose tokenizer has a vocabulary and no chat template."""
ON_TINY = {"train": trained('"tiny" on infinity-instruct'), "batch": "gbs=128 micro=16 seq=512"}
SMALL = {"batch": "gbs=128 micro=1", "strategy": "zero3"}

KNOWN = build.read("chat_templates.toml")


def chat(name: str, *more: str, on: str = "qwen2.5-3b") -> str:
    return spec(f"model(chat_template={name})", *more, train=trained(f"{on} on infinity-instruct"), **SMALL)


def test_the_list_is_the_folder():
    files = {name.removesuffix(".jinja") for name in os.listdir(templates.FOLDER) if name.endswith(".jinja")}
    assert files == set(TEMPLATES)
    assert set(KNOWN["native"]) <= files
    assert set(templates.NO_SYSTEM) <= files


def test_the_beginnings_are_those_of_registered_models():
    names = registry.model_names()
    tokens = KNOWN["control_tokens"]
    for begins in (
        *KNOWN["native"].values(),
        tokens["lacked_by_older"],
        *(one["lacked_by"] for one in tokens["groups"]),
    ):
        for one in begins:
            assert any(name.startswith(one) for name in names), one
    # The template of a model's own family only writes tokens that the model has.
    for name in names:
        own = templates.native(name)
        assert own is None or not templates.new_tokens(templates.text(own).decode(), name), name


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_name_puts_the_text_into_the_bundle(name, tmp_path):
    files, found = compile_text(chat(name).encode(), "t.xp", Workspace(str(tmp_path)))
    assert files is not None, shown(found)
    inside = json.loads(files["trainer_args.json"])["tokenizer"]["chat_template"]
    assert files[inside] == templates.text(name)
    assert b"{%- generation -%}" in files[inside]
    assert f"chat_template = {name}\n" in files["spec.xp"].decode()
    again = check_text(files["spec.xp"], "spec.xp", Workspace(str(tmp_path)))
    assert again.spec is not None
    assert again.spec.template is not None
    assert again.spec.template.file == inside


def test_answers_alone_are_learned_under_a_name():
    assert errors(checked(chat("llama3.1", "method sft(assistant_only)", on="llama-3.1-8b-instruct"))) == []
    for name in TEMPLATES:
        assert not {"XP506", "XP604"} & set(codes(checked(chat(name, "method sft(assistant_only)"))))


@pytest.mark.parametrize(
    ("typed", "right"),
    [("chatlm", "chatml"), ("qwen", "qwen2.5"), ("llama", "llama3"), ("llama-3.1", "llama3.1"), ("gemma2", "gemma"),
     ("phi_3", "phi3"), ('"chatml"', "chatml"), ("zephir", "zephyr")],
)  # fmt: skip
def test_a_name_that_is_none(typed, right):
    found = checked(chat(typed))
    (one,) = [each for each in found.problems if each.severity == "error"]
    assert f"`{right}`" in one.help or f"`chat_template = {right}`" in one.help
    assert [edit.text for edit in one.edits] == [right]


@pytest.mark.parametrize("typed", ['"own.jinja"', "own.jinja", "folder/own.jinja", "file(own.jinja)"])
def test_a_file_is_written_as_one(typed):
    one = only(checked(chat(typed)), "XP104")
    assert 'chat_template = file("' in one.help
    assert "own.jinja" in one.help


def test_nothing_near_lists_them_all():
    assert all(name in only(checked(chat("nonesuch")), "XP106").help for name in TEMPLATES)


def test_new_tokens_are_reported_and_can_be_added():
    one = only(checked(chat("chatml", on="llama-3.1-8b")), "XP560")
    assert one.severity == "warning"
    assert '`tokens = ["<|im_start|>", "<|im_end|>"]`' in one.help
    assert "`chat_template = llama3.1`" in one.help
    added = 'model(chat_template=chatml, tokens=["<|im_start|>", "<|im_end|>"])'
    found = checked(spec(added, train=trained("llama-3.1-8b on infinity-instruct"), **SMALL))
    assert "XP560" not in codes(found)
    for model, name in (
        ("qwen2.5-3b", "chatml"),
        ("llama-3.1-8b", "llama3"),
        ("gemma-2-2b", "gemma"),
        ("gpt2", "zephyr"),
    ):
        assert "XP560" not in codes(checked(chat(name, on=model)))


def test_a_local_vocabulary_is_read(tmp_path):
    tokens = '{"added_tokens": [{"content": "<|im_start|>"}, {"content": "<|im_end|>"}]}'
    location = put(tmp_path, {"tiny/config.json": json.dumps(CONFIG), "tiny/tokenizer.json": tokens})
    on_tiny = {"train": trained('"tiny" on infinity-instruct'), "batch": "gbs=128 micro=16 seq=512"}
    # Zephyr writes roles as ordinary words in angle brackets. These words are not tokens, so no token can be missing.
    for name, new in (("chatml", False), ("llama3", True), ("gemma3", True), ("zephyr", False)):
        assert ("XP560" in codes(checked(spec(f"model(chat_template={name})", **on_tiny), location))) == new, name


@pytest.mark.parametrize(
    ("model", "name"),
    [("llama-3.1-8b", "llama3.1"), ("llama-3-8b", "llama3"), ("gemma-2-2b", "gemma"), ("mistral-7b-v0.3", "mistral"),
     ("smollm2-360m", "smollm2")],
)  # fmt: skip
def test_a_base_model_is_offered_the_template_of_its_family(model, name):
    one = only(checked(spec(train=trained(f"{model} on infinity-instruct"), **SMALL)), "XP505")
    assert one.help == f"write `chat_template = {name}`, the template of its family"


def test_new_tokens_are_reported_for_another_base_model():
    one = only(checked(spec(train=trained("gpt2 on infinity-instruct"))), "XP505")
    assert "`chat_template = chatml`" in one.help
    assert '`tokens = ["<|im_start|>", "<|im_end|>"]`' in one.help
    assert "new to the model's vocabulary" in one.help


def test_a_sweep_of_templates_copies_each_template():
    found = checked(chat("chatml") + "sweep { model.chat_template = [qwen2.5, zephyr] }\n")
    assert errors(found) == [], shown(found)
    assert {one.spec.template.file for one in found.members} == {
        "files/qwen2.5.jinja",
        "files/zephyr.jinja",
    }


def test_a_system_prompt_needs_a_place():
    block = data('system = "Be brief."')
    for name in TEMPLATES:
        assert ("XP567" in codes(checked(chat(name, block)))) == (name in templates.NO_SYSTEM), name
    eager = spec("model(attn=eager)", block, train=trained("gemma-2-2b-it on infinity-instruct"), **SMALL)
    assert "XP567" in codes(checked(eager))


def test_rows_of_unknown_columns_are_not_called_conversations(tmp_path):
    local = {**ON_TINY, "train": trained('"tiny" on "rows.jsonl"')}
    for row, codes_of in (('{"content": "a"}', ["XP124"]), ('{"messages": []}', ["XP505", "XP554"])):
        place = put(tmp_path / codes_of[0], {**TINY, "rows.jsonl": f"{row}\n"})
        assert sorted(errors(checked(spec(**local), place))) == codes_of


def test_one_named_column_is_text_or_turns_as_its_first_row_says(tmp_path):
    rows = {
        "a.csv": "title,body\nx,A text.\n", "b.jsonl": '{"title": "x", "body": "A text."}\n',
        "c.jsonl": '{"title": "x", "body": [{"from": "human", "value": "?"}, {"from": "gpt", "value": "!"}]}\n',
        "d.jsonl": '{"title": "x", "body": {"a": 1}}\n',
    }  # fmt: skip
    place = put(tmp_path / "one", {**TINY, **rows})
    # the model has no chat template, so turns are refused
    for name, codes_of in {"a.csv": [], "b.jsonl": [], "c.jsonl": ["XP505"]}.items():
        found = checked(spec(data("columns = [body]"), **{**ON_TINY, "train": trained(f'"tiny" on "{name}"')}), place)
        assert errors(found) == codes_of, shown(found)
        assert codes_of or found.spec.data[0].shape == "text"
    # If columns have no known shape, there is only one finding. The rules about rows of a shape report nothing.
    for name, names in (("d.jsonl", "body"), ("a.csv", "text")):
        block = data(f"columns = [{names}]", "long = chunk")
        found = checked(spec(block, **{**ON_TINY, "train": trained(f'"tiny" on "{name}"')}), place)
        assert errors(found) == ["XP124"], shown(found)


@pytest.mark.parametrize(("name", "read"), [("rows.jsonl", True), ("rows.json", False)])
def test_a_first_row_above_a_megabyte_has_its_columns(tmp_path, name, read):
    """A JSON Lines file may begin with a book. A JSON file without line breaks may be one long list, and is not read
    further.
    """
    row = json.dumps({"text": "word " * 300_000})
    place = put(tmp_path, {**TINY, name: f"{row}\n" if read else f"[{row}]"})
    found = checked(spec(**{**ON_TINY, "train": trained(f'"tiny" on "{name}"')}), place)
    assert errors(found) == ([] if read else ["XP553"]), shown(found)
    assert not read or found.spec.data[0].shape == "text"


def test_a_template_in_the_configuration_of_a_tokenizer_counts(tmp_path):
    files = dict(TINY)
    assert "XP505" in errors(checked(spec(**ON_TINY), put(tmp_path / "without", files)))
    files["tiny/tokenizer_config.json"] = json.dumps({"chat_template": PLAIN})
    found = checked(spec(**ON_TINY), put(tmp_path / "with", files))
    assert errors(found) == [], shown(found)
    assert found.spec.model.template == PLAIN


def test_arguments_are_lines_of_the_copy_and_a_row_still_decides():
    text = chat("qwen3(enable_thinking=false)", on="qwen3-4b")
    files = compiled(text)
    copy = files["files/qwen3.jinja"].decode()
    requested = {"messages": [{"role": "user", "content": "2?"}], "add_generation_prompt": True}
    render = environment().from_string(copy).render
    assert render(requested).endswith("<think>\n\n</think>\n\n")
    assert render(requested, enable_thinking=False) == render(requested)
    assert render(requested, enable_thinking=True).endswith("<|im_start|>assistant\n")
    assert "chat_template = qwen3(enable_thinking=false)" in files["spec.xp"].decode()


def test_arguments_of_a_file_are_not_added_twice(tmp_path):
    location = put(tmp_path, {**TINY, "own.jinja": "{{ word }}{{ pause }}{{ messages }}"})
    text = spec('model(chat_template=file("own.jinja", word="a \\"b\\"", pause=1.5))', **ON_TINY)
    files = compiled(text, location)
    (name,) = [one for one in files if one.startswith("files/")]
    copy = files[name]
    assert copy.count(b"{% set") == 2
    assert templates.with_arguments(copy, (("word", 'a "b"'), ("pause", 1.5))) == copy
    assert f'file("{name}", word="a \\"b\\"", pause=1.5)' in files["spec.xp"].decode()


@pytest.mark.parametrize("written", ["qwen3(false)", "qwen3(a.b=1)", "qwen3(a=[1])", "qwen3(a=1, a=2)", "other(a=1)"])
def test_wrong_arguments_are_refused(written):
    assert set(errors(checked(chat(written, on="qwen3-4b")))) in ({"XP104"}, {"XP106"})
