"""The chat templates in `specs/templates` render what the published templates render, and mark the same answers for the
loss.

`renderings.json` has the conversations rendered by the published templates (copy_published.py). Vicuna has no published
template. FastChat joins Vicuna's turns in Python, so this file does the same.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from copy_published import TEMPLATES, digested, renderings
from recipe_support import REPOSITORY, SPECS, table
from template_support import PLAIN, cases, render

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def stack() -> None:
    """Import the training libraries only in the process that runs these tests."""
    pytest.importorskip("transformers")


RENDERED = table("renderings.json")
VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)


def ours(name: str) -> str:
    with open(os.path.join(SPECS, "templates", name + ".jinja"), encoding="utf-8") as handle:
        return handle.read()


def test_every_template_is_compared() -> None:
    names = {name.removesuffix(".jinja") for name in os.listdir(os.path.join(SPECS, "templates"))}
    assert names == {*RENDERED, "vicuna"} == {*TEMPLATES, "vicuna"}


@pytest.mark.parametrize("name", RENDERED)
def test_ours_renders_as_the_published_one(name: str) -> None:
    _, tools, calls = TEMPLATES[name]
    made = {case: digested(render(ours(name), turns, **more)) for case, turns, more in cases(tools, calls)}
    assert made == RENDERED[name]["renders"]


@pytest.mark.parametrize("name", RENDERED)
def test_another_template_is_noticed(name: str) -> None:
    other = ours(name).replace("\\n", "\\n\\n", 1)
    _, tools, calls = TEMPLATES[name]
    made = [digested(render(other, turns, **more)) for _, turns, more in cases(tools, calls)]
    assert made != list(RENDERED[name]["renders"].values())


def test_only_answers_count_for_smollm3_and_vicuna() -> None:
    marked = {name for name in [*RENDERED, "vicuna"] if render(ours(name), PLAIN["several turns"])["spans"]}
    assert marked == {"smollm3", "vicuna"}


def test_the_renderings_are_those_of_the_published_texts() -> None:
    folder = os.environ.get("XPC_PUBLISHED") or os.path.join(REPOSITORY, "..", "shared", "published")
    if not os.path.isdir(os.path.join(folder, "open-r1")):
        pytest.skip("the published files are not on this machine; the other tests compare with their renderings")
    assert renderings(folder) == RENDERED


def fastchat(turns: list[dict[str, Any]]) -> tuple[str, list[list[int]]]:
    """Return the text that FastChat's vicuna_v1.1 writes for a conversation, and the spans that are trained on.

    The text is the begin token, followed by what Conversation.get_prompt (ADD_COLON_TWO) returns. FastChat's preprocess
    gives a loss to each answer and its end token (fastchat/train/train.py, conversation.py).
    """
    text, spans = "<s>" + VICUNA + " ", []
    for index, one in enumerate(turns):
        text += {"user": "USER", "assistant": "ASSISTANT"}[one["role"]] + ": "
        start = len(text)
        text += one["content"] + (" ", "</s>")[index % 2]
        if index % 2:
            spans.append([start, len(text)])
    return text, spans


@pytest.mark.parametrize("name", ["one turn", "a question alone", "several turns", "quotes and braces"])
def test_vicuna_is_fastchats(name: str) -> None:
    made = render(ours("vicuna"), PLAIN[name])
    assert (made["text"], made["spans"]) == fastchat(PLAIN[name])


def test_vicuna_asks_as_fastchat_does() -> None:
    """To ask for an answer, FastChat adds a turn without a message. In the text, this turn is the role's name and a
    colon.
    """
    made = render(ours("vicuna"), PLAIN["a question alone"], add_generation_prompt=True)
    assert made["text"] == fastchat(PLAIN["a question alone"])[0] + "ASSISTANT:"
