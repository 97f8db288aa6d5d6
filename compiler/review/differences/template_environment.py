"""The jinja2 environment in which transformers 5.23 renders chat templates (`utils/chat_template_utils.py`)."""

from __future__ import annotations

import json
from datetime import datetime

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from jinja2.parser import Parser


class Generation(Extension):
    """The tag `{% generation %}`, which marks an answer in a template. The text inside the tag is rendered as if the
    tag were absent.
    """

    tags = {"generation"}  # noqa: RUF012 - jinja2's own form

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """Parse everything from `{% generation %}` to `{% endgeneration %}`, and return the nodes between these two
        tags.
        """
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


def environment() -> ImmutableSandboxedEnvironment:
    """A sandbox of jinja2 without a loader of files, with the filters and functions that chat templates use."""
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    made.filters["tojson"] = _tojson
    made.globals.update(raise_exception=_raise, strftime_now=lambda form: datetime.now().strftime(form))
    return made


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise(message: str) -> None:
    raise TemplateError(message)
