"""In every format of rows, the runtime finds parts of a row that are missing in its rendered text, and says where in
the row they are.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from xpc.compiler.registry import chat_templates
from xpc.runtime.core import row_comparison
from xpc.runtime.core.errors import RunError
from xpc.runtime.features.rows import prompts
from xpc.runtime.features.rows.message_fields import Renderer, carried_by_first, packed, without_nulls

pytestmark = pytest.mark.slow
TOOL = {"type": "function", "function": {"name": "weather", "description": "Says it.", "parameters": {}}}
PLAIN = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


@pytest.fixture(scope="module", autouse=True)
def libraries() -> None:
    """Import the libraries in the process that runs these tests, and not when pytest collects them."""
    global tokenizers, transformers
    tokenizers, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")


def tokenizer(template: str) -> Any:
    core = tokenizers.Tokenizer(tokenizers.models.BPE())
    out = transformers.PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>")
    out.chat_template = template
    out.apply_chat_template = Renderer(out)
    return out


def built_in(name: str) -> Any:
    return tokenizer(chat_templates.text(name).decode())


def turn(role: str, content: Any, **keys: Any) -> dict[str, Any]:
    return packed({"role": role, "content": "" if content is None else content, **keys}, "a.jsonl, row 0")


def call(arguments: Any) -> dict[str, Any]:
    return {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": arguments}}


def found(row: dict[str, Any], reader: Any) -> list[tuple[str, int | None, str]]:
    losses = row_comparison.losses(row, reader, prompts.conversations)
    return [(one.kind, one.turn, one.how) for one in losses]


def rendered(row: dict[str, Any], reader: Any) -> str:
    return str(reader.apply_chat_template(row["messages"], tokenize=False))


@pytest.mark.parametrize(
    ("template", "messages", "losses"),
    [
        (PLAIN, [("user", "1"), ("assistant", "1")], []),
        (PLAIN, [("user", ""), ("assistant", "1")], []),
        (PLAIN.replace("%}", "if message['role'] != 'critic' %}", 1), [("critic", "1"), ("user", "1")],
         [("content", 0, "missing")]),
        ("{% for message in messages %}{% if loop.last %}{{ message['content'] }}{% endif %}{% endfor %}",
         [("user", "1"), ("assistant", "1")], [("content", 0, "missing")]),
        (PLAIN.replace("message['content']", "message['content'].split('</think>')[-1]"),
         [("user", "1"), ("assistant", "<think>\nso\n</think>\n\n1")], [("reasoning", 1, "missing")]),
        ("{{ messages }}", [("user", "1"), ("assistant", "2")], []),
        ("{{ messages[0]['content'] }}{{ 1 / 0 }}", [("user", "1")], []),
    ],
)  # fmt: skip
def test_a_content_is_found_in_its_place(template: str, messages: Any, losses: Any) -> None:
    assert found({"messages": [turn(*one) for one in messages]}, tokenizer(template)) == losses


@pytest.mark.parametrize("key", row_comparison.REASONING)
def test_reasoning_is_found_under_each_of_its_names(key: str) -> None:
    row = {"messages": [turn("user", "1"), turn("assistant", "1", **{key: "1"})]}
    assert found(row, built_in("chatml")) == [("reasoning", 1, "missing")]
    # transformers 5 renames `reasoning` and `thinking` to `reasoning_content`; transformers 4 does not
    assert not key.endswith("content") or found(row, built_in("qwen3")) == []
    twice = {"messages": [turn("user", "1"), turn("assistant", "1", reasoning_content="1", reasoning="1")]}
    assert found(twice, built_in("qwen3")) == []


@pytest.mark.parametrize("value", [["it shines"], [{"type": "text", "text": "it shines"}], {"text": "it shines"}])
def test_reasoning_that_is_no_text_is_found(value: Any) -> None:
    row = {"messages": [turn("user", "?"), turn("assistant", "!", reasoning_content=value)]}
    lost = [("reasoning", 1, "missing")]
    assert [one for one in found(row, built_in("qwen3")) if one[0] == "reasoning"] == lost
    written = "{{ m.reasoning_content | tojson if m.reasoning_content }}"
    template = f"{{% for m in messages %}}{{{{ m.content }}}}{written}{{% endfor %}}"
    assert found(row, tokenizer(template)) == []


@pytest.mark.parametrize("arguments", [{"city": "Paris", "days": 2}, '{"city": "Paris", "days": 2}'])
@pytest.mark.parametrize(
    ("template", "written"),
    [
        (chat_templates.text("qwen2.5").decode(), '{"name": "weather", "arguments": {"city": "Paris", "days": 2}}'),
        (chat_templates.text("qwen3").decode(), '{"name": "weather", "arguments": {"city": "Paris", "days": 2}}'),
        (chat_templates.text("llama3.1").decode(), '{"name": "weather", "parameters": {"city": "Paris", "days": 2}}'),
        ("{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name + c.function.arguments }}"
         "{% endfor %}{% endfor %}", 'weather{"city": "Paris", "days": 2}'),
    ],
)  # fmt: skip
def test_arguments_are_encoded_once(template: str, written: str, arguments: Any) -> None:
    row = {"messages": [turn("user", "?"), turn("assistant", None, tool_calls=[call(arguments)])]}
    reader = tokenizer(template)
    assert written in rendered(row, reader)
    assert not [one for one in found(row, reader) if one[0] in ("tool_call", "argument")]


def test_arguments_in_a_wrong_form_are_found() -> None:
    both = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ CALL }}{% endfor %}{% endfor %}"
    row = {"messages": [turn("user", "?"), turn("assistant", None, tool_calls=[call('{"city": "Paris"}')])]}
    twice = tokenizer(both.replace("CALL", "c.function.name + (c.function.arguments | tojson | tojson)"))
    assert found(row, twice) == [("argument", 1, "encoded twice")]
    python = tokenizer(
        both.replace(
            "{{ CALL }}", "{{ c.function.name }}{% for k, v in c.function.arguments.items() %}{{ {k: v} }}{% endfor %}"
        )
    )
    row = {"messages": [turn("user", "?"), turn("assistant", None, tool_calls=[call({"city": "Paris"})])]}
    assert found(row, python) == [("argument", 1, "as Python text")]


def test_tools_are_found_by_name_and_description() -> None:
    row = carried_by_first({"messages": [turn("user", "?"), turn("assistant", "!")]}, {"tools": [TOOL]})
    assert found(row, built_in("chatml")) == [("tool", None, "missing")] * 2
    assert found(row, built_in("qwen2.5")) == []


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (PLAIN, "What is it?"),
        ("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
         "{{ p.text | trim }}/{% endfor %}{% endif %}{% endfor %}", "What is/it?/"),
    ],
)  # fmt: skip
def test_parts_are_joined_as_the_template_does(template: str, text: str) -> None:
    parts = [{"type": "text", "text": "What is "}, {"type": "text", "text": "it?"}]
    row = {"messages": [turn("user", parts)]}
    assert rendered(row, tokenizer(template)) == text
    assert row["messages"][0]["content"] == "What is it?"


@pytest.mark.parametrize("part", [{"type": "image_url", "image_url": {"url": "a"}}, {"type": "refusal"}, 7])
def test_another_part_is_refused(part: Any) -> None:
    with pytest.raises(RunError, match="row 0: a message has a part of the type"):
        turn("user", [part])


def test_null_keys_of_typed_files_are_no_losses() -> None:
    assert without_nulls({"a": None, "b": [{"c": None, "d": 0}]}) == {"b": [{"d": 0}]}


def test_one_sentence_names_all_that_is_lost() -> None:
    row = {"messages": [turn("user", "?"), turn("assistant", None, tool_calls=[call({})], reasoning_content="so")]}
    rows = {3: carried_by_first(row, {"tools": [TOOL]}), 9: {"messages": [turn("user", "?")]}}
    reader = built_in("chatml")
    with pytest.raises(RunError) as stopped:
        row_comparison.check(rows, reader, "a.jsonl", prompts.conversations, ["tools"])
    assert str(stopped.value).startswith(
        "a.jsonl, row 3: the chat template leaves out the reasoning 'so' of turn 1 (assistant), and tool calls, so the "
        "model would not learn what the row says (1 of 2 compared rows)"
    )
    assert str(stopped.value).endswith("`data(omit=[tools, reasoning, tool_calls])`")
    allowed = ["tools", "reasoning", "tool_calls"]
    notes = row_comparison.check(rows, reader, "a.jsonl", prompts.conversations, allowed)
    assert "a.jsonl: 1 of 2 compared rows lose tool calls, as `omit` allows" in notes


def test_a_batch_of_conversations_is_read_like_each() -> None:
    reader = built_in("qwen2.5")
    plain, tools = (
        [turn("user", "1")],
        carried_by_first({"messages": [turn("user", "2")]}, {"tools": [TOOL]})["messages"],
    )
    both = reader.apply_chat_template([plain, tools], tokenize=False)
    assert both == [reader.apply_chat_template(one, tokenize=False) for one in (plain, tools)]
    assert "weather" in both[1]
    assert "weather" not in both[0]


def test_rows_of_each_structure_are_compared() -> None:
    datasets = pytest.importorskip("datasets")
    rows = [{"messages": [{"role": "user", "content": "1", "fields": ""}]}] * 5000
    rows[1234] = {"messages": [{"role": "critic", "content": "1", "fields": ""}]}
    rows[3211] = {"messages": [turn("assistant", "1", reasoning="1")]}
    rows[4321] = {"messages": [turn("user", "1", tools=[1])]}
    sampled = row_comparison.sampled_rows(datasets.Dataset.from_list(rows))
    assert {0, 1, 2, 3, 1234, 3211, 4321} <= set(sampled)
    assert 200 <= len(sampled) <= 210
    parts = datasets.concatenate_datasets([datasets.Dataset.from_list(rows[at:][:2500]) for at in (0, 2500)])
    assert row_comparison.sampled_rows(parts) == sampled


def test_the_digest_of_a_tokenizer_stays() -> None:
    """A tokenizer has the same digest in every process. The datasets library needs this to find cached rows that
    another process has tokenized.
    """
    fingerprint = pytest.importorskip("datasets.fingerprint")
    reader = built_in("qwen3")
    before = fingerprint.Hasher.hash(reader)
    rendered({"messages": [turn("user", [{"type": "text", "text": "1"}])]}, reader)
    assert fingerprint.Hasher.hash(reader) == before == fingerprint.Hasher.hash(built_in("qwen3"))


def test_fields_are_json_text() -> None:
    message = turn("assistant", None, tool_calls=[call("{}")], name=None)
    assert json.loads(message.pop("fields")) == {"tool_calls": [call("{}")]}
    assert message == {"role": "assistant", "content": ""}


LONG = "It is two, because one and one are two."


def test_a_tool_result_may_be_written_as_json() -> None:
    """The template of Llama 3.1 writes the result of a tool as a JSON text, as the published template does."""
    row = {"messages": [turn("user", "a < b"), turn("tool", 'a "b" c'), turn("assistant", 'x "y" z')]}
    reader = built_in("llama3.1")
    assert '"a \\"b\\" c"' in rendered(row, reader)
    assert found(row, reader) == []


@pytest.mark.parametrize(
    ("written", "how", "piece"),
    [
        ("content[:20]", "missing", "two, because one and one are two."[-40:]),
        ("content.split('because')[0]", "missing", "because one and one are two."),
        ("content.split(',')[1]", "missing", LONG[:40]),
        ("content | upper", "missing", LONG[:40]),
        ("content | lower", "missing", LONG[:40]),
        ("content | replace('one and', 'one &amp;')", "missing", LONG[:40]),
        ("content + message.content", "twice", LONG[:40]),
        ("content", "", ""),
        ("content | trim", "", ""),
    ],
)
def test_a_text_that_the_template_changes_is_found(written: str, how: str, piece: str) -> None:
    template = "{% for message in messages %}{{ message.role + message." + written + " }}{% endfor %}"
    row = {"messages": [turn("user", f" {LONG}\n"), turn("assistant", LONG)]}
    losses = row_comparison.losses(row, tokenizer(template), prompts.conversations)
    assert [(one.turn, one.how) for one in losses if one.turn == 1][:1] == ([(1, how)] if how else [])
    assert all(one.piece.endswith(piece) or piece.startswith(one.piece) for one in losses if one.turn == 1)
    if how == "twice":
        assert "writes the content 'It is two, because" in str(losses[-1])
        assert str(losses[-1]).endswith(" of turn 1 (assistant) twice")
