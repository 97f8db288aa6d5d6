"""Set the chat template of a spec, and import its arguments, such as `enable_thinking: false`."""

from __future__ import annotations

import re

from xpc.compiler import registry
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.outcomes import MAPPED
from xpc.compiler.importing.text.entries import Entry, is_stated
from xpc.compiler.language.kinds import Template
from xpc.compiler.registry import chat_templates


def put_template(draft: Draft, body: str | bytes, entry: Entry | None, why: str = "") -> None:
    """Write a chat template next to the spec, and name its file in the spec."""
    name = _file(draft)
    draft.files[name] = body.encode() if isinstance(body, str) else body
    draft.put("model.chat_template", name, entry, why)


def _file(draft: Draft) -> str:
    return f"{draft.stem}.chat_template.jinja"


def jinja_text(text: str) -> str:
    """A text as a string of Jinja: `'Hi\\n'`."""
    inner = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{inner}'"


def template_arguments(draft: Draft, entry: Entry | None, location: str) -> None:
    """Set the arguments of the chat template. `location` is the tool's key that names a template, for the help of
    errors.
    """
    if not is_stated(entry):
        draft.note(entry, "null: no arguments")
        return
    written = draft.settings.pop("model.chat_template", None)
    body, template = _template(draft, None if written is None else written.text)
    arguments: list[tuple[str, bool | int | float | str]] = []
    for key, one in entry.mapping.items():
        if body is None:
            draft.error(
                one, "the tokenizer's own template reads it, but xpc does not know this template",
                f"put the template next to the imported file, and name it with `{location}`",
            )  # fmt: skip
        elif not re.search(rf"\b{re.escape(key)}\b", body):
            draft.note(one, "the chat template does not read it")
        elif key.isidentifier() and isinstance(one.value, bool | int | float | str):
            arguments.append((key, one.value))
            draft.mark(one, MAPPED, "model.chat_template")
        else:
            draft.error(one, "an argument of a template has one value: true, false, a number or a text")
    if template is not None and arguments:
        why = "" if written is None else written.why
        draft.put("model.chat_template", Template(template.file, tuple(arguments), template.name), entry, why)
    elif written is not None:
        draft.settings["model.chat_template"] = written


def _template(draft: Draft, written: str | None) -> tuple[str | None, Template | None]:
    """Return the Jinja text of the chat template that formats the rows, and the value of `chat_template` that names it;
    both None for an unknown template.
    """
    file = _file(draft)
    if file in draft.files:
        return draft.files[file].decode(), Template(file)
    known = registry.find_model(draft.model)
    name = written or (chat_templates.native(known.alias) if known is not None and known.chat else None)
    return (None, None) if name is None else (chat_templates.text(name).decode(), Template("", (), name))
