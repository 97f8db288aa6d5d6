"""People who knew only the language reference wrote their first specs, with mistakes. For each mistake, the message
contains a legal text to type.
"""

from __future__ import annotations

import os
import re

import pytest
from case_support import spec
from compile_support import REPOSITORY, checked, codes, edited, put, shown, xpc

from xpc.compiler.language.schema import BY_PATH, TABLE
from xpc.grammar.diagnostic import Diagnostic, applied

HEAD = "train qwen2.5-3b on infinity-instruct with 8 x h100-80gb gbs=64 micro=2"


BLOCKS = ("{{\n    {}\n  }}", "{{ {} }}", "({})")
"""The three ways to write a setting inside a clause: in a block over several lines, in a block on one line, and in
round brackets.
"""


def first(text: str, code: str, folder: str | None = None) -> Diagnostic:
    found = checked(text) if folder is None else checked(text, folder)
    ones = [one for one in found.problems if one.code == code]
    assert ones, shown(found)
    return ones[0]


@pytest.mark.parametrize(
    ("code", "strategy", "inside", "typed"),
    [
        ("XP448", "zero2", "compute_grad_norm = false", "compute_grad_norm = true"),
        ("XP448", "zero2", "compute_grad_norm=false", "compute_grad_norm = true"),
        ("XP121", "zero3", "sub_group_sise = 1B", "sub_group_size"),
    ],
)
@pytest.mark.parametrize("form", BLOCKS)
def test_key_of_nested_block_gets_help_in_its_own_form(code, strategy, inside, typed, form):
    text = f"{HEAD} {strategy}\nextra deepspeed {{\n  zero_optimization{form.format(inside)}\n}}\n"
    found = first(text, code)
    assert (found.help or "").startswith(f"write `{typed}`")
    after = checked(edited(text, found))
    assert not {code, "XP101", "XP121"} & set(codes(after)), shown(after)


@pytest.mark.parametrize("form", BLOCKS)
@pytest.mark.parametrize(
    ("library", "strategy", "code", "inside"),
    [
        ("trl", "zero2", "XP561", "dataloader_prefetch_factor = 2"),
        ("trl", "zero2", "XP561", "dataloader_persistent_workers = true"),
        ("deepspeed", "zero3", "XP442", "zero_optimization.stage3_gather_16bit_weights_on_model_save = false"),
    ],
)
def test_an_edit_fits_the_form_of_the_block_that_it_stands_in(library, strategy, code, inside, form):
    block, _, last = inside.rpartition(".")
    text = f"{HEAD} {strategy}\nextra {library} {{\n  {block}{form.format(last)}\n}}\n"
    if library == "trl":
        text = f"{HEAD} {strategy}\nextra {library}{form.format(inside)}\n"
    after = checked(edited(text, first(text, code)))
    assert after.spec is not None, shown(after)


def test_a_bundle_is_never_written_into_a_bundle_nor_into_no_name(tmp_path):
    root = put(tmp_path, {"a.xp": spec()})
    assert xpc("compile", "a.xp", cwd=root).returncode == 0
    for out, words in (
        ("a.bundle/b", b"lies within"),
        ("a.bundle/trainer/b/c", b"lies within"),
        ("", b"not an empty text"),
    ):
        done = xpc("compile", "a.xp", "-o", out, cwd=root)
        assert (done.returncode, done.stdout) == (2, b"")
        assert words in done.stderr
    assert xpc("verify", "a.bundle", cwd=root).returncode == 0
    assert xpc("compile", "a.xp", cwd=root).returncode == 0


def test_explaining_a_wrong_spec_is_status_1_and_a_slug_is_a_code(tmp_path):
    root = put(tmp_path, {"wrong.xp": spec(batch="gbs=512 micro=11")})
    for what in ("wrong.xp", "wrong.xp:gbs"):
        done = xpc("explain", what, cwd=root)
        assert (done.returncode, done.stdout) == (1, b"")
        assert b"wrong.xp has errors" in done.stderr
    for slug, code in (
        ("batch-does-not-divide", "XP201"),
        ("incomplete-sentence", "XP020"),
        ("unknown-setting", "XP101"),
    ):
        done = xpc("explain", slug, cwd=root)
        assert done.returncode == 0
        assert done.stdout == xpc("explain", code, cwd=root).stdout


PAIRS = "train qwen2.5-0.5b-instruct on dpo-mix-7k with 8 x h100-80gb gbs=64 micro=2"
PROMPTS = "train qwen2.5-0.5b-instruct on deepmath-103k with 8 x h100-80gb gbs=64 micro=8"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{PAIRS} method dpo(loss=dpo)", "write `sigmoid`"),
        (f"{PAIRS} method dpo(loss=kto_pair)", "write `method kto`"),
        (f"{PAIRS} method dpo(loss=orpo)", "write `method orpo`"),
        (f"{PROMPTS} method grpo(generations=8, rewards=[length], loss=gspo)", "write `grpo`, with `level = sequence"),
        (f"{PROMPTS} method gspo(generations=8, rewards=[length])", "write `grpo`, with `level = sequence"),
        (f"{HEAD} model(dtype=float8)", "no equivalent"),
        (f"{HEAD} model(dtype=fp64)", "no equivalent"),
        (f"{HEAD} precision fp64", "no equivalent"),
        (f"{HEAD} precision int8", "no equivalent"),
        (f"{HEAD} strategy zero4", "no equivalent"),
        (f"{HEAD} strategy tensor_parallel", "no equivalent"),
        (f"{HEAD} strategy none", "write `ddp`"),
        (f"{HEAD} strategy single", "write `ddp`"),
        (f"{HEAD} attn=flash_attention_4", "no equivalent"),
        (f"{HEAD} optimizer adamw16bit", "write one of"),
        (f"{HEAD} chat_template=llama4", ""),
    ],
)
def test_choice_that_looks_like_another_thing_is_not_corrected_to_it(text, says):
    """An edit may only correct a typo. It must not replace a number by a different number, or a word by the name of a
    different method.
    """
    (found,) = [one for one in checked(text).problems if one.severity == "error"]
    assert says in (found.help or "")
    assert not found.edits or found.edits[0].text == "ddp"
    assert "did you mean" not in found.primary.text or says == "write `ddp`"


def test_other_tools_name_with_unknown_choice_suggests_only_the_setting():
    found = first(f"{HEAD} attn_implementation=tiled", "XP101")
    assert not found.edits
    assert found.help == "`model.attn` decides it: one of flash2, flash3, sdpa, eager, flex"


def test_help_about_sequences_in_grpo_compiles():
    text = f"{PROMPTS} method grpo(generations=8, rewards=[length], loss=grpo, level=sequence)"
    assert checked(text).spec is not None


def fixed(text: str) -> str:
    """Apply all edits that the errors of a text suggest. Return the edited text."""
    edits = [edit for one in checked(text).problems if one.severity == "error" for edit in one.edits]
    return applied(text, set(edits))


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("track wandb(name=“first try”)", 'track wandb(name="first try")'),
        ("track wandb(name=«first try»)", 'track wandb(name="first try")'),
        ("g\u200bbs = 64", "gbs = 64"),
        ("gbs = \ufeff64", "gbs = 64"),
        ("batch = { gbs = 64, micro = 2 }", "batch { gbs = 64, micro = 2 }"),
        ("optimizer = {\n  lr = 1e-5\n}", "optimizer {\n  lr = 1e-5\n}"),
    ],
)
def test_what_an_editor_or_another_notation_left_is_one_edit(line, after):
    head = "train qwen2.5-3b on infinity-instruct with 8 x h100-80gb\n"
    assert fixed(head + line) == head + after
    assert checked(head + after).spec is not None


@pytest.mark.parametrize("mark", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_file_is_reported_once(mark, tmp_path):
    data = spec().encode("utf-16") if mark == "utf-16" else "\ufeff".encode(mark) + spec().encode(mark)
    root = put(tmp_path, {"a.xp": data})
    done = xpc("check", "a.xp", "--format", "concise", cwd=root)
    assert done.returncode == 1
    assert b"XP001" in done.stdout
    assert b"the file is UTF-16" in done.stdout
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize("number", ["1e-400", "0.5e-330", "-1e-999", "1_0e-400"])
def test_a_number_that_would_be_rounded_to_0_is_refused(number):
    """A very small limit must not be rounded to `clip = 0`, because 0 turns clipping off."""
    assert codes(checked(f"{HEAD} zero2\nclip = {number}"))[:1] == ["XP041"]
    for legal in ("0", "0.0", "0e-5", "1e-300"):
        assert "XP041" not in codes(checked(f"{HEAD} zero2\nclip = {legal}"))


@pytest.mark.parametrize(
    ("line", "help"),
    [
        ('import "base.xp"', 'write `extends "base.xp"`'),
        ('include "../base.xp"', 'write `extends "../base.xp"`'),
        ('base = "base.xp"', 'write `extends "base.xp"`'),
        ("let rate = 3", "no variables"),
        ("if big", "no variables"),
        ("eval epoch", "write `eval { every = epoch }`"),
        ("eval true", "write `eval { every = epoch }`"),
        ("eval 100", "write `every = 100`"),
        ("eval 5%", "write `every=5%` or `data(holdout=5%)` outside of `eval`"),
        ("eval { every = 100 }\neval 5%", "write `data(holdout=5%)` outside of `eval`"),
        ("data(holdout=8)\neval 5%", "write `every=5%`"),
        ("eval { every = 100 }\neval 200", "write `name=value`"),
        ("lora 16", "write `rank = 16`"),
        ("save epoch", "write `save(every = epoch)`"),
        ("save none", "write `save(every = never)`"),
    ],
)
def test_word_of_other_languages_gets_its_equivalent(line, help):
    found = [one for one in checked(f"xpc 1\n{HEAD} zero2\n{line}\n").problems if one.severity == "error"]
    assert help in (found[0].help or "")
    for one in found:
        for edit in one.edits:
            text = f"xpc 1\n{HEAD} zero2\n{line}\n"
            assert not {"XP101", "XP104", "XP106"} & set(codes(checked(applied(text, [edit]))))


ROW = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n' * 64


@pytest.mark.parametrize(
    ("path", "message", "help"),
    [
        ("nope.jsonl", "is not here", "the path is relative to the spec"),
        ("m.jsonl", "is not here", "the path is relative to the spec"),
        ("mesages.jsonl", "is not here", 'name `"messages.jsonl"`'),
        ("messages.json", "is not here", 'name `"messages.jsonl"`'),
        ("https://example.org/rows.jsonl", "is an address", "write the path of a file"),
        ("https://huggingface.co/datasets/trl-lib/Capybara", "is an address", "write `trl-lib/Capybara` without"),
        ("~/rows.jsonl", "begins with `~`", "write the path of a file"),
    ],
)
@pytest.mark.parametrize("form", ["", "format = messages\n"])
def test_missing_file_suggests_a_similar_one_or_none(tmp_path, path, message, help, form):
    """If a file is missing, a file with a similar name is suggested. A common ending (`.jsonl`) alone does not make a
    name similar.
    """
    root = put(tmp_path, dict.fromkeys(("messages.jsonl", "pref.jsonl", "eval.jsonl"), ROW))
    text = f'train qwen2.5-0.5b-instruct on "{path}" for 10 steps with 1 x h100-80gb gbs=8 micro=2\ndata {{\n{form}}}\n'
    found = first(text, "XP123", root)
    assert message in found.message
    if form and message == "is not here":
        assert found.severity == "warning"
    else:
        assert found.severity == "error"
    if not form or message != "is not here" or help.startswith("name"):
        assert help in (found.help or "")
    evaluated = text.replace(f'"{path}"', '"eval.jsonl"') + f'eval(data="{path}")\n'
    again = first(evaluated, "XP123", root)
    assert message in again.message
    # an evaluation file that no file here resembles may be on the training machine
    maybe_there = message == "is not here" and (form or not help.startswith("name"))
    assert again.severity == ("warning" if maybe_there else "error")
    assert help.partition(";")[0] in (again.help or "")


@pytest.mark.slow
def test_the_names_that_the_reference_calls_short_stand_alone_and_no_others():
    with open(os.path.join(REPOSITORY, "docs", "reference.md"), encoding="utf-8") as handle:
        _, _, after = handle.read().partition("The settings that allow this are ")
    short = set(re.findall("`([a-z0-9_]+)`", after.partition(". ")[0]))
    for row in TABLE:
        if row.name not in (*short, *BY_PATH) and row.path.count(".") == 1 and not row.path.startswith("train."):
            found = codes(checked(f"{HEAD} zero2\n{row.name} = 1"))
            assert {"XP101", "XP102", "XP103", "XP104"} & set(found), row.path
    for name in ("gbs", "lr", "holdout", "generations", "reshard", "liger"):
        assert name in short
    for name in short:
        assert not {"XP101", "XP102"} & set(codes(checked(f"{HEAD} zero2\n{name} = 1"))), name


@pytest.mark.parametrize(
    ("call", "block"),
    [
        ('data talk("a.jsonl", holdout=5%, seed=3)', 'data talk {\n  "a.jsonl"\n  holdout = 5%\n  seed = 3\n}'),
        ('data talk(capybara(take=10%), "a.jsonl")', 'data talk { capybara { take = 10% }, "a.jsonl" }'),
        ("data talk(capybara)", "data talk { capybara }"),
        ("data talk(capybara[train:5%])", "data talk {\n  capybara[train:5%]\n}"),
    ],
)
def test_a_named_data_block_is_its_call(call, block, tmp_path):
    """For a data block, `name(k=v)` means the same as `name { k = v }`, as it does for every clause."""
    root = put(tmp_path, {"a.jsonl": ROW})
    head = "xpc 1\ntrain qwen2.5-0.5b-instruct on talk for 10 steps with 8 x h100-80gb gbs=64 micro=2\n"
    one, other = (checked(f"{head}{form}\n", root) for form in (call, block))
    assert one.spec is not None, shown(one)
    assert other.spec is not None, shown(other)
    assert [source.id for source in one.spec.data] == [source.id for source in other.spec.data]
    assert {path: value.value for path, value in one.spec.values.items()} == {
        path: value.value for path, value in other.spec.values.items()
    }


def test_messages_about_numbers_and_files_are_true(tmp_path):
    """Messages must be true. For example, the message about 1e300 does not say that the number is not above 0. The
    message about a file without rows says that it has no columns, and does not name a column "none".
    """
    found = first(f"{HEAD} zero2 lora(alpha=1e300)", "XP107")
    assert found.primary is not None
    assert found.primary.text == "a number that is finite and below 2^63"
    root = put(tmp_path, {"a.jsonl": "", "b.jsonl": ROW.partition("\n")[0]})
    head = "train qwen2.5-0.5b-instruct on"
    assert (first(f'{head} "a.jsonl"', "XP124", root).help or "").startswith("no column can be read from it; ")
    label = first(f'{head} "b.jsonl" with 1 x h100-80gb gbs=8 micro=2', "XP208", root).primary
    assert label is not None
    assert label.text == "1 row for each step"
