"""The block, name and value at an offset of a text being edited, and the completions there."""

from __future__ import annotations

import sys

import pytest

from xpc.compiler import language_server
from xpc.compiler.language_server.completion import complete
from xpc.compiler.language_server.place import place_at, setting_named, setting_of_value
from xpc.compiler.language_server.tokens import coloured

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
    return place_at(TEXT, TEXT.index(needle) + len(needle))


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
        ("  mi", {"micro", "gbs", "packing"}, {"lr", "zero2"}),
        ("isolate=ma", {"mask"}, {"gbs"}),
        ("precision bf", {"bf16", "fp16"}, {"gbs"}),
        ("method sft(assi", {"assistant_only"}, {"optimizer"}),
        ("checkpointing(", {"reentrant"}, {"optimizer"}),
        ("train qw", {"qwen2.5-3b", "llama-3.1-8b"}, set()),
        ("gbs=528 ", {"zero2", "bf16", "liger", "lora"}, {"reentrant"}),
        ("memory", {"memory", "optimizer", "data"}, {"gbs"}),
    ],
)
def test_completion_depends_on_the_place(needle, offered, not_offered):
    text = TEXT[: TEXT.index(needle) + len(needle)]
    labels = {one.label for one in complete(place_at(text, len(text)))}
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
                assert {one.label for one in complete(place_at(text, len(text)))} == set(row.choices), row.path


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
        complete(place_at(text, offset))
    assert all(0 <= one.start < one.end <= len(text) for one in coloured(text))


def test_a_broken_installation_is_not_reported_as_a_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "xpc.compiler.language_server.server", None)
    with pytest.raises(ImportError, match=r"language_server\.server"):
        language_server.run(language_server.parse([]))
