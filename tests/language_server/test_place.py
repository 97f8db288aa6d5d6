"""At an offset of an unfinished text, the server finds the block, the name and the value there, and offers the right
completions.
"""

from __future__ import annotations

import sys

import pytest

from xpc.compiler import language_server
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language_server.completion import complete, without_locations
from xpc.compiler.language_server.cursor_context import context_at, setting_named, setting_of_value
from xpc.compiler.language_server.hover import hover
from xpc.compiler.language_server.tokens import coloured
from xpc.compiler.pipeline import check_text

TEXT = """\
xpc 1

train qwen2.5-3b on alpaca with zero2 gbs=528 # gbs = 1

batch {
  gbs = 5
  packing(isolate=ma)
  mi
}
optimizer adamw { lr = 1e-5, betas = [0.9, 0.95] }
method sft(assi)
precision bf
memory { checkpointing(
"""


def at(needle: str):
    return context_at(TEXT, TEXT.index(needle) + len(needle))


@pytest.mark.parametrize(
    ("needle", "path"),
    [
        ("gbs = 5", "batch.gbs"),
        ("gbs=528", "batch.gbs"),
        ("isolate=ma", "batch.packing.isolate"),
        ("lr = 1e-5", "optimizer.lr"),
        ("0.95", "optimizer.betas"),
    ],
)
def test_a_value_belongs_to_its_setting(needle, path):
    assert setting_of_value(at(needle)) == path


@pytest.mark.parametrize(
    ("needle", "path"),
    [
        ("with zero2", "strategy"),
        ("  packing", "batch.packing"),
        ("(isolate", "batch.packing.isolate"),
        ("{ lr", "optimizer.lr"),
        ("method", "method"),
        ("method sft", "method"),
    ],
)
def test_a_name_belongs_to_its_setting(needle, path):
    assert setting_named(at(needle)) == path


@pytest.mark.parametrize(
    ("needle", "offered", "not_offered"),
    [
        ("  mi", {"micro", "accum"}, {"lr", "zero2", "gbs", "packing"}),
        ("isolate=ma", {"mask"}, {"gbs"}),
        ("precision bf", {"bf16", "fp16"}, {"gbs"}),
        ("method sft(assi", {"assistant_only"}, {"optimizer"}),
        ("checkpointing(", {"reentrant"}, {"optimizer"}),
        ("train qw", {"qwen2.5-3b", "llama-3.1-8b"}, set()),
        ("gbs=528 ", {"liger", "lora"}, {"reentrant", "gbs", "zero1", "bf16", "optimizer"}),
        ("memory", {"memory", "hardware", "data"}, {"gbs", "optimizer", "train", "xpc 1"}),
    ],
)
def test_completion_depends_on_the_place(needle, offered, not_offered):
    labels = {one.label for one in complete(context_at(TEXT, TEXT.index(needle) + len(needle)))}
    assert offered <= labels
    assert not labels & not_offered


@pytest.mark.parametrize(
    ("line", "offered", "not_offered"),
    [
        ("strategy ddp(", {"context_parallel"}, {"overlap_comm", "reshard", "shard", "activation_checkpointing"}),
        ("strategy zero2 {\n  ", {"overlap_comm", "offload"}, {"reshard", "shard", "activation_checkpointing"}),
        ("strategy hsdp(", {"reshard", "shard", "state_dict"}, {"overlap_comm", "activation_checkpointing"}),
        ("optimizer adafactor(", {"lr", "clip"}, {"rank", "targets", "momentum", "adamw_lr"}),
        ("optimizer galore_adamw(", {"rank", "targets"}, {"momentum", "adamw_lr"}),
        ("optimizer muon(", {"momentum", "adamw_lr"}, {"rank", "targets"}),
        ("schedule cosine(", {"warmup", "min_lr", "warmup_lr"}, {"power", "cycles", "max_lr", "decay_type"}),
        ("optimizer {\n  ", {"lr", "rank", "momentum"}, set()),
        ("strategy {\n  ", {"overlap_comm", "reshard", "shard"}, {"activation_checkpointing"}),
    ],
)
def test_settings_of_another_choice_are_not_offered(line, offered, not_offered):
    text = f"xpc 1\ntrain qwen2.5-3b on capybara\n{line}"
    labels = {one.label for one in complete(context_at(text, len(text)))}
    assert offered <= labels
    assert not labels & not_offered


def test_no_completion_in_a_comment():
    assert complete(at("# gbs = ")) == []


def test_completions_of_a_choice_are_legal_values():
    from xpc.compiler.language.schema import TABLE

    for row in TABLE:
        if row.choices and not row.head:
            text = f"{row.clause} {{ {row.name} = "
            if row.clause.count(".") == 0:
                assert {one.label for one in complete(context_at(text, len(text)))} == set(row.choices), row.path


def test_tokens_are_coloured_by_meaning():
    found = {TEXT[one.start : one.end]: one.sort for one in coloured(TEXT)}
    assert found["train"] == found["batch"] == "keyword"
    assert found["1e-5"] == found["0.95"] == "number"
    assert found["zero2"] == "property"
    assert found["# gbs = 1"] == "comment"
    assert found["ma"] == "enumMember"
    assert found["qwen2.5-3b"] == "type"


@pytest.mark.parametrize("cut", range(0, len(TEXT), 7))
def test_a_truncated_text_is_answered(cut):
    text = TEXT[:cut] + "\0{[(" + TEXT[cut:]
    for offset in (0, cut, len(text)):
        complete(context_at(text, offset))
    assert all(0 <= one.start < one.end <= len(text) for one in coloured(text))


def test_a_broken_installation_is_not_reported_as_a_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "xpc.compiler.language_server.server", None)
    with pytest.raises(ImportError, match=r"language_server\.server"):
        language_server.run(language_server.parse([]))


def labels(text: str) -> set[str]:
    return {one.label for one in complete(context_at(text, len(text)))}


LINE = "xpc 1\ntrain qwen2.5-3b on alpaca for 1 epochs\n"


@pytest.mark.parametrize(
    ("text", "offered", "absent"),
    [
        ("method sft(", {"assistant_only", "loss"}, {"beta", "rewards", "teacher"}),
        ("method sft ", {"assistant_only"}, {"sft", "dpo", "rewards"}),
        ("method sf", {"sft", "dpo"}, set()),
        ("method dpo {\n  loss = ipo\n  ", {"beta"}, {"rewards", "assistant_only"}),
        ("method grpo(temperature=1, rew", {"rewards"}, {"teacher", "label_smoothing"}),
        ("lora(", {"rank", "alpha"}, {"block_size"}),
        ("qlora(", {"rank", "double_quant"}, {"block_size"}),
        ("qlora(rank=8, ", {"double_quant"}, {"rank"}),
        ("data {\n  shuffle\n}\ndata dev {\n  ", {"shuffle"}, set()),
        ("sweep {\n  ", {"lr", "gbs", "seed", "strategy"}, {"qwen2.5-3b", "zero2"}),
        ("oft(", {"rank", "block_size"}, {"alpha", "rslora"}),
        ("vera(", {"rank", "dropout"}, {"alpha", "block_size"}),
        ("loha(", {"rank", "alpha"}, {"dropout", "rslora"}),
        ("lora {\n  rank = 8\n  ", {"alpha"}, {"block_size", "rank"}),
        ("launch slurm(", {"partition", "time"}, {"volume", "pull_secret"}),
        ("launch k8s {\n  ", {"volume"}, {"partition"}),
        ("track wandb ", {"tensorboard", "project"}, set()),
    ],
)
def test_only_what_can_be_written_there_is_offered(text, offered, absent):
    for before in (LINE, "# a comment\n" + LINE):
        found = labels(before + text)
        assert offered <= found
        assert not absent & found


def test_the_sentence_offers_the_settings_of_its_method():
    found = labels("train qwen2.5-3b on alpaca with method sft(")
    assert "assistant_only" in found
    assert "rewards" not in found


@pytest.mark.parametrize(
    ("text", "inserted"), [("hardware ", "8 x h200"), ("hardware 4 ", "x h200"), ("hardware 4 x ", "h200")]
)
def test_hardware_is_completed_from_where_it_is(text, inserted):
    found = {one.label: one.insert for one in complete(context_at(LINE + text, len(LINE + text)))}
    assert found["h200"] == inserted
    assert found["cpu"] == ("cpu" if text == "hardware " else inserted.replace("h200", "cpu"))
    sentence = LINE.rstrip() + " with 8 x "
    assert {"h200", "cpu"} <= labels(sentence)
    assert "qwen2.5-3b" not in labels(sentence)


def test_an_empty_file_offers_a_spec_that_checks(tmp_path):
    for text in ("", "# mine\n\n", "xp"):
        first = complete(context_at(text, len(text)))[0]
        assert first.sort == "snippet", text
        assert "${1:" in first.insert
    row = '{"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}\n'
    (tmp_path / "train.jsonl").write_text("".join(row.replace("2 + 2", f"{n} + 2") for n in range(40)))
    found = check_text(without_locations(first.insert).encode(), "a.xp", Workspace(str(tmp_path)))
    assert not [one for one in found.problems if one.severity == "error"], found.problems
    assert not [one for one in complete(context_at(LINE, len(LINE))) if one.sort == "snippet"]


@pytest.mark.parametrize("head", [LINE + "hardware ", LINE.rstrip() + " with "])
def test_each_word_of_the_hardware_is_explained(head):
    for hardware, words in (("8 x h100-80gb", ("8", "x ", "h100")), ("2 x cpu", ("2", "x ", "cpu"))):
        text = f"{head}{hardware}\nbatch gbs=64\n"
        checked = check_text(text.encode(), "a.xp", Workspace("."))
        for word in words if "hardware" in head else words[-1:]:
            shown = hover(context_at(text, text.index(word, len(head)) + 1), checked)
            assert shown is not None
            assert ("79.1 GiB" if word == "h100" else "GPUs of one node, or CPU processes") in shown
            assert f"hardware = {hardware}" in shown


def test_a_setting_of_every_kind_of_adapter_is_explained():
    for clause in ("lora", "qlora", "oft"):
        text = f"{LINE}{clause}(rank=8)\n"
        shown = hover(context_at(text, text.index("rank") + 1), check_text(text.encode(), "a.xp", Workspace(".")))
        assert shown is not None
        assert "lora.rank" in shown
