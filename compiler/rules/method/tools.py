"""Rules for the tools and environments of grpo (XP160, XP162 to XP165)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.language.setting import Path
from xpc.compiler.registry import chat_templates
from xpc.compiler.rules.core.conditions import any_of, has_value
from xpc.compiler.rules.core.reward_files import methods, signature
from xpc.compiler.rules.core.reward_files import undescribed as fault
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import CALLED, Spec
from xpc.grammar.record import evolve

WHEN = any_of(
    has_value("method.tools"),
    has_value("method.environment"),
    has_value("method.tool_turns"),
    has_value("method.tool_timeout"),
)

DESCRIBED = "write a docstring with `Args:` and a line `name: what it is` for each argument, and types"


@rule("XP160", "tool-without-a-description", reads=CALLED)
def undescribed(spec: Spec) -> Iterator[Finding]:
    """A tool, and every method that the model may call, must have a type for each argument and a docstring whose
    `Args:` section describes each argument. A tool must not be a generator (`yield`). xpc reads the file without
    executing it, so a decorated or imported function is checked only at the launch.

    Why it is bad: transformers describes the tool in the prompt, and takes this description from the tool's docstring
    and types. The model reads the result as a text, and the text of a generator is its address in memory.

    Without this rule: the first generation raises DocstringParsingException or TypeHintParsingException, after the
    model is loaded. With a generator, nothing is reported.

    Source: transformers 5.23 `utils/chat_template_utils.py` (`get_json_schema`); confirmed by running it.
    """
    for path in CALLED:
        for one in spec.weighted(path):
            code, name = spec.bundled.get(one.file or "", b""), one.function or ""
            called = [name] if path == "method.tools" else [f"{name}.{each}" for each in methods(code, name) or ()]
            for each in called:
                why = None if each.endswith((".reset", ".get_reward")) else fault(code, each)
                if why is not None:
                    answers, short = not why.startswith("yields"), each.rpartition(".")[2]
                    yield Finding(
                        spec.location(path, f"`{each}` {why}"),
                        f"`{short}` cannot {'be described to' if answers else 'answer'} the model: it {why}",
                        DESCRIBED if answers else "return one text",
                    )


@rule("XP162", "environment-without-reset")
def no_reset(spec: Spec) -> Iterator[Finding]:
    """The class of `environment` must have a method `reset`, and its `__init__` must need no arguments. xpc reads the
    file without executing it, so a class with a base class is checked only at the launch.

    Why it is bad: the trainer creates an environment for each completion, and calls `reset` with the row's columns.

    Without this rule: ValueError or TypeError in the trainer's constructor, after the model is loaded.

    Source: trl 1.16 `grpo_trainer.py` (`__init__`); confirmed by running it.
    """
    for one in spec.weighted("method.environment"):
        code, name = spec.bundled.get(one.file or "", b""), one.function or ""
        found = methods(code, name)
        if found is None:
            continue
        location = spec.location("method.environment")
        if "reset" not in found:
            yield Finding(
                evolve(location, text=f"`{name}` has no `reset`"),
                f"the environment `{name}` has no method `reset`",
                f"define `reset(self, **row)` in `{name}`; it may return text for the end of the prompt",
            )
        known = signature(code, f"{name}.__init__")
        needs = sorted(known[1] - {"self"}) if known is not None else []
        if needs:
            yield Finding(
                evolve(location, text=f"`{name}` needs {', '.join(needs)}"),
                f"the environment `{name}` is made without arguments, and needs `{needs[0][:40]}`",
                f"give `{needs[0][:40]}` a default in `__init__`",
            )


@rule("XP163", "two-tools-of-one-name")
def same_name(spec: Spec) -> Iterator[Finding]:
    """The functions of `tools` and the methods of `environment` must have different names.

    Why it is bad: the model calls a tool by its name, so it could call only one of two tools with the same name.

    Without this rule: nothing is reported; the prompt describes both functions, and every call goes to the function
    that is listed last.

    Source: trl 1.16 `grpo_trainer.py` (`_sync_tool_dicts`); confirmed by running it.
    """
    names = [one.function or "" for one in spec.weighted("method.tools")]
    for one in spec.weighted("method.environment"):
        found = methods(spec.bundled.get(one.file or "", b""), one.function or "") or ()
        names += [each for each in found if each not in ("reset", "get_reward") and not each.startswith("_")]
    for name in sorted({one for one in names if one and names.count(one) > 1}):
        yield Finding(
            spec.location("method.tools", f"`{name}` occurs twice"),
            f"two tools are called `{name}`",
            "rename one of the functions",
            (spec.label("method.environment"),),
        )


@rule("XP164", "template-without-tool-calls")
def template(spec: Spec) -> Iterator[Finding]:
    """`tools` and `environment` need a chat template whose tool calls TRL can read: the built-in `qwen2.5` or
    `llama3.1`, or the model's own. For the template of a local model, or of a file, this rule checks only whether the
    template mentions `tool_calls`; whether TRL can read its calls is checked at the launch. The built-in `qwen3` is
    refused because it writes an answer differently when the result of a tool follows.

    Why it is bad: a tool call that TRL does not recognize is never executed.

    Without this rule: ValueError in the trainer's constructor, after the model is loaded.

    Source: trl 1.16 `grpo_trainer.py`, `chat_template_utils.py` (`supports_tool_calling`, `add_response_schema`);
    `compiler/registry/template_forms.json`; confirmed by running it.
    """
    if not spec.calls_tools:
        return
    used, model = spec.template, spec.model
    path: Path = "method.tools" if spec.get("method.tools") else "method.environment"
    if used is not None and used.name is not None:
        if used.name not in chat_templates.callable_templates():
            help = _other_template(spec)
            yield Finding(
                spec.location("model.chat_template", "TRL cannot train on tool calls of this template"),
                f"the built-in template `{used.name}` has no tool calls that TRL can train on",
                help,
                (spec.label(path, "tools"),),
                replace=help.split("`")[1] if "tokens = " not in help else None,
            )
        return
    own = chat_templates.native(model.name) if used is None and model.chat and model.facts is not None else None
    mute = own is not None and not chat_templates.writes_calls(own)
    if used is None and model.chat is False:
        why = f"the tokenizer of {model.name} has no chat template, so it cannot write tool calls"
    elif mute or (spec.chat_template is not None and "tool_calls" not in spec.chat_template):
        written = f"chat template of {model.name}" if used is None else "template in `chat_template`"
        why = f"the {written} cannot write tool calls"
    else:
        return
    template = model.label if used is None else spec.label("model.chat_template", "the template")
    yield Finding(spec.location(path, "needs a chat template with tool calls"), why, _other_template(spec), (template,))


def _other_template(spec: Spec) -> str:
    """The help that suggests a built-in template whose tool calls TRL can read."""
    from xpc.compiler.rules.core.chat_tokens import template_advice

    return template_advice(spec, chat_templates.callable_templates())


@rule("XP165", "limit-of-no-tool")
def limits(spec: Spec) -> Iterator[Finding]:
    """`tool_turns` and `tool_timeout` need `tools` or an `environment`.

    Why it is bad: without tools, `tool_turns` and `tool_timeout` have nothing to limit.

    Without this rule: nothing is reported, and nothing reads `tool_turns` or `tool_timeout`.

    Source: trl 1.16 `grpo_trainer.py` (`_tool_call_loop`); confirmed by running it.
    """
    paths: tuple[Path, ...] = ("method.tool_turns", "method.tool_timeout")
    for path in paths:
        if spec.written(path) and not spec.calls_tools:
            yield Finding(
                spec.location(path, "there are no tools"),
                f"`{BY_PATH[path].name}` limits tools, and the model has none",
                'write `tools = ["tools.py:search"]`, or leave the limit out',
            )
