"""The built-in chat templates render conversations exactly as the published templates do, and mark the same tokens for
the loss as TRL's training templates.

Some published templates are files that TRL ships. For the other templates, renderings.json has digests of the published
renderings. For Mistral, the expected text is built in this file, and for Vicuna in test_templates.py.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from copy_published import TEMPLATES as OF_RECIPES
from copy_published import digested
from recipe_support import table
from template_support import PLAIN, cases, render

from xpc.compiler.language.model_choices import TEMPLATES
from xpc.compiler.registry.chat_templates import NO_SYSTEM, text

pytestmark = pytest.mark.slow
SHIPPED = {
    "qwen2.5": "qwen2_5", "qwen3": "qwen3", "llama3": "llama3", "llama3.1": "llama3_1", "gemma": "gemma",
    "gemma3": "gemma3", "phi3": "phi3",
}  # fmt: skip
"""Maps built-in templates to the files of trl 1.16 with the published templates."""
MARKED = ("qwen2.5", "llama3", "gemma", "gemma3", "phi3")
"""Templates for which TRL has a variant for training that writes the same text. qwen3's variant for training differs:
it adds reasoning blocks to every answer.
"""
RENDERED = {"chatml": "chatml", "smollm2": "smollm2", "smollm3": "smollm3", "zephyr": "zephyr"}
"""Maps built-in templates that a published recipe also uses to the names of their renderings in renderings.json."""
RAISED = {"text": None, "spans": []}


@pytest.fixture(scope="module")
def folder() -> str:
    pytest.importorskip("transformers")
    trl = pytest.importorskip("trl")
    return os.path.join(os.path.dirname(trl.__file__), "chat_templates")


def made(template: str, turns: list[dict[str, Any]], more: dict[str, Any]) -> dict[str, Any]:
    """Render a conversation by a template, and return its text and marked spans. If the template raises an exception,
    return RAISED.
    """
    try:
        return render(template, turns, **more)
    except Exception:
        return RAISED


def test_every_template_is_compared() -> None:
    assert set(TEMPLATES) == {*SHIPPED, *RENDERED, "mistral", "vicuna"}


@pytest.mark.parametrize("name", SHIPPED)
def test_it_renders_as_the_published_one(folder: str, name: str) -> None:
    with open(os.path.join(folder, SHIPPED[name] + ".jinja"), encoding="utf-8") as handle:
        published = handle.read()
    compared = 0
    for case, turns, more in cases(True, True):
        theirs = made(published, turns, dict(more))
        assert made(text(name).decode(), turns, dict(more))["text"] == theirs["text"], case
        compared += theirs is not RAISED
    assert compared >= 20


@pytest.mark.parametrize("name", MARKED)
def test_the_marks_are_those_of_trl(folder: str, name: str) -> None:
    with open(os.path.join(folder, SHIPPED[name] + "_training.jinja"), encoding="utf-8") as handle:
        training = handle.read()
    for case, turns, more in cases(True, True):
        assert made(text(name).decode(), turns, dict(more)) == made(training, turns, dict(more)), case


@pytest.mark.parametrize("name", RENDERED)
def test_it_renders_as_the_recipes_one_was_published(folder: str, name: str) -> None:
    _, tools, calls = OF_RECIPES[RENDERED[name]]
    kept = table("renderings.json")[RENDERED[name]]["renders"]
    for case, turns, more in cases(tools, calls):
        # Only the digest and the length of the text are compared, not the marked spans: of the published templates,
        # only smollm3's has marks.
        assert digested(render(text(name).decode(), turns, **more))[:2] == kept[case][:2], case


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_answer_is_marked_and_nothing_else(folder: str, name: str) -> None:
    for talk in ("one turn", "several turns", "quotes and braces"):
        turns = PLAIN[talk]
        made = render(text(name).decode(), turns)
        answers = [turn["content"].strip() for turn in turns if turn["role"] == "assistant"]
        spans = [made["text"][begin:end] for begin, end in made["spans"]]
        if name == "phi3" and turns[-1]["role"] == "assistant":
            spans = [*spans[:-2], "".join(spans[-2:])] if len(spans) > len(answers) else spans
        assert len(spans) == len(answers)
        for span, answer in zip(spans, answers, strict=True):
            # qwen3 writes the reasoning of the last answer only
            assert answer.rpartition("</think>")[2].strip() in span
            # the token that ends the turn is trained on
            assert any(end in span for end in ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "</s>"))
        assert all(turn["content"].strip() not in span for turn in turns if turn["role"] == "user" for span in spans)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_system_prompt_is_rendered_or_refused(folder: str, name: str) -> None:
    found = made(text(name).decode(), PLAIN["a system prompt"], {})
    assert (found is RAISED) == (name in NO_SYSTEM)
    assert found is RAISED or "Be kind." in found["text"]


@pytest.mark.parametrize("talk", ["one turn", "several turns", "quotes and braces", "a question alone"])
def test_mistral_is_mistrals(folder: str, talk: str) -> None:
    """Mistral-7B-Instruct-v0.2 writes `[INST] question [/INST]`, then the answer, then the end token, without spaces or
    lines between them.
    """
    expected, spans = "<s>", []
    for turn in PLAIN[talk]:
        if turn["role"] == "user":
            expected += f"[INST] {turn['content']} [/INST]"
            continue
        spans.append([len(expected), len(expected) + len(turn["content"] + "</s>")])
        expected += turn["content"] + "</s>"
    assert render(text("mistral").decode(), PLAIN[talk]) == {"text": expected, "spans": spans}


def test_vicuna_is_the_recipes() -> None:
    from recipe_support import SPECS

    with open(os.path.join(SPECS, "templates", "vicuna.jinja"), "rb") as handle:
        assert handle.read() == text("vicuna")
