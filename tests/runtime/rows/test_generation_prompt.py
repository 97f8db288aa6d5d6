"""In a run that trains on generated answers, a prompt must end with the beginning of an answer (the generation prompt).
Otherwise the run stops.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from xpc.runtime.features.method.generation_prompt import GenerationPrompt

TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
ASKS = "{% if add_generation_prompt %}<|im_start|>@{% endif %}"
INST = "{% for m in messages %}{% if m.role == 'user' %}[INST] @ [/INST]{% else %} @</s>{% endif %}{% endfor %}"
REASONED = TURNS.replace("{{ m.content", "{% if m.role == 'assistant' %}<think>\n\n</think>\n\n{% endif %}{{ m.content")
CHANNELS = TURNS.replace("\n{{ m.content", "{{ '<|channel|>final' if m.role == 'assistant' }}\n{{ m.content")


def findings(template: str) -> list[str]:
    jinja = pytest.importorskip("jinja2.sandbox")
    compiled = jinja.ImmutableSandboxedEnvironment().from_string(template)

    def apply_chat_template(messages: Any, tokenize: bool, add_generation_prompt: bool = False) -> str:
        return str(compiled.render(messages=messages, add_generation_prompt=add_generation_prompt))

    tokenizer = SimpleNamespace(chat_template=template, apply_chat_template=apply_chat_template)
    return GenerationPrompt().before_rows(SimpleNamespace(), tokenizer)  # type: ignore[arg-type]


def test_prompts_without_the_beginning_of_an_answer_stop_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    (one,) = findings(TURNS)
    assert one.startswith("the chat template writes no generation prompt: a prompt ends with ")
    assert "answers begin with '<|im_start|>assistant\\n', so the model would continue the user's turn; write `" in one
    assert capsys.readouterr().out == ""


def test_a_prompt_that_names_another_role_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert findings(TURNS + ASKS.replace("@", "bot\n")) == []
    assert "ends a prompt with '<|im_start|>bot\\n', and begins answers with '<|im_start|>assistant\\n'" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    "template",
    [
        TURNS + ASKS.replace("@", "assistant\n"),
        INST.replace("@", "{{ m.content }}"),
        REASONED + ASKS.replace("@", "assistant\n"),
        TURNS + ASKS.replace("@", "assistant\n<think>\n"),
        CHANNELS + ASKS.replace("@", "assistant"),
        CHANNELS + ASKS.replace("@", "assistant<|channel|>analysis"),
        "{{ raise_exception('no') }}",
        TURNS + "{% if messages[-1].role == 'user' %}<|im_start|>assistant\n{% endif %}",
    ],
)
def test_other_templates_are_not_reported(template: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert findings(template) == []
    assert capsys.readouterr().out == ""
