"""A misspelt name or choice gives exactly one finding. Errors that are mere consequences of the misspelling are not
reported.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from glob import glob

import pytest
from compile_support import REPOSITORY, SEED, checked, put, shown

from xpc.compiler.language import schema
from xpc.grammar.diagnostic import NOTE, applied
from xpc.grammar.parse import parse
from xpc.grammar.source import Source, Span
from xpc.grammar.tree import Call, Clause, List, Ref, Setting, Value

SPECS = sorted(
    [*glob(os.path.join(REPOSITORY, "specs", "*.xp")), *glob(os.path.join(REPOSITORY, "golden", "specs", "*.xp"))]
)
FAST = ("grpo-sky-vllm.xp", "sft-mixture-hsdp.xp", "reward-zero1-hub.xp", "smollm3-3b-mid-64xh100.xp")
LINE = "train qwen2.5-3b on infinity-instruct"


def names(nodes: Iterable[Setting | Clause | Value], clause: str = "") -> Iterator[tuple[Span, str]]:
    """Yield all names of clauses, settings and choices in these syntax nodes and in the nodes below them. Names of data
    sources are left out.
    """
    for node in nodes:
        if isinstance(node, Setting):
            yield node.name.span, node.name.text
            yield from names([node.value])
        elif isinstance(node, Clause):
            head = node.head
            if isinstance(head, Call):
                yield from names([head])
            elif isinstance(head, Ref) and head.is_name and clause != "data":
                yield head.span, head.name
            inner = head.name if isinstance(head, Ref) else ""
            if inner not in ("data", "extra", "train") and clause != "data":
                yield from names(node.operands)
            yield from names(node.block.statements if node.block else (), inner)
        elif isinstance(node, Call):
            yield node.name.span, node.name.text
            yield from names(node.args)
        elif isinstance(node, List):
            yield from names(one for one in node.items if isinstance(one, Call))
        elif isinstance(node, Ref) and any(node.name in row.choices for row in schema.TABLE):
            yield node.span, node.name


def typos(word: str) -> Iterator[str]:
    """Three typos of a name: two letters swapped, the last letter missing, the last letter doubled."""
    if len(word) > 4:
        yield word[:1] + word[2] + word[1] + word[3:]
    if len(word) > 3 and word[-1].isalpha():
        yield word[:-1]
    yield word + word[-1]


def misspelt(text: str) -> Iterator[tuple[str, str]]:
    """Yield pairs: a copy of a spec in which one name has a typo, and this misspelt name. There are three copies for
    each name.
    """
    file = parse(Source("t.xp", text))[0]
    locations = {
        span.start: word for span, word in names((*(file.train.options if file.train else ()), *file.statements))
    }
    legal = {*schema.CLAUSES, *schema.bare_choices(), *(row.name for row in schema.TABLE)}
    legal |= {choice for row in schema.TABLE for choice in row.choices}
    for start, word in locations.items():
        for typo in typos(word):
            if typo not in legal and typo != word:
                yield text[:start] + typo + text[start + len(word) :], typo


def cascades(path: str) -> list[str]:
    """The misspelt names of a spec that do not lead to exactly one new finding."""
    with open(path, encoding="utf-8") as handle:
        text = handle.read()
    folder = os.path.dirname(path)
    before = {(one.code, one.message) for one in checked(text, folder).problems}
    out = []
    for changed, typo in misspelt(text):
        found = [one for one in checked(changed, folder).problems if one.severity != NOTE]
        new = [one for one in found if (one.code, one.message) not in before]
        if len(new) != 1:
            out.append(f"{os.path.basename(path)}: {typo}: {[(one.code, one.message) for one in new]}")
    return out


@pytest.mark.slow
@pytest.mark.parametrize("name", FAST)
def test_a_misspelt_name_is_one_finding(name):
    path = next(one for one in SPECS if os.path.basename(one) == name)
    wrong = cascades(path)
    assert not wrong, "\n".join(wrong)


@pytest.mark.nightly
def test_a_misspelt_name_is_one_finding_in_every_spec():
    wrong = [one for path in SPECS for one in cascades(path)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("hadrware 1 x h100-80gb\nbatch gbs=1", "XP101"),
        ("batch { packing }\nmodle(attn=flash2)", "XP101"),
        ("batch { packing }\nmodel(att=flash2)", "XP101"),
        ("batch { packing }\nmodel(attn=falsh2)", "XP106"),
        ("batch {\n  packing\n}\natn flash2", "XP101"),
        ("batch {\n  packing\n}\nattention flash2", "XP101"),
        ("mehtod dpo {\n  beta = 0.1\n}", "XP101"),
        ("swep {\n  lr = [1e-5, 2e-5]\n}", "XP101"),
        ("precision bf61\nhardware 8 x v100-32gb", "XP106"),
    ],
)
def test_findings_that_follow_from_a_typo_are_not_reported(line, code):
    found = checked(f"xpc 1\n{LINE}\n{line}\n")
    errors = [one.code for one in found.problems if one.severity == "error"]
    # XP503: dpo needs preference pairs, but the rows are conversations
    assert [one for one in errors if one != "XP503"] == [code], shown(found)


@pytest.mark.parametrize(
    ("extra", "code"), [("", "XP208"), ("extra trl(dataloader_drop_last=true)\n", "XP210")], ids=["batch", "drop"]
)
def test_rows_of_a_file_without_the_columns_are_not_compared_with_the_batch(tmp_path, extra, code):
    """The file within.json has a single JSON object, which contains 400 rows. The object itself is not a row."""
    rows = [{"prompt": "1+1?", "completion": "2"}] * 400
    put(tmp_path, {"within.json": json.dumps({"rows": rows}), "one.json": json.dumps(rows[:1])})
    for name, expected in (("within.json", ["XP553"]), ("one.json", [code])):
        found = checked(f'xpc 1\ntrain qwen2.5-3b on "{name}"\ndata(format=prompt_completion)\n{extra}', str(tmp_path))
        assert [one.code for one in found.problems if one.code in ("XP208", "XP210", "XP553")] == expected, shown(found)


def test_what_is_wrong_apart_from_the_typo_is_still_reported():
    found = checked(SEED.replace("precision fp32", "precision bf16").replace("warmup = 40", "warmpu = 40"))
    assert sorted(one.code for one in found.problems if one.severity == "error") == ["XP101", "XP301"]


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ("max_completion = 800", "warning"),
        ("max_completion = 256", ""),
        ("max_completion = 1024", "error"),
        ("max_completion = 256\n  max_prompt = 900", "error"),
    ],
)
def test_a_limit_of_prompts_that_nobody_wrote_is_no_long_prompt(limits, code):
    method = f"method grpo {{\n  rewards = [accuracy]\n  generations = 2\n  {limits}\n}}\n"
    for model, limit in (("gpt2", code), ("qwen2.5-0.5b", "")):
        text = f"xpc 1\ntrain {model} on deepmath-103k\nhardware cpu\n{method}batch gbs=4 micro=4\n"
        found = [one.severity for one in checked(text).problems if one.code == "XP319"]
        assert found == ([limit] if limit else [])


@pytest.mark.parametrize("name", ["swep", "seep", "sweeep", "sweeps"])
def test_a_misspelt_sweep_is_a_finding(name):
    found = checked(f"{SEED}\n{name} {{ lr = [1e-5, 2e-5] }}\n")
    assert [one.code for one in found.problems if one.primary and name in one.message] == ["XP101"], shown(found)


@pytest.mark.parametrize(("body", "right"), [
    ("sweep {\n  warmup_ratio = [0.03, 0.1]\n}\n", "sweep {\n  warmup = [3%, 10%]\n}\n"),
    (
        "memory {\n  grad_ckpt {\n    use_reentrant = true\n  }\n}\n",
        "memory {\n  checkpointing {\n    reentrant = true\n  }\n}\n",
    ),
])  # fmt: skip
def test_errors_that_a_correction_leaves_are_reported_in_the_same_round(body, right):
    text = f"xpc 1\n{LINE}\n{body}"
    edits = [edit for one in checked(text).problems for edit in one.edits]
    assert applied(text, edits) == f"xpc 1\n{LINE}\n{right}"


def test_a_correction_of_an_edit_is_in_the_edit_and_its_help():
    text = f"xpc 1\n{LINE} at lr 1e-5\n"
    edits = [edit for one in checked(text).problems for edit in one.edits]
    assert applied(text, edits) == f"xpc 1\n{LINE} with lr=1e-5\n"


def test_a_help_that_names_a_target_says_which_error_the_spec_has_there(tmp_path):
    """Only trl-1.16 reads a model that transformers 5 saved, and only trl-0.24 quantizes falcon: each help leads to the
    other error, and says so.
    """
    config = {
        "architectures": ["FalconForCausalLM"], "model_type": "falcon", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 512,
    }  # fmt: skip
    put(str(tmp_path), {
        "tiny/config.json": json.dumps(config), "tiny/tokenizer.json": '{"added_tokens": [{"content": "</s>"}]}',
        "tiny/tokenizer_config.json": '{"tokenizer_class": "TokenizersBackend", "eos_token": "</s>"}',
    })  # fmt: skip
    text = 'xpc 1\ntrain "tiny" on infinity-instruct for 3 epochs\nhardware 1 x h100-80gb\nqlora\ntarget trl-0.24\n'
    for mine, other, code, there in (("0.24", "1.16", "XP568", "XP484"), ("1.16", "0.24", "XP484", "XP568")):
        found = checked(text.replace("trl-0.24", f"trl-{mine}"), str(tmp_path))
        help = next(one.help for one in found.problems if one.code == code)
        assert f"write `target trl-{other}`" in help
        assert f"; on trl-{other}, the spec has the error {there}: " in help
    found = checked(text.replace("qlora", "lora"), str(tmp_path))
    assert "the spec has the error" not in next(one.help for one in found.problems if one.code == "XP568")


def test_two_errors_with_the_same_message_are_both_reported():
    """The name `warmup_ratio` in the sweep is wrong, so its values are checked only after the name is corrected. The
    error about 0.03 in the sweep is reported although `warmup = 0.03` outside of the sweep has an error with the same
    message.
    """
    sweep = "sweep {\n  warmup_ratio = [0.03, 0.05]\n}\n"
    found = checked(f"xpc 1\n{LINE}\nwarmup = 0.03\n{sweep}").problems
    assert [one.edits[0].text for one in found if one.code == "XP105"] == ["3%", "3%", "5%"]
