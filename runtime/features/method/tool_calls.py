"""Set the `response_template` of a tokenizer (transformers 5.13). With it, trl reads the tool calls in a completion.

trl itself adds a response template if it knows the exact text of the chat template. For other chat templates, such as
the built-in `qwen2.5`, this module tries all response templates of trl, and adds one that reads the tool calls.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ...core.feature import Tokenizer

QUESTION = {"role": "user", "content": "Which fruit?"}
ARGUMENTS = {"name": 'an "apple"', "count": 3, "tags": ["a", "b"]}
CALL = {"type": "function", "function": {"name": "look_up", "arguments": ARGUMENTS}}
ANSWERS: tuple[dict[str, Any], ...] = (
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "assistant", "content": "An apple: {3}."},
)
"""Answers for a test: trl can read tool calls if its parser returns these answers from the rendered text."""


def add_parser(tokenizer: Tokenizer) -> bool:
    """Set ``tokenizer.response_template``, unless the tokenizer has one. Returns whether calls can be read."""
    from trl import chat_template_utils as templates

    if any(getattr(tokenizer, name, None) is not None for name in ("response_template", "response_schema")):
        return True
    try:
        templates.add_response_schema(tokenizer)
    except ValueError:  # trl does not know the exact text of this chat template
        tokenizer.response_template = next((one for one in _known() if reads(tokenizer, one)), None)
        return tokenizer.response_template is not None
    return True


def _known() -> Iterator[Mapping[str, object]]:
    """The response templates of trl, each for one family of models."""
    from trl import chat_template_utils as templates

    for name, value in vars(templates).items():
        if name.endswith("_template") and isinstance(value, Mapping) and "fields" in value:
            yield value


def reads(tokenizer: Tokenizer, response_template: Mapping[str, Any]) -> bool:
    """Whether this response template reads all `ANSWERS` correctly from the text that the chat template writes."""
    for answer in ANSWERS:
        try:
            prompt = tokenizer.apply_chat_template([QUESTION], tokenize=False, add_generation_prompt=True)
            text = tokenizer.apply_chat_template([QUESTION, answer], tokenize=False)
            read = tokenizer.parse_response(text.removeprefix(prompt), response_template, prefix=prompt)
        except Exception:  # a template may raise any exception, and so may the parser for a text in another form
            return False
        if not text.startswith(prompt) or (read.get("content") or "").strip() != answer["content"]:
            return False
        if [one["function"] for one in read.get("tool_calls") or ()] != [
            one["function"] for one in answer.get("tool_calls", ())
        ]:
            return False
    return True
