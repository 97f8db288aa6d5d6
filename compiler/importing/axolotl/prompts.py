"""axolotl's prompts in words around a row's columns, as the Jinja template that a spec makes prompts by.

Source: axolotl 0.18.0, prompters.py, prompt_strategies/ and utils/data/wrappers.py.
"""

from __future__ import annotations

from string import Formatter

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.text.entries import Entry, text
from xpc.grammar.record import evolve, record


@record
class Words:
    """What is written around a question that has an input, around one that has none, and around a system prompt, where
    there is one: of a column, else `told` (and `told_alone` without an input); and the columns of a row."""

    beside: str
    alone: str
    around: str = "{system}"
    told: str = ""
    told_alone: str = ""
    instruction: str = "instruction"
    input: str | None = "input"
    output: str = "output"
    system: str | None = None


FOLLOWS = "Below is an instruction that describes a task"
CONTEXT = ", paired with an input that provides further context. "
INSTRUCT = Words(
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n",
    "### Instruction:\n{instruction}\n\n### Response:\n",
    "{system}\n\n",
    FOLLOWS + CONTEXT + "Write a response that appropriately completes the request.",
    FOLLOWS + ". Write a response that appropriately completes the request.",
)
CHAT = evolve(
    INSTRUCT,
    beside="USER: {instruction}\n{input}\nASSISTANT:",
    alone="USER: {instruction}\nASSISTANT:",
    around="SYSTEM: {system}\n",
)
PHI = evolve(
    INSTRUCT,
    beside="<|user|>\n{instruction}<|end|>{input}<|assistant|>",
    alone="<|user|>\n{instruction}<|end|>\n<|assistant|>\n",
    around="<|system|>\n{system}<|end|>\n",
)
BRIEF = evolve(
    CHAT,
    told="Below is an instruction from a USER that describes a task" + CONTEXT
    + "The ASSISTANT writes a response that concisely and appropriately completes the request.\n\n",
    told_alone="Below is an instruction from a USER that describes a task. The ASSISTANT writes a response that "
    "appropriately and concisely completes the request.\n\n",
)  # fmt: skip
ORCA = Words(
    "",
    "### Human:\n{instruction}\n### Assistant:\n",
    "### System:\n{system}\n",
    instruction="question",
    input=None,
    output="response",
    system="system_prompt",
)
TOLD = {"told": "", "told_alone": ""}
WITH_SYSTEM = {**TOLD, "system": "system"}
TYPES = {
    "alpaca:chat": CHAT,
    "alpaca:phi": PHI,
    "alpaca:chatml": evolve(
        INSTRUCT,
        beside="<|im_start|>user\n{instruction}\n{input}<|im_end|>\n<|im_start|>assistant\n",
        alone="<|im_start|>user\n{instruction}<|im_end|>\n<|im_start|>assistant\n",
        around="<|im_start|>system\n{system}<|im_end|>\n",
    ),
    "alpaca_chat": CHAT,
    "alpaca_chat.load_concise": BRIEF,
    "alpaca_chat.load_qa": evolve(BRIEF, instruction="question", input=None, output="answer"),
    "alpaca_chat.load_camel_ai": evolve(BRIEF, instruction="message_1", input=None, output="message_2"),
    "alpaca_chat.load_no_prompt": evolve(CHAT, **TOLD),
    "alpaca_instruct": INSTRUCT,
    "alpaca_instruct.load_no_prompt": evolve(INSTRUCT, **TOLD),
    "alpaca_w_system": evolve(CHAT, **WITH_SYSTEM),
    "alpaca_w_system.load_chat": evolve(CHAT, **WITH_SYSTEM),
    "alpaca_w_system.load_instruct": evolve(INSTRUCT, **WITH_SYSTEM),
    "alpaca_w_system.load_open_orca": ORCA,
    "gpteacher": evolve(INSTRUCT, output="response"),
    "oasst": evolve(INSTRUCT, instruction="INSTRUCTION", input=None, output="RESPONSE"),
    "oasst:chat": evolve(CHAT, instruction="INSTRUCTION", input=None, output="RESPONSE"),
    "summarizetldr": Words(
        "",
        "USER: Summarize the following article as a TL;DR.\n{instruction}\nASSISTANT:",
        "{system}",
        instruction="article",
        input=None,
        output="summary",
    ),
}
"""By axolotl's type; each learns the answer as it stands in its column."""
KEYS = {
    "format": "beside", "no_input_format": "alone", "system_format": "around", "system_prompt": "told",
    "field_instruction": "instruction", "field_input": "input", "field_output": "output", "field_system": "system",
}  # fmt: skip
"""The keys of a type of one's own."""
OWN = Words("{instruction} {input} ", "{instruction} ", system="system")


def words(draft: Draft, word: str, place: Entry) -> Words | None:
    """The words of a type by its name, or of the keys of one's own; None where it is neither."""
    if not place.mapping:
        return TYPES.get(word)
    given: dict[str, str] = {}
    for key, one in place.mapping.items():
        if key in KEYS and not one.empty:
            given[KEYS[key]] = text(one) or ""
        elif not one.empty:
            draft.error(one, "axolotl knows no such key of a type")
    if "told" in given:
        given["told_alone"] = given["told"]
    return evolve(OWN, **given)


def template(said: Words) -> str:
    """The Jinja template of the prompt, over the row's own columns."""
    columns = {"instruction": said.instruction, "input": said.input or "input", "system": "told"}
    around, alone = _jinja(said.around, columns), _jinja(said.alone, columns)
    beside = _jinja(said.beside, columns)
    told, told_alone = _quoted(said.told), _quoted(said.told_alone)
    has = f"{said.input} is defined and {said.input}"
    if said.input is None or beside == alone:
        asked, usual = alone, told_alone
    else:
        asked = f"{{% if {has} %}}{beside}{{% else %}}{alone}{{% endif %}}"
        usual = told if told == told_alone else f"{told} if {has} else {told_alone}"
    if said.system is not None:
        usual = f"{said.system} if {said.system} is defined else {usual}" if usual != "''" else said.system
        known = f"{said.system} is defined" if usual == said.system else ""
        head = f"{{% set told = {usual} %}}{{% if told %}}{around}{{% endif %}}"
        return (f"{{% if {known} %}}{head}{{% endif %}}" if known else head) + asked
    return (f"{{% set told = {usual} %}}{around}" if usual != "''" else "") + asked


def _jinja(form: str, columns: dict[str, str]) -> str:
    """A text with names in braces, as Python formats it, in Jinja. Raises ValueError for another."""
    out = ""
    for literal, name, spec, conversion in Formatter().parse(form):
        plain = not any(one in literal for one in ("{{", "{%", "{#"))
        out += literal if plain else f"{{% raw %}}{literal}{{% endraw %}}"
        if name is not None:
            if name not in columns or spec or conversion:
                raise ValueError(name)
            out += f"{{{{ {columns[name]} }}}}"
    return out


def _quoted(said: str) -> str:
    inner = said.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{inner}'"


def shaped(draft: Draft, word: str, place: Entry) -> tuple[str, ...] | None:
    """The columns of rows whose prompt is in words, which become the spec's template; None where the type has none."""
    said = words(draft, word, place)
    if said is None:
        return None
    names = [one for one in (said.instruction, said.input, said.system) if one is not None and not one.isidentifier()]
    try:
        made = template(said)
    except ValueError as error:
        draft.error(place, f"the words name `{error}`, and axolotl fills in instruction, input and system")
        return (said.instruction, said.output)
    if names:
        draft.error(place, f"a template cannot name the column `{names[0]}`", "call it by letters, digits and `_`")
    draft.put("data.prompt_template", made, place)
    for one in place.mapping.values():
        draft.mark(one, "mapped", "data { prompt_template }")
    draft.differs(
        "datasets.type",
        "axolotl makes tokens of the question and of the answer apart, the spec of both at once: of an answer that "
        "begins with the end of a line the first tokens may be others",
    )
    return (said.instruction, said.output)
