"""Rules about arguments of the chat template that the rows or the spec state (XP158), and about margins of preference
pairs (XP159).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from xpc.compiler.data import rows
from xpc.compiler.data.export_marks import ARGUMENT, SWITCH, SWITCHES
from xpc.compiler.rules.core.conditions import any_of, surveyed, written
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.rules.core.template_blocks import code_of
from xpc.compiler.rules.data.structure import have, template_text
from xpc.compiler.rules.data.tokens import PASSED
from xpc.compiler.spec import Spec

WHEN = any_of(surveyed, written("model.chat_template"))


def _reads(code: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}\b", code) is not None


@rule("XP158", "row-arguments-not-read", "warning")
def row_arguments(spec: Spec) -> Iterator[Finding]:
    """A name in `chat_template_kwargs` of the rows should be one that the chat template reads, such as
    `enable_thinking`. A column with such a name is not read: arguments belong into `chat_template_kwargs`. The value of
    a switch should be true or false, in the rows and in the spec: in Jinja, the text `"false"` is true.

    Why it is bad: the template ignores an unknown argument: with a misspelt `enable_thinking=false`, for example, rows
    are still rendered with reasoning.

    Without this rule: nothing is reported; a name that the template does not read has no effect.

    Source: transformers 5.23 `tokenization_utils_base.py` (`apply_chat_template`) and jinja2.
    """
    code = code_of(template_text(spec))
    if not code:
        return
    optional = {*re.findall(r"\b(\w+) is (?:not )?defined", code)} - {*PASSED}
    for name, value in spec.template.arguments if spec.template is not None else ():
        if isinstance(value, str) and value.strip().lower() in SWITCHES:
            yield Finding(
                spec.location("model.chat_template", f"`{name}` is a text"),
                f"`{name}` is the text `{value}`, and a text is true in a condition of the template",
                f"write `{name}={'true' if value.strip().lower() in SWITCHES[::2] else 'false'}`, without quotes",
            )
    for source in spec.files:
        found = rows.valid_survey(source)
        if found is None or not (source.shape == "prompt" or rows.conversational(source)):
            continue
        for kind, one in found.tallies.items():
            name = kind.partition(":")[2]
            if kind.startswith(SWITCH):
                what = f"the argument `{name}` as a text, which is true in a condition of the chat template"
                help = "write true or false, without quotes"
            elif kind.startswith(ARGUMENT) and not _reads(code, name):
                known = f", such as `{min(optional)}`" if optional else ""
                what = f"the argument `{name}` for the chat template, which does not read it"
                help = f"rename the argument to one that the template reads{known}, or leave it out"
            else:
                continue
            yield Finding(source.label, f"{have(one, found, source)} {what}", help, (spec.model.label,))
        column = next((name for name in found.columns if name in optional and not source.only), None)
        if column is not None and spec.method.shapes[0] != "prompt":
            yield Finding(
                source.label,
                f"`{source.name[:80]}` has a column `{column}`, an argument of the chat template, which is not read",
                f'write the argument into the column `chat_template_kwargs`: `{{"{column}": false}}`',
                (spec.model.label,),
            )


@rule("XP159", "negative-margin", "warning")
def negative_margin(spec: Spec) -> Iterator[Finding]:
    """The `margin` of a preference pair for `method reward` should not be negative: it states by how much the score of
    the chosen answer should be higher.

    Why it is bad: with a negative margin, the loss accepts that the rejected answer gets the higher score.

    Without this rule: nothing is reported.

    Source: trl 1.16, 0.24 and 0.18 `reward_trainer.py` (`logsigmoid(chosen - rejected - margin)`); read, not run.
    """
    for source in spec.files if spec.text("method") == "reward" else ():
        found = rows.valid_survey(source)
        one = None if found is None else found.tallies.get("negative_margin")
        if found is not None and one is not None:
            yield Finding(
                source.label,
                f"{have(one, found, source)} a `margin` below 0",
                "swap the two answers of such rows and write the margin as a positive number, or leave the rows out",
            )
