"""Convert axolotl's prompts to a Jinja template of the spec. A prompt is a text with placeholders for a row's columns,
such as alpaca's "### Instruction:" followed by the instruction.

Source: axolotl 0.18.0, prompters.py, prompt_strategies/ and utils/data/wrappers.py.
"""

from __future__ import annotations

from functools import cache
from string import Formatter

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.template_arguments import jinja_text
from xpc.compiler.importing.text.entries import Entry, text
from xpc.grammar.package_data import read_table
from xpc.grammar.record import evolve, record


@record
class Words:
    """The format strings of a prompt: with an input, without an input, and for the system prompt. Further fields are
    the names of the columns.

    `system` is the column with a row's system prompt. A row without it has the prompt `system_text`, or
    `system_text_without_input` if it also has no input.
    """

    with_input: str = ""
    without_input: str = ""
    system_around: str = "{system}"
    system_text: str = ""
    system_text_without_input: str = ""
    instruction: str = "instruction"
    input: str | None = "input"
    output: str = "output"
    system: str | None = None


KEYS = {
    "format": "with_input", "no_input_format": "without_input", "system_format": "system_around",
    "system_prompt": "system_text",
    "field_instruction": "instruction", "field_input": "input", "field_output": "output", "field_system": "system",
}  # fmt: skip
"""Maps each key of a custom dataset type (a mapping under `type`) to the attribute of `Words` that the key sets."""
CUSTOM = Words("{instruction} {input} ", "{instruction} ", system="system")


@cache
def types() -> dict[str, Words]:
    """Maps axolotl's dataset types to their prompts. If an entry of prompts.toml lacks a value, it has the value of the
    type in its key `like`.
    """
    out: dict[str, Words] = {}
    for name, row in read_table(__file__, "prompts.toml").items():
        base = out.get(str(row.get("like", "")), Words())
        words = {column: value for column, value in row.items() if column != "like"}
        out[name] = evolve(base, **{**words, **({"input": row["input"] or None} if "input" in row else {})})
    return out


def words(draft: Draft, word: str, location: Entry) -> Words | None:
    """The prompt for a dataset's `type` (`location`). A `word` such as `alpaca` names a prompt of axolotl, and the
    result is None if there is none; a mapping defines a prompt itself.
    """
    if not location.mapping:
        return types().get(word)
    given: dict[str, str] = {}
    for key, one in location.mapping.items():
        if key in KEYS and not one.empty:
            given[KEYS[key]] = text(one) or ""
        elif not one.empty:
            draft.error(one, "axolotl knows no such key in `type`")
    if "system_text" in given:
        given["system_text_without_input"] = given["system_text"]
    return evolve(CUSTOM, **given)


def template(prompt: Words) -> str:
    """Write the prompt as a Jinja template over a row's columns."""
    columns = {"instruction": prompt.instruction, "input": prompt.input or "input", "system": "told"}
    around, short = _jinja(prompt.system_around, columns), _jinja(prompt.without_input, columns)
    long = _jinja(prompt.with_input, columns)
    system, system_short = jinja_text(prompt.system_text), jinja_text(prompt.system_text_without_input)
    has = f"{prompt.input} is defined and {prompt.input}"
    if prompt.input is None or long == short:
        question, usual = short, system_short
    else:
        question = f"{{% if {has} %}}{long}{{% else %}}{short}{{% endif %}}"
        usual = system if system == system_short else f"{system} if {has} else {system_short}"
    if prompt.system is not None:
        usual = f"{prompt.system} if {prompt.system} is defined else {usual}" if usual != "''" else prompt.system
        known = f"{prompt.system} is defined" if usual == prompt.system else ""
        head = f"{{% set told = {usual} %}}{{% if told %}}{around}{{% endif %}}"
        return (f"{{% if {known} %}}{head}{{% endif %}}" if known else head) + question
    return (f"{{% set told = {usual} %}}{around}" if usual != "''" else "") + question


def _jinja(form: str, columns: dict[str, str]) -> str:
    """Convert a Python format string to Jinja: `{input}` becomes `{{ input }}`. Raises ValueError for a name that is
    not a column.
    """
    out = ""
    for literal, name, spec, conversion in Formatter().parse(form):
        plain = not any(one in literal for one in ("{{", "{%", "{#"))
        out += literal if plain else f"{{% raw %}}{literal}{{% endraw %}}"
        if name is not None:
            if name not in columns or spec or conversion:
                raise ValueError(name)
            out += f"{{{{ {columns[name]} }}}}"
    return out


def shaped(draft: Draft, word: str, location: Entry) -> tuple[str, ...] | None:
    """Set the spec's prompt template for a dataset type. Returns the columns of prompt and answer, or None if the type
    has no prompt.
    """
    prompt = words(draft, word, location)
    if prompt is None:
        return None
    columns = (prompt.instruction, prompt.input, prompt.system)
    names = [one for one in columns if one is not None and not one.isidentifier()]
    try:
        made = template(prompt)
    except ValueError as error:
        draft.error(location, f"the prompt names `{error}`, but axolotl fills in only instruction, input and system")
        return (prompt.instruction, prompt.output)
    if names:
        draft.error(
            location, f"a template cannot name the column `{names[0]}`", "use only letters, digits and `_` in its name"
        )
    draft.put("data.prompt_template", made, location)
    for one in location.mapping.values():
        draft.mark(one, "mapped", "data { prompt_template }")
    tokenized_apart(draft)
    return (prompt.instruction, prompt.output)


def tokenized_apart(draft: Draft) -> None:
    """Report that axolotl tokenizes the question and the answer of a row separately."""
    draft.differs(
        "datasets.type",
        "axolotl tokenizes the question and the answer separately; the spec tokenizes both together: the first "
        "tokens of an answer that begins with a newline may differ",
    )
