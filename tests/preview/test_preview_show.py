"""`xpc preview` writes its formats correctly: text, JSON, HTML page and golden file."""

from __future__ import annotations

import json
import os
import time
from html.parser import HTMLParser
from typing import Any

import pytest
from preview_samples import ANSWER, QUESTION, TALK, WRONG, found, row, sequence

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.preview import command, golden, process
from xpc.compiler.preview.html import page
from xpc.compiler.preview.show import as_json, common_tokens, text
from xpc.compiler.preview.worker import tokens
from xpc.compiler.preview.worker.printed import waiting

SHOWN = """\
row 0 of train.jsonl: 7 tokens, 2 bear loss
  user: 4 tokens
         <user>What·\\n
          is it?<end>
  assistant: 3 tokens, 2 bear loss
         <assistant>
  learn  An apple.  <end>

1 row: nothing wrong
"""
EVIL = "\x1b[31m\u202e<script>alert(1)</script>"


def test_text_shows_turns_and_what_bears_loss() -> None:
    assert text(found(TALK)) == SHOWN


def test_what_the_chat_template_writes_before_the_turns_has_its_own_title() -> None:
    own = found(row(sequence("text", ("You are X.", 0, -1), ("<end>", 1, -1), *QUESTION, *ANSWER)))
    shown = text(own).splitlines()
    assert shown[1:3] == ["  chat template: 2 tokens, 1 bear loss", "         You are X."]
    assert shown[4] == "  user: 4 tokens"
    assert "<i>chat template</i>" in page(own, "run.xp")


def test_tokens_have_ids_and_visible_spaces() -> None:
    shown = text(found(TALK), tokens=True)
    assert "100 <user> | 101 What·\\n | 102 ·is·it? | 103 <end>" in shown


def test_images_have_their_sizes_and_tokens() -> None:
    shown = {**TALK, "images": [{"width": 1280, "height": 720, "tokens": 1196}]}
    assert text(found(shown)).splitlines()[1] == "  image 0: 1,280 x 720 pixels, 1,196 tokens"
    assert "image 0: 1,280 x 720 pixels, 1,196 tokens" in page(found(shown), "run.xp")


def test_color_adds_codes_only() -> None:
    shown = text(found(TALK), color=True)
    assert "\x1b[" in shown
    assert "".join(part.partition("m")[2] for part in ("m" + shown).split("\x1b[")) == SHOWN


def test_verdicts_and_excluded_rows_are_counted() -> None:
    shown = text(found(row(sequence("text", *QUESTION, *ANSWER), verdicts=[WRONG]), row(number=7, excluded="too long")))
    assert "  warning XP592 end-not-learned: no end token follows the answer\n    help: name a chat_template" in shown
    assert "row 7 of train.jsonl\n  not trained on: too long\n" in shown
    assert shown.endswith("2 rows: 1 warning\n")


COUNTED = {
    "rows": 40, "tokens": 4000, "limit": 512, "quantiles": {"0.0": 20, "0.5": 90, "1.0": 600}, "cut": 2, "dropped": 0,
    "kept_tokens": 3900, "learned_tokens": 975, "steps": {"epoch": 5, "run": 10},
}  # fmt: skip


@pytest.mark.parametrize(
    ("lost", "last"),
    [
        ({}, "40 rows counted: 2 longer than seq"),
        ({"cut": 0, "dropped": 15}, "40 rows counted: 15 dropped"),
        ({"dropped": 15}, "40 rows counted: 15 dropped, 2 longer than seq"),
        ({"cut": 0}, "40 rows counted: none is dropped or longer than seq"),
    ],
)
def test_the_last_line_has_the_rows_that_are_lost(lost: dict[str, int], last: str) -> None:
    counted = {**COUNTED, **lost}
    messages = ["5 of 45 rows are left out: their prompts have over 9 tokens"]
    shown = text(found(order=[[["3", "1"]]], counts=counted, messages=messages))
    assert shown.endswith(f"\n{last}\n")
    assert "nothing wrong" not in shown
    assert f"\n{messages[0]}\n40 rows, 4,000 tokens\n" in shown
    assert f"<p>{messages[0]}</p>" in page(found(counts=counted, messages=messages), "run.xp")
    assert text(found(TALK, counts=counted)).endswith(f"\n1 row: nothing wrong; {last}\n")
    assert command._status(found(TALK, counts=counted), True) == int("none" not in last)
    assert command._status(found(TALK, counts=counted), False) == 0


def test_prompts_are_shown_with_their_group() -> None:
    prompt = row(sequence("prompt", ("<user>", 0, 0), ("What?", 0, 0), roles=("user",)))
    shown = text(found(prompt, bears_loss=False, group=4, order=[[["0 (4 completions)"]]]))
    assert "  the prompt: 2 tokens, for a group of 4 completions\n" in shown
    assert (
        "step 1: 0 (4 completions)\n\nEach step lists the row numbers of its prompts, for all processes together."
        in shown
    )


def test_the_page_has_the_order_and_the_counts() -> None:
    shown = page(found(TALK, order=[[["3", "1"]]], counts=COUNTED), "run.xp")
    assert "<p>step 1: 3, 1</p>" in shown
    assert "<p>2 of 40 (5.0 %) are longer than 512 tokens</p>" in shown


class Chat:
    """A tokenizer of single characters with a chat template; it counts the turns that it renders and the decoded
    characters.
    """

    turns = characters = 0

    def apply_chat_template(self, messages: list[dict[str, str]], **_: object) -> str:
        self.turns += len(messages)
        return "".join(f"<{one['role']}>{one['content']}</>\n" for one in messages)

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [chr(one) for one in ids]

    def decode(self, ids: list[int], **_: object) -> str:
        self.characters += len(ids)
        return "".join(map(chr, ids))


def test_the_time_for_a_row_is_proportional_to_its_turns() -> None:
    """The turns after the 500th are not rendered with all turns before them, and still begin and end in the right
    place. Equal tokens are decoded once.
    """
    chat = Chat()
    messages = [{"role": ("user", "assistant")[at % 2], "content": f"{at} is it?"} for at in range(2000)]
    ids = [ord(one) for one in chat.apply_chat_template(messages)]
    texts = tokens.pieces(chat, ids)
    starts = tokens.beginnings(chat, None, messages, {})
    turns = tokens.turns_of(texts, [one["content"] for one in messages], starts)
    assert chat.turns <= 2000 + 501 * 500 / 2
    assert chat.characters < 50
    for at in (0, 499, 500, 501, 1500, 1999):
        part = "".join(one for one, turn in zip(texts, turns, strict=True) if turn == at)
        assert part == f"<{messages[at]['role']}>{at} is it?</>\n"


def test_a_row_that_takes_long_is_reported_at_doubling_intervals() -> None:
    printed: list[str] = []
    with waiting(printed.append, "preparing row 0", first=0.02):
        while len(printed) < 2:
            time.sleep(0.01)
    assert {*printed} == {"preparing row 0: 0 s so far"}
    with waiting(printed.append, "preparing row 1"):
        pass
    assert "row 1" not in printed[-1]


def test_chosen_and_rejected_have_a_common_beginning() -> None:
    rejected = sequence("rejected", *QUESTION, ("<assistant>", 0, 1), ("A pear.", 1, 1))
    chosen = sequence("chosen", *QUESTION, *ANSWER)
    rejected["tokens"][5][0] = 700
    assert common_tokens([chosen, rejected]) == 5
    shown = text(found(row(chosen, rejected)))
    assert "\n  chosen: 7 tokens, 2 bear loss\n    " in shown
    assert "\n  rejected: 6 tokens, 1 bear loss\n    " in shown
    assert "chosen and rejected share their first 5 tokens" in shown


def test_a_long_text_loses_its_middle_on_a_terminal_only() -> None:
    long = row(sequence("text", *QUESTION, ("<assistant>", 0, 1), ("word " * 1000, 1, 1)))
    assert "... 3,000 characters ..." in text(found(long))
    assert "word " * 999 in text(found(long), complete=True)


def test_rows_cannot_control_the_terminal() -> None:
    evil = row(sequence("text", (EVIL, 1, 0), roles=(EVIL, EVIL)), excluded=EVIL, verdicts=[{**WRONG, "message": EVIL}])
    for shown in (text(found(evil)), text(found(evil), tokens=True), golden.content(found(evil))):
        assert "\x1b" not in shown
        assert "\u202e" not in shown
    assert json.loads(as_json(found(evil)))["rows"][0]["excluded"] == EVIL


class Page(HTMLParser):
    """An HTML parser that collects texts, and elements that are never closed."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.texts = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "link", "br"):
            self.names.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.names.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts += data


def test_page_is_well_formed_and_loads_nothing() -> None:
    evil = row(sequence("text", (EVIL, 1, 0), *ANSWER, cut="two words"), excluded=EVIL, verdicts=[WRONG])
    written = page(found(TALK, evil), "a<b>.xp")
    read = Page()
    read.feed(written)
    assert not read.names
    assert "<script" not in written
    assert "http" not in written.replace("Content-Security-Policy", "").replace("http-equiv", "")
    assert "\x1b" not in written
    for words in ("a<b>.xp", "row 0 of train.jsonl", "An apple.", "XP592 end-not-learned", "not trained on"):
        assert words in read.texts


def test_page_keeps_the_spaces_of_a_row_and_adds_none() -> None:
    code = row(sequence("text", *QUESTION, ("<assistant>", 0, 1), ("if x:\n    y  = 1", 1, 1), cut="the end"))
    written = page(found(code), "run.xp")
    assert '<span>&lt;assistant&gt;</span><b class="learn">if x:<br>    y  = 1</b><s>theend</s></p></div>' in written
    assert "white-space: break-spaces" in written


def test_page_and_text_have_the_same_rewards() -> None:
    line = "reward short: empty 0, made-up None, solution 0.25; spread 0.25"
    values = {"empty": 0.0, "made-up": None, "solution": 0.25}
    rewarded = {**TALK, "rewards": [{"name": "short", "values": values, "spread": 0.25}]}
    assert f"\n  {line}\n" in text(found(rewarded))
    assert f"<p>{line}</p>" in page(found(rewarded), "run.xp")


def test_golden_is_written_once_and_then_compared(tmp_path: object) -> None:
    path = os.path.join(str(tmp_path), "run.preview")
    assert golden.compare(path, found(TALK), False) == (f"wrote {path}\n", False)
    assert golden.compare(path, found(TALK), False) == (f"{path} is as before: 1 rows\n", False)
    other = row(sequence("text", *QUESTION, ("<assistant>", 0, 1), ("An apple.  ", 1, 1), ("<end>", 0, 1)))
    shown, differs = golden.compare(path, found(other), False)
    assert differs
    assert "-row 0 of train.jsonl: 7 tokens, 2 bear loss\n+row 0 of train.jsonl: 7 tokens, 1 bear loss\n" in shown
    assert shown.splitlines()[-1].endswith("--update writes the file again")
    assert golden.compare(path, found(other), True) == (f"wrote {path}\n", False)
    assert not golden.compare(path, found(other), False)[1]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ((0.731, 0.25), (0.7314, 0.2496), True),
        ((1e-5, -2.0), (-1e-5, -2.01), True),
        ((12.5, 1e20), (12.6, 1e20), True),
        ((0.731, 0.25), (0.75, 0.25), False),
        ((0.0, 0.25), (0.01, 0.25), False),
        ((1.0, None), (1.0, 0.0), False),
    ],
)
def test_golden_rewards_may_differ_in_their_last_digits(
    tmp_path: object, first: tuple[Any, ...], second: tuple[Any, ...], same: bool
) -> None:
    """A reward that is a model has other last digits on another CPU. All else is compared exactly."""
    path = os.path.join(str(tmp_path), "run.preview")

    def scored(values: tuple[Any, ...], name: str = "v2.py:score") -> Any:
        verdict = {**WRONG, "code": "XP589", "message": f"the reward {name} is {values[0]:g} for the answer"}
        one = {"name": name, "values": dict(zip(("empty", "made-up"), values, strict=True)), "spread": values[0]}
        return found({**row(sequence("text", *QUESTION, *ANSWER), verdicts=[verdict]), "rewards": [one]})

    golden.compare(path, scored(first), False)
    assert golden.compare(path, scored(second), False)[1] == (not same)
    assert golden.compare(path, scored(first, "v3.py:score"), False)[1]
    cut = {**scored(first), "rows": [{**scored(first)["rows"][0], **row(sequence("text", *QUESTION))}]}
    assert golden.compare(path, cut, False)[1]


def test_golden_below_a_file_is_an_error(tmp_path: object) -> None:
    path = os.path.join(str(tmp_path), "file")
    with open(path, "w", encoding="utf-8") as handle:
        handle.write("not a folder")
    with pytest.raises(UsageError, match="cannot be written"):
        golden.compare(os.path.join(path, "run.preview"), found(TALK), False)


def test_a_message_names_the_file_of_the_spec_and_not_its_copy() -> None:
    one = {"code": "XP588", "help": "", "message": "an error in line 2 of files/my-reward-1a2b3c4d.py, with row 0"}
    process._with_slugs({"rows": [{"verdicts": [one]}]})
    assert one["message"] == "an error in line 2 of my-reward.py, with row 0"
