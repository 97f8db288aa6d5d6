"""Check that a prompt, as the chat template renders it, ends where the assistant's answer begins."""

import re
from typing import Any

from ...core.errors import say
from ...core.feature import Bundle, Feature, Tokenizer

MARK = "zQ0qZ"
PROBE = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": MARK}]
THOUGHTS = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)\s*", re.DOTALL)
OTHER_PART = re.compile("think|thought|reason|respon|channel", re.IGNORECASE)
"""Matches the header of a part of an answer, such as `<think>`. A prompt may end with such a header although the row's
answer begins with another part."""


def wrong(tokenizer: Tokenizer) -> tuple[str, bool]:
    """Return a pair: a text that says what is wrong at the end of rendered prompts, and whether the template writes no
    generation prompt at all. The text is "" if nothing is wrong, or if the template refuses the test conversation.
    """

    def render(turns: list[dict[str, str]], **options: Any) -> str:
        return str(tokenizer.apply_chat_template(turns, tokenize=False, **options))

    try:
        plain, full = render(PROBE[:1], add_generation_prompt=False), render(PROBE)
        prompt = render(PROBE[:1], add_generation_prompt=True)
    except Exception:  # a template may raise any exception
        return "", False
    header = full[len(plain) : full.find(MARK)]
    if not full.startswith(plain) or MARK not in full or not header.strip() or not prompt.startswith(plain):
        return "", False
    begun, answer = (THOUGHTS.sub("", one).strip() for one in (prompt[len(plain) :], header))
    if not prompt[len(plain) :].strip() and answer:
        return (
            f"the chat template writes no generation prompt: a prompt ends with {plain[-20:]!r}, and answers begin "
            f"with {header[:40]!r}, so the model would continue the user's turn"
        ), True
    most = min(len(begun), len(answer))
    shared = next((at for at in range(most) if begun[at] != answer[at]), most)
    if begun[shared:] and answer[shared:] and not OTHER_PART.search(begun + answer):
        return (
            f"the chat template ends a prompt with {prompt[len(plain) :][:40]!r}, and begins answers with "
            f"{header[:40]!r}: the model would continue a text that is in no row"
        ), False
    return "", False


class GenerationPrompt(Feature):
    """Stops a run that generates answers if its rendered prompts end without the assistant's header."""

    def before_rows(self, bundle: Bundle, tokenizer: Tokenizer | None) -> list[str]:
        """Return a finding if there is no generation prompt. Print a note if answers do not begin with it."""
        what, missing = wrong(tokenizer) if tokenizer is not None and tokenizer.chat_template else ("", False)
        if missing:
            return [what + "; write `{% if add_generation_prompt %}` and the beginning of an answer at its end"]
        if what:
            say(what)
        return []
