"""Corrections to trl 1.16's tool calls: convert tools' results to texts, report results that are so long that trl drops
them, and make up calls in a rehearsal.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import say
from ..features.method.tools import as_text, example_call

VARIABLE = "XPC_MADE_UP_TOOL_CALLS"
"""``xpc rehearse`` sets this variable to 1. An untrained model may call no tool, so a made-up tool call then replaces
the first completion of each round. The tools take turns."""


class ToolCallingTrainer:
    """Extends the loop in which trl's GRPO trainer executes the tool calls in its completions."""

    dropped_reported = False

    def _tool_call_loop(
        self, prompts: Any, prompt_ids: Any, completion_ids: Any, completions: Any, logprobs: Any, *rest: object
    ) -> object:
        if os.environ.get(VARIABLE) == "1":
            from trl.chat_template_utils import parse_response

            tokenizer, tools = self._tokenizer, self.tools  # type: ignore[attr-defined]
            called = tools[self.state.global_step % len(tools)]  # type: ignore[attr-defined]
            ids = call_tokens(self, prompts[0], tools, called)
            if ids is not None:
                completion_ids[0] = ids
                completions[0] = [parse_response(tokenizer, ids, prefix=prompt_ids[0], tools=tools)]
                if logprobs is not None:
                    logprobs[0] = [0.0] * len(ids)
        self._sync_tool_dicts = [
            {name: as_text(tool) for name, tool in tools.items()}
            for tools in self._sync_tool_dicts  # type: ignore[has-type]
        ]
        found = super()._tool_call_loop(  # type: ignore[misc]
            prompts, prompt_ids, completion_ids, completions, logprobs, *rest
        )
        masks, answers = found[:2]
        called = [0 not in mask for mask, turns in zip(masks, answers, strict=True) if turns[0].get("tool_calls")]
        if any(called) and not self.dropped_reported:
            self.dropped_reported = True
            say(
                f"{sum(called)} of {len(called)} completions of this round end with a tool call whose result does not "
                f"fit: `max_completion` is {self.max_completion_length} tokens, "  # type: ignore[attr-defined]
                "results and later answers included, and the model's context is a limit, too"
            )
        return found


def call_tokens(
    trainer: Any, prompt: Sequence[Mapping[str, object]], tools: Sequence[object], called: Any
) -> list[int] | None:
    """The token ids of an answer that calls a tool with made-up arguments.

    Prints a line and returns None if the chat template writes a prompt differently when an answer follows.
    """
    tokenizer, given = trainer._tokenizer, {"tools": tools, "tokenize": False, **trainer.chat_template_kwargs}
    if trainer.chat_template is not None:
        given["chat_template"] = trainer.chat_template
    answer = {"role": "assistant", "content": "", "tool_calls": [example_call(called)]}
    before = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, **given)
    complete = tokenizer.apply_chat_template([*prompt, answer], **given)
    end = complete.rfind(tokenizer.eos_token)
    if not complete.startswith(before) or end < len(before):
        say(
            "the tools are not tried with a made-up call: the chat template writes the prompt differently "
            "if an answer follows it"
        )
        return None
    text = complete[len(before) : end + len(tokenizer.eos_token)]
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])
