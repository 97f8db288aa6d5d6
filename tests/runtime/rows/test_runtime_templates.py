"""Before a model is loaded, the preflight finds problems of chat templates and prompts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from runtime_bundles import bundle_of, plan, source

from xpc.runtime.core.errors import RunError
from xpc.runtime.features.method import assistant_masks
from xpc.runtime.features.rows import local_sources, prompts

PLAIN = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
MARKED = PLAIN.replace("{{", "{% generation %}{{").replace("}}", "}}{% endgeneration %}")
SPACED = (
    "{% for turn in messages %}{% if turn.role == 'user' %} Q {{ turn.content }} {% else %}A "
    "{% generation %}{{ turn.content }}{% endgeneration %}{% endif %}{% endfor %}"
)


@frozen
class Words:
    """A tokenizer with one token for each word. With `merges`, the token of a word also depends on the text after the
    word, as in a real BPE.
    """

    chat_template: str = PLAIN
    merges: bool = False

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[str]]:
        return {"input_ids": (text.replace(" ", "_ ") if self.merges else text).split(" ")}

    def apply_chat_template(
        self, messages: list[dict[str, str]], add_generation_prompt: bool = False, tokenize: bool = True, **_: Any
    ) -> str | list[str]:
        """Render each turn as `SPEAKER: CONTENT`, as tokens or as a text. The generation prompt is `assistant:`,
        without a control token for the turn's begin.
        """
        output = [f"{message.get('role', 'user')}: {message['content']}" for message in messages]
        text = " ".join([*output, "assistant:"] if add_generation_prompt else output)
        return self(text)["input_ids"] if tokenize else text


def test_a_template_with_marks_lacks_none():
    assert assistant_masks.missing(Words(MARKED)) == []


def test_a_trl_that_puts_no_marks_in(monkeypatch):
    # trl 0.18 and 0.24 lack this module.
    monkeypatch.setitem(sys.modules, "trl.chat_template_utils", None)
    assert assistant_masks.missing(Words(MARKED)) == []
    assert "no {% generation %} marks" in assistant_masks.missing(Words(PLAIN))[0]


@pytest.mark.slow  # imports trl's trainers
def test_marks_that_nobody_can_put_in():
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("trl.chat_template_utils")
    from tokenizers import Tokenizer, models

    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))
    tokenizer.chat_template = PLAIN
    assert "no {% generation %} marks" in assistant_masks.missing(tokenizer)[0]


@pytest.mark.parametrize(("kinds", "found"), [((None,), 1), (("text", "messages"), 0)])
def test_plain_rows_have_no_answers_to_mask(tmp_path: Path, kinds: tuple[str | None, ...], found: int) -> None:
    """trl would refuse them after the model is loaded. A mixture may contain them next to conversations."""
    sources = [source("rows.jsonl", "prompt_completion", **({"kind": kind} if kind else {})) for kind in kinds]
    bundle = bundle_of(str(tmp_path), plan("model", sources))
    checked = assistant_masks.AssistantMasks().check_first_row
    row = {"prompt": "2 + 2?", "completion": "4"}
    output = checked(bundle, "rows.jsonl", row, Words(MARKED))  # type: ignore[arg-type]
    assert [("needs" in one) for one in output] == [True] * found


@pytest.mark.slow  # builds a tokenizer
def test_marks_around_other_turns(tmp_path: Path):
    """A template is reported if its marks enclose the questions of a row, or no turn at all. It is not reported if its
    marks enclose the answers. A template without marks is not reported either, because TRL may add marks."""
    import tiny
    import trl.chat_template_utils
    from transformers import AutoTokenizer

    tiny.build(str(tmp_path))
    tokenizer = AutoTokenizer.from_pretrained(str(tmp_path))
    rows = tiny.conversations(2)
    repeated = [
        [{"role": "user", "content": "Say hello to all."}, {"role": "assistant", "content": "Say hello to all."}]
    ]
    assert assistant_masks.wrong_marks(rows, tokenizer) is None
    own = tokenizer.chat_template
    tokenizer.chat_template = MARKED
    assert "marks a question" in (assistant_masks.wrong_marks(rows, tokenizer) or "")
    assert assistant_masks.wrong_marks(repeated, tokenizer) is None
    tokenizer.chat_template = own.replace("'assistant' %}{% generation", "'user' %}{% generation")
    assert "marks a question" in (assistant_masks.wrong_marks(rows, tokenizer) or "")
    tokenizer.chat_template = own.replace("'assistant' %}{% generation", "'model' %}{% generation")
    assert "marks nothing" in (assistant_masks.wrong_marks(rows, tokenizer) or "")
    for without in (PLAIN, trl.chat_template_utils.qwen2_5_chat_template):
        tokenizer.chat_template = without
        assert assistant_masks.wrong_marks(rows, tokenizer) is None


@pytest.mark.slow  # imports transformers
def test_marks_after_an_answer_that_ends_with_a_space():
    """If a tokenizer has no token for a space, transformers before 5.24 marks everything after an answer that ends with
    a space, and nothing after an answer that begins with a space. Both stop a run.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: place for place, word in enumerate(["?", "Q", "A", "first", "hello", "again", "space"])}
    core = Tokenizer(models.WordLevel(words, unk_token="?"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, chat_template=SPACED)

    def why(answer: str) -> str | None:
        turns = [("user", "first"), ("assistant", answer), ("user", "hello again"), ("assistant", "space")]
        return assistant_masks.wrong_marks([[{"role": role, "content": text} for role, text in turns]], tokenizer)

    assert why("first") is None
    assert "marks a question" in (why("first ") or "")
    assert "marks nothing" in (why(" first") or "")


def test_prompts_and_answers_that_part():
    row = {"prompt": "two and two", "completion": " is four"}
    assert not prompts._boundary_moves(row, Words())
    assert prompts._boundary_moves(row, Words(merges=True))
    answer = {"role": "assistant", "content": "four"}
    turns = {"prompt": [{"content": "two and two"}], "chosen": [answer]}
    assert not prompts._boundary_moves(turns, Words())
    # The prompt's text ends with `assistant:`. The template does not write this text before a turn of a tool.
    assert prompts._boundary_moves({**turns, "chosen": [{**answer, "role": "tool"}]}, Words())
    assert not prompts._boundary_moves({"messages": []}, Words())


def test_a_split_that_a_folder_does_not_have(tmp_path: Path):
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "part-0.jsonl").write_text("{}\n")

    class Bundle:
        # the bundle lies in the same folder as the rows
        folder = str(tmp_path / "bundle")

    source = {"path": "rows", "bundled": None}
    assert local_sources.files(Bundle(), source, "train") == ("json", [str(tmp_path / "rows" / "part-0.jsonl")])
    with pytest.raises(RunError, match="no file of the split 'test'"):
        local_sources.files(Bundle(), source, "test")


def before_rows(bundle: Any) -> list[str]:
    return [one for feature in bundle.features for one in feature.before_rows(bundle, None)]


@pytest.mark.slow  # imports Liger's kernels
def test_a_family_that_liger_has_no_kernels_for_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("liger_kernel")
    facts = plan(str(tmp_path), [source("d.jsonl")])
    facts["model"].update(liger=True)
    # `liger_unchecked` is not set, so the compiler has already checked the model family, and the run does not check it
    # again.
    assert before_rows(bundle_of("/b", facts)) == []
    facts["model"].update(liger_unchecked=True)
    for family, words in (("qwen2", []), ("gpt2", ["Liger has no kernels for the family 'gpt2'; remove `liger`"])):
        (tmp_path / "config.json").write_text(f'{{"model_type": "{family}"}}')
        (tmp_path / "tokenizer.json").write_text("{}")
        assert before_rows(bundle_of("/b", facts)) == words
