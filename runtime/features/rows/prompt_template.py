"""Build the prompt of a row from several columns with a template, and take the system prompt of a row from a column."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from ...core.errors import RunError
from ...core.feature import Bundle, Feature, Source
from ...core.rows import RowFormat, name

Read = Callable[..., dict[str, Any]]
NO_PROMPT = ("text", "messages", "conversations")
"""Row formats without a separate prompt. In a mixture, the template does not apply to rows of these formats."""


class PromptTemplate(Feature):
    """Hooks for a run with a prompt template, or with a column of system prompts."""

    def row_converter(self, bundle: Bundle, to_row: Read) -> Read:
        """A function like ``to_row``, which first builds the row's prompt with the spec's template, and takes its
        system prompt from a column."""
        template, column = bundle.data.get("prompt_template"), bundle.data.get("system_column")
        return partial(_read, to_row, bundle.row_format(), template, column)


def _read(
    to_row: Read,
    row_format: RowFormat,
    template: str | None,
    column: str | None,
    source: Source,
    row: Mapping[str, Any],
    index: int,
    system: str | None = None,
    **how: Any,
) -> dict[str, object]:
    where = f"{name(source)}, row {index}"
    if template is not None and source["shape"] not in NO_PROMPT:
        row = {**row, row_format.columns(source, list(row))["prompt"]: _prompt(template, row, where)}
    if column is not None:
        value = row.get(column)
        if value is not None and not isinstance(value, str):
            raise RunError(f"{where}: the {column} is {type(value).__name__}; it must be text")
        system = value or system
    return to_row(source, row, index, system=system, **how)


def _prompt(template: str, row: Mapping[str, Any], where: str) -> str:
    from jinja2 import TemplateError

    try:
        return str(_compiled(template).render(row))
    except TemplateError as error:
        raise RunError(f"{where}: prompt_template: {error}") from error


@cache
def _compiled(template: str) -> Any:
    """The compiled template. It renders a column that is null as "", and raises an error for a missing column."""
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, keep_trailing_newline=True, finalize=lambda one: "" if one is None else one
    )
    return environment.from_string(template)
