"""Files of the bundle that are rendered or executed: they have to be those that were compiled."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from ..core.bundle import Bundle, stated
from ..core.errors import RunError
from .changed_files import changed


def verified(bundle: Bundle, name: str, wanted: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a file of the bundle that is rendered or executed. Raises RunError where it was changed.

    ``wanted`` is what ``stated`` gives, for somebody who has read it.
    """
    path = bundle.inside(name)
    try:
        with open(path, "rb") as handle:
            data = handle.read()
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    expected = (stated(bundle.folder) if wanted is None else wanted).get(name)
    if expected is not None and "sha256:" + sha256(data).hexdigest() != expected:
        raise changed(path)
    return data


def tokenizer_loaded(bundle: Bundle, tokenizer: Any) -> None:
    """Gives the tokenizer the bundle's chat template."""
    if name := bundle.tokenizer["chat_template"]:
        template = verified(bundle, name).decode("utf-8-sig")
        tokenizer.chat_template = template.replace("\r\n", "\n").replace("\r", "\n")


def before_arguments(bundle: Bundle, values: dict[str, Any]) -> None:
    """Where trl finds the template that it reads by itself."""
    if values.get("chat_template_path"):
        values["chat_template_path"] = bundle.inside(values["chat_template_path"])


def executed_files(bundle: Bundle) -> list[str]:
    """The names of files that are rendered or executed, as trainer_args.json has them; rewards have their own check."""
    named = [bundle.tokenizer.get("chat_template"), bundle.arguments.get("chat_template_path")]
    return list(dict.fromkeys(str(name) for name in named if name))


def changed_files(bundle: Bundle, wanted: Mapping[str, str]) -> list[str]:
    """A sentence on each that was changed."""
    found = []
    for name in executed_files(bundle):
        try:
            verified(bundle, name, wanted)
        except RunError as error:
            found.append(str(error))
    return found
