"""The chat template of the bundle, which has to be the one that was compiled."""

from collections.abc import Mapping
from typing import Any

from ...core.errors import RunError
from ...core.feature import Bundle, Feature
from ..launch.verified_files import verified


class ChatTemplate(Feature):
    """The chat template of the bundle."""

    def tokenizer_loaded(self, bundle: Bundle, tokenizer: Any) -> None:
        """Gives the tokenizer the bundle's chat template."""
        if name := bundle.tokenizer["chat_template"]:
            template = verified(bundle, name).decode("utf-8-sig")
            tokenizer.chat_template = template.replace("\r\n", "\n").replace("\r", "\n")

    def before_arguments(self, bundle: Bundle, values: dict[str, Any]) -> None:
        """Where trl finds the template that it reads by itself."""
        if values.get("chat_template_path"):
            values["chat_template_path"] = bundle.inside(values["chat_template_path"])

    def check_files(self, bundle: Bundle, digests: Mapping[str, str]) -> dict[str, str]:
        """Whether the templates are as compiled."""
        found = {}
        for name in (bundle.tokenizer.get("chat_template"), bundle.arguments.get("chat_template_path")):
            if name:
                try:
                    verified(bundle, name, digests)
                    found[name] = ""
                except RunError as error:
                    found[name] = str(error)
        return found
