"""Rules about what the chat template can write (tools, tool calls, reasoning, turns in any order), and about the turns
that are learned (XP537 to XP539, XP547, XP548).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xpc.compiler.data import rows
from xpc.compiler.registry import chat_templates
from xpc.compiler.rules.core.conditions import surveyed
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource
from xpc.compiler.spec.survey import Survey, Tally

WHEN = surveyed

KINDS = {
    "developer": ("content", "turns of the role `developer`"),
    "tool": ("content", "turns of the role `tool`"),
    "late_system": ("content", "a system prompt after the first turn"),
    "two_questions": ("content", "two turns of the user in a row"),
    "two_answers": ("content", "two turns of the assistant in a row"),
    "answer_first": ("content", "an answer before the first question"),
    "text_with_call": ("content", "a text next to a tool call"),
    "tool_calls": ("tool_calls", "tool calls"),
    "several_calls": ("tool_calls", "several tool calls in a turn"),
    "tools": ("tools", "tools"),
    "reasoning": ("reasoning", "reasoning"),
    "listed_reasoning": ("reasoning", "reasoning that is a list or an object instead of a text"),
    "inline_reasoning": ("reasoning", "reasoning between <think> and </think>"),
    "reasoning_twice": ("reasoning", "the same reasoning in a field and between <think> and </think>"),
    "early_reasoning": ("reasoning", "reasoning before the last question"),
    "early_inline_reasoning": ("reasoning", "reasoning between <think> and </think> before the last question"),
}
"""Maps each kind of content that some chat templates do not write to a pair: its name in `data.omit`, and its name in
messages. compiler/data/structure.py finds such content in rows.
"""
ORDER = ("late_system", "two_questions", "two_answers", "answer_first")
"""Unusual orders of turns. Only some of the built-in templates refuse them."""
LEARNED_TURNS = ("messages", "conversations")


def _kinds(source: DataSource) -> tuple[Survey | None, dict[str, Tally]]:
    """Return a pair: the survey of a file, and for each kind of content in `KINDS`, such as tool calls, the number of
    rows that contain it.
    """
    found = rows.valid_survey(source)
    if found is None:
        return None, {}
    tallies = {kind: found.tallies[kind] for kind in KINDS if kind in found.tallies}
    if source.only and "tools" not in (source.columns or ()):
        tallies.pop("tools", None)
    return found, tallies


def built_in(spec: Spec) -> str | None:
    """The name of the built-in template that renders the rows: the template that the spec names, or else the template
    of the model's family. None if the template is not built-in.
    """
    if spec.template is not None:
        return spec.template.name
    return chat_templates.native(spec.model.name) if spec.model.chat and spec.model.facts is not None else None


def template_text(spec: Spec) -> str:
    """The text of the chat template that renders the rows; "" if it is unknown."""
    name = built_in(spec)
    return (spec.chat_template or "") if name is None else chat_templates.text(name).decode()


@rule("XP537", "not-in-the-template")
def not_in_the_template(spec: Spec) -> Iterator[Finding]:
    """The chat template should write everything that the rows of a local file contain: tool calls, tools, reasoning,
    and turns of each role in any order. The templates of Mistral and Gemma, for example, refuse two consecutive turns
    of the user. `data(omit=[reasoning])`, for example, lets the template leave out the reasoning.

    Why it is bad: the model does not learn what is left out; a turn without its tool call is an empty answer.

    Without this rule: launch.sh compares rows with their rendered text, and stops if content is missing.

    Source: `compiler/registry/template_forms.json`, rendered with transformers; confirmed by running it.
    """
    template = built_in(spec)
    if template is None:
        yield from _not_in_turns(spec)
        return
    form, omit = chat_templates.forms()[template], spec.names("data.omit")
    for source in spec.files:
        found, tallies = _kinds(source)
        if template in chat_templates.NO_SYSTEM:
            tallies.pop("late_system", None)  # if the template refuses system prompts, the rule XP567 reports them
        refused = [kind for kind in tallies if kind in form["refused"]]
        lost = [kind for kind in tallies if kind in form["left_out"] and KINDS[kind][0] not in omit]
        twice = [kind for kind in tallies if kind in form["doubled"] and KINDS[kind][0] not in omit]
        kinds = refused or lost or twice
        if found is None or not kinds:
            continue
        names = list(dict.fromkeys(KINDS[kind][0] for kind in kinds))
        them = "them" if len(kinds) > 1 else "this"
        does = f"refuses {them}" if refused else f"leaves {them} out" if lost else f"writes {them} twice"
        allow = (
            ""
            if refused
            else f", or `data(omit=[{', '.join([*omit, *names])}])` to train {'without it' if lost else 'on such rows'}"
        )
        yield Finding(
            source.label,
            f"{have(tallies[kinds[0]], found, source)} {' and '.join(KINDS[kind][1] for kind in kinds)}, and the "
            f"template {template} {does}",
            _instead(chat_templates.forms(), tallies, {*kinds}) + allow,
            (spec.location("model.chat_template") if spec.written("model.chat_template") else spec.model.label,),
        )


def _instead(forms: Mapping[str, Mapping[str, list[str]]], tallies: Mapping[str, Tally], kinds: set[str]) -> str:
    """The help for rows whose content, such as tool calls, the template refuses, leaves out or writes twice."""
    able = [
        name
        for name, form in forms.items()
        if not any(kind in form["refused"] + form["left_out"] + form["doubled"] for kind in tallies)
    ]
    other = f"write `chat_template = {able[0]}`, which accepts such rows" if able else "change the data"
    if kinds <= {*ORDER}:
        return "join or move such turns in the data" + (f", or {other}" if able else "")
    if kinds == {"listed_reasoning"}:
        return "in the data, write each turn's reasoning as one string, not as a list of parts"
    if kinds == {"reasoning_twice"}:
        return "delete one of the two copies in the data"
    return other


def _not_in_turns(spec: Spec) -> Iterator[Finding]:
    """A warning if the model's own template says that turns must alternate, and the rows' turns do not."""
    text = spec.chat_template
    if text is None or "must alternate" not in text:
        return
    for source in spec.files:
        found, tallies = _kinds(source)
        kinds = [kind for kind in ORDER[1:] if kind in tallies]
        if found is not None and kinds:
            yield Finding(
                source.label,
                f"{have(tallies[kinds[0]], found, source)} {' and '.join(KINDS[kind][1] for kind in kinds)}, and the "
                "chat template says that the user and the assistant must alternate",
                "join or move such turns in the data, or write `chat_template = chatml`, which writes them",
                severity="warning",
            )


def have(one: Tally, found: Survey, source: DataSource) -> str:
    """The beginning of a message about rows with a certain content: "row 3 (counted from 0) of `rows.jsonl` has"."""
    return f"{_count(one, found)} of `{source.name[:80]}` {'has' if one.count == 1 else 'have'}"


def _count(one: Tally, found: Survey) -> str:
    if one.count == 1:
        return f"row {one.first:,} (counted from 0)"
    return f"{one.count:,} of the {found.rows:,} rows (the first is row {one.first:,}, counted from 0)"


@rule("XP538", "template-not-compared", "note")
def not_compared(spec: Spec) -> Iterator[Finding]:
    """`xpc check` could not check whether the chat template writes the tool calls, tools and reasoning of the rows. xpc
    knows what a template writes only for its built-in templates. The run compares rows with their rendered text before
    its first step.

    Why it is bad: content that the template leaves out is found only when the run starts.

    Without this rule: the user would not know that `xpc check` did not compare the rows with the template.

    Source: `compiler/registry/template_forms.json` contains only the built-in templates.
    """
    if built_in(spec) is not None:
        return
    for source in spec.files:
        found, tallies = _kinds(source)
        tallies = {kind: one for kind, one in tallies.items() if kind not in ORDER}
        if found is not None and tallies:
            kinds = " and ".join(KINDS[kind][1] for kind in list(tallies)[:3])
            yield Finding(
                source.label,
                f"`{source.name[:80]}` has {kinds}, and xpc does not know whether the chat template writes such parts",
                "`xpc preview` shows what the template writes, and the run checks this before its first step",
            )


def masks_answers(spec: Spec) -> bool:
    """Whether the run's method and target support `assistant_only`. With this setting, only the assistant's turns are
    learned.
    """
    return spec.text("method") == "sft" and spec.stack.facts.assistant_only_loss


@rule("XP539", "turn-not-to-be-learned")
def not_to_be_learned(spec: Spec) -> Iterator[Finding]:
    """Rows in which a turn is marked as not to be learned need `method sft(assistant_only)`. The marks are a `weight`
    of 0, a `train`, `train_turn`, `training` or `loss` of false, or a `mask` or `masked` of true. With
    `assistant_only`, marked answers are left out of the loss; each conversation needs an answer that is not marked.
    Without `assistant_only`, the marks are not read, and no single turn can be left out.

    Why it is bad: the model would learn a wrong answer, although the row marks it as not to be learned.

    Without this rule: launch.sh stops at the first row with a turn that is marked as not to be learned.

    Source: trl 1.16, 0.24 and 0.18 read no such key of a message; confirmed by running it.
    """
    for source in spec.files:
        found = rows.survey(source)
        one = None if found is None else found.tallies.get("untrained")
        masked = spec.flag("method.assistant_only") and source.shape in LEARNED_TURNS
        nothing = None if found is None else found.tallies.get("nothing_trained")
        if found is not None and nothing is not None and masked:
            yield Finding(
                source.label,
                f"{have(nothing, found, source)} no answer that is to be learned: each has a `weight` of 0, or a "
                "`train` of false",
                "leave such rows out of the data",
            )
        if found is None or one is None or masked or spec.method.shapes[0] == "prompt":
            continue
        able = masks_answers(spec) and source.shape in LEARNED_TURNS
        yield Finding(
            source.label,
            f"{have(one, found, source)} a turn that is not to "
            "be learned (`weight` of 0, or `train` of false), and this run learns every turn",
            "write `method sft(assistant_only)`, which masks such turns" if able else "leave the turn out of the data",
        )


ODD_CALLS = {
    "unnamed_call": ("does not name its function", 'write its `name`: `{"name": "add", "arguments": {}}`'),
    "moved_arguments": (
        "has its arguments under another key than `arguments`",
        'rename this key: `{"name": "add", "arguments": {"a": 1}}`',
    ),
    "odd_arguments": ("has arguments that are not a JSON object", 'write an object, such as `{"city": "Paris"}`'),
}
"""Faults of tool calls, such as a missing function name, with which every template writes a wrong call. Maps each fault
to a pair: the words for messages, and the help.
"""


@rule("XP547", "arguments-not-an-object")
def odd_arguments(spec: Spec) -> Iterator[Finding]:
    """A tool call must name its function, and its `arguments` must be a JSON object, or a string that contains one:
    `{"name": "weather", "arguments": {"city": "Paris"}}`. For a call without arguments, the key may be missing, null or
    an empty string. With `data(omit=[tool_calls])`, tool calls are not checked.

    Why it is bad: the model learns to write calls that no tool can read, or calls without their arguments.

    Without this rule: launch.sh stops at the first row with a malformed call.

    Source: the runtime's `call_forms.py`; confirmed by rendering such calls with the templates of qwen2.5 and qwen3.
    """
    if "tool_calls" in spec.names("data.omit"):
        return
    for source in spec.files:
        found = rows.valid_survey(source)
        for kind, (words, help) in ODD_CALLS.items():
            one = None if found is None else found.tallies.get(kind)
            if found is not None and one is not None:
                yield Finding(
                    source.label,
                    f"{have(one, found, source)} a tool call that {words}",
                    f"{help}, or `data(omit=[tool_calls])` to train on such rows",
                )


@rule("XP548", "turn-in-an-answer", "warning")
def turn_in_an_answer(spec: Spec) -> Iterator[Finding]:
    """The answer to a prompt should consist of the assistant's turns. Turns of the user or of a tool in a `completion`,
    or after the common beginning of `chosen` and `rejected`, count as parts of the answer. `method sft(assistant_only)`
    learns only the assistant's turns. On trl-0.18, an answer that begins with a turn of the user or of a tool is an
    error if the template's generation prompt begins a turn of the assistant.

    Why it is bad: the model learns to write the user's questions and the tools' results itself.

    Without this rule: TRL silently masks only the prompt, and trains on every turn after it. trl 0.18 raises ValueError
    for an answer that does not begin with a turn of the assistant.

    Source: trl 1.16, 0.24 and 0.18 (`completion_mask` of their trainers, `apply_chat_template`); confirmed by running
    them.
    """
    if spec.flag("method.assistant_only") or spec.method.shapes[0] == "prompt" or spec.method.scores:
        return
    for source in spec.files:
        found = rows.valid_survey(source)
        one = None if found is None else found.tallies.get("turn_in_answer")
        first = found.tallies.get("other_turn_first") if found is not None and _begins_answers(spec) else None
        if found is not None and one is not None and first is not None and spec.stack.facts.prompts_begin_rows:
            yield Finding(
                source.label,
                f"{have(first, found, source)} an answer that begins with another turn than the assistant's, and trl "
                f"{spec.stack.pins['trl']} refuses such rows",
                "move the turns before the last answer into `prompt`",
                severity="error",
            )
            continue
        if found is None or one is None or (spec.get("method.completion_only") is False):
            continue
        yield Finding(
            source.label,
            f"{have(one, found, source)} a turn in the answer that is not the assistant's but is learned",
            "write `method sft(assistant_only)`, or move the turns before the last answer into `prompt`"
            if masks_answers(spec)
            else "move the turns before the last answer into `prompt`",
        )


def _begins_answers(spec: Spec) -> bool:
    """Whether the chat template has a generation prompt: a text after the prompt that begins the assistant's turn.
    False if the template is unknown.
    """
    return "add_generation_prompt" in template_text(spec)
