"""Set the tokenizer's chat template to the one in the bundle, whose file must be unchanged. If the bundle has none, a
local model keeps its own template. In both cases, check that rendering with the template ends.
"""

from collections.abc import Mapping
from typing import Any

from ...core.errors import RunError
from ...core.feature import Bundle, Feature, Tokenizer
from ..launch.time_limit import TooSlow, time_limit
from ..launch.verified_files import verified

SECONDS = 10.0
"""A template may take this many seconds to write one conversation. Usually it takes milliseconds."""
LARGEST = 2**24
"""A template may write at most this many characters for the test conversation. Usually it writes a few hundred."""
PROBE = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello"}]


class ChatTemplate(Feature):
    """Hooks for a run with a chat template in the bundle or in a local model."""

    def tokenizer_loaded(self, bundle: Bundle, tokenizer: Tokenizer) -> None:
        """Set the tokenizer's chat template. Raises RunError if it does not finish rendering a test conversation."""
        if name := bundle.tokenizer["chat_template"]:
            template = verified(bundle, name).decode("utf-8-sig")
            tokenizer.chat_template = template.replace("\r\n", "\n").replace("\r", "\n")
        if isinstance(tokenizer.chat_template, str):
            _render(tokenizer, PROBE, "a conversation of two words")

    def check_first_row(self, bundle: Bundle, source: str, row: Mapping[str, Any], tokenizer: Tokenizer) -> list[str]:
        """Render the first row. Raises RunError if rendering does not end, for example because of an endless loop."""
        for messages in bundle.row_format().conversations(row) if tokenizer.chat_template else ():
            _render(tokenizer, messages, f"row 0 of {source}")
        return []

    def before_arguments(self, bundle: Bundle, values: dict[str, Any]) -> None:
        """If trl itself reads the template from a file (`chat_template_path`), set the path to the bundle's file."""
        if values.get("chat_template_path"):
            values["chat_template_path"] = bundle.inside(values["chat_template_path"])

    def check_files(self, bundle: Bundle, digests: Mapping[str, str]) -> dict[str, str]:
        """Check that the templates are unchanged."""
        found = {}
        for name in (bundle.tokenizer.get("chat_template"), bundle.arguments.get("chat_template_path")):
            if name:
                try:
                    verified(bundle, name, digests)
                    found[name] = ""
                except RunError as error:
                    found[name] = str(error)
        return found


def _render(tokenizer: Tokenizer, messages: object, what: str) -> None:
    """Render a conversation within the time limit. Only slowness is reported here; rendering the rows reports all other
    errors of the template.
    """
    try:
        with time_limit(SECONDS):
            text = tokenizer.apply_chat_template(messages, tokenize=False)
    except TooSlow:
        raise RunError(f"the chat template writes {what} for more than {SECONDS:.0f} s: it may never end") from None
    except Exception:  # a template may raise any exception
        return
    if len(text) > LARGEST and messages is PROBE:
        raise RunError(f"the chat template writes {len(text):,} characters for {what}")
