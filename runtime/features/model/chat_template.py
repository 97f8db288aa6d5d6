"""The chat template in the bundle, which must be unchanged since the compilation."""

from collections.abc import Mapping
from typing import Any

from ...core.errors import RunError
from ...core.feature import Bundle, Feature
from ..launch.verified_files import verified


class ChatTemplate(Feature):
    """The feature of a run with a chat template in the bundle."""

    def tokenizer_loaded(self, bundle: Bundle, tokenizer: Any) -> None:
        """Set the tokenizer's chat template."""
        if name := bundle.tokenizer["chat_template"]:
            template = verified(bundle, name).decode("utf-8-sig")
            tokenizer.chat_template = template.replace("\r\n", "\n").replace("\r", "\n")

    def before_arguments(self, bundle: Bundle, values: dict[str, Any]) -> None:
        """Set the path of a template that trl reads itself."""
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
