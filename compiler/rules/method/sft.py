"""Rules for supervised fine-tuning. They are about the tokens that the loss includes (XP504, XP506, XP60x)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from xpc.compiler.data import rows
from xpc.compiler.data.rows import conversational
from xpc.compiler.language.setting import FlagPath
from xpc.compiler.registry.chat_templates import alike, native
from xpc.compiler.rules.core.conditions import chosen
from xpc.compiler.rules.core.replaced_templates import MARK, trainable, trainable_model
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource
from xpc.compiler.stacks import able

WHEN = chosen("method", "sft")

CONVERSATIONS = ("messages", "conversations", "images")
COMPLETIONS = ("prompt_completion", "tokens")
"""The shapes of rows for which a spec may state `completion_only`. If all rows have the shape `tokens`, the rule XP153
refuses the setting.
"""


@rule("XP504", "loss-mask-without-turns")
def loss_mask(spec: Spec) -> Iterator[Finding]:
    """`assistant_only` needs conversations, and `completion_only` needs rows with a prompt and a completion. If the
    sources or evaluation sets of the spec have several formats, each of the two settings applies only to the rows that
    it can mask. At least one training source must have such rows.

    Why it is bad: `assistant_only` masks all but the assistant's turns, and `completion_only` masks all but the
    completion. Rows of other formats have neither.

    Without this rule: `completion_only` on conversations silently masks nothing and trains on all tokens, in trl 1.16
    and 0.18; `assistant_only` on text raises ValueError after the model is loaded.

    Source: trl 1.16 and 0.18 `sft_trainer.py`; confirmed by running it.
    """
    masks: tuple[tuple[FlagPath, str, Callable[[DataSource], bool]], ...] = (
        ("method.completion_only", "prompts with completions", lambda one: one.shape not in COMPLETIONS),
        ("method.assistant_only", "conversations", lambda one: one.shape not in CONVERSATIONS and _is_plain(one)),
    )
    reported: list[DataSource] = []
    for path, what, lacks in masks:
        wrong = [one for one in spec.sources if lacks(one)] if spec.flag(path) else []
        if spec.mixes_shapes and not all(map(lacks, spec.data)):
            continue
        for source in wrong:
            if source in reported:
                continue
            reported.append(source)
            answers = path == "method.assistant_only" and spec.get("method.completion_only") is not False
            answers = answers and all(one.shape == "prompt_completion" for one in spec.data)
            yield Finding(
                spec.location(path, f"needs {what}"),
                f"`{path[7:]}` cannot be used with rows of {source.shape}",
                f"leave `{path[7:]}` out" + ": without it, the loss already covers only the completions" * answers,
                (source.label,),
            )


def _is_plain(source: DataSource) -> bool:
    """Whether the rows of a source are known to be text, not conversations."""
    return conversational(source) is False


@rule("XP506", "template-without-generation-marks")
def template_marks(spec: Spec) -> Iterator[Finding]:
    """`assistant_only` needs a chat template with `{% generation %}` marks. On trl-1.16, trl recognizes some templates
    by their exact text (Qwen 2.5 and 3, Llama 3, Gemma, Phi 3 and others), and replaces each by a version with marks.
    It does not recognize those of Llama 3.1 to 3.3, Mistral 7B and SmolLM2. On trl-0.24, trl replaces no template, so
    the template itself must have the marks, as xpc's built-in templates do. If xpc does not know a model's template,
    the bundle's preflight checks it. On trl-0.18, `assistant_only` cannot be used (XP601).

    Why it is bad: without `{% generation %}` marks, the assistant's tokens cannot be found.

    Without this rule: after the model is loaded, ValueError (trl 1.16), or RuntimeError at the first row (trl 0.24).

    Source: trl 1.16 `chat_template_utils.py` (`get_training_chat_template`), trl 0.24 `sft_trainer.py`
    (`tokenize_fn`); confirmed by running both.
    """
    facts, template, name = spec.stack.facts, spec.chat_template, native(spec.model.name)
    if not (spec.flag("method.assistant_only") and facts.assistant_only_loss) or _marked(spec, facts.marks_templates):
        return
    ways = [f"write `chat_template = {name}`, its family's template with the marks"] if name else []
    if not name and template is not None and (name := alike(template)):
        ways.append(f"write `chat_template = {name}`, which has the marks and the same control tokens")
    unlike = ""
    if _marked(spec, True):
        unlike = f", and {spec.stack.name} adds no marks to it"
        ways.append(f"write `target {able(lambda one: one.facts.marks_templates)}`, on which trl adds the marks")
    ways.append("put {% generation %} ... {% endgeneration %} around the assistant's text, in a template of your own")
    yield Finding(
        spec.location("model.chat_template", "has no {% generation %} marks"),
        "`assistant_only` needs a template that marks the assistant's turns" + unlike,
        ", or ".join(ways),
        (spec.label("method.assistant_only", "set here"),),
    )


def _marked(spec: Spec, replaces: bool) -> bool:
    """Whether the chat template marks the assistant's turns, in a stack that replaces known templates or does not."""
    if (template := spec.chat_template) is not None:
        return trainable(template, replaces)
    return not spec.model.chat or trainable_model(spec.model.name, replaces)


@rule("XP601", "loss-mask-not-in-the-target")
def mask_of_the_target(spec: Spec) -> Iterator[Finding]:
    """On trl-0.18, `assistant_only` cannot be used, and `completion_only` cannot be combined with packing,
    `padding_free` or Liger.

    Why it is bad: the loss would include tokens that the spec excludes.

    Without this rule: trl 0.18 has no assistant-only loss, and it drops the completion mask when it packs, flattens or
    uses Liger.

    Source: trl 0.18 `sft_config.py`, `sft_trainer.py`.
    """
    related = (spec.label("target", "the target"),)
    if spec.flag("method.assistant_only") and not spec.stack.facts.assistant_only_loss:
        yield Finding(
            spec.location("method.assistant_only"),
            f"{spec.stack.name} has no assistant-only loss",
            f"write `target {able(lambda one: one.facts.assistant_only_loss)}`",
            related,
        )
    for path in spec.drops_masks if spec.flag("method.completion_only") else ():
        name = path.rpartition(".")[2]
        other = able(lambda one: not one.facts.completion_only_conflicts)
        yield Finding(
            spec.location(path),
            f"{spec.stack.name} drops the completion mask if `{name}` is on",
            f"leave `{name}` out, or write `target {other}`",
            (spec.label("method.completion_only", "set here"), *related),
        )


@rule("XP602", "turn-without-an-assistant")
def no_assistant(spec: Spec) -> Iterator[Finding]:
    """With `assistant_only`, every conversation needs a turn of the assistant. All rows of a local file are checked.

    Why it is bad: the loss includes only the assistant's turns, so rows without a turn of the assistant teach nothing.

    Without this rule: RuntimeError when tokenization reaches a row without a turn of the assistant.

    Source: trl 1.16 `sft_trainer.py` (`tokenize_fn`); confirmed by running it.
    """
    if not spec.flag("method.assistant_only"):
        return

    for source in spec.files:
        found = rows.survey(source) if rows.conversational(source) else None
        without = None if found is None else found.tallies.get("unanswered")
        if without is not None:
            yield Finding(
                source.label,
                f"row {without.first} of `{source.name[:80]}` has no turn of the assistant"
                + (f", and neither do {without.count - 1:,} others" if without.count > 1 else ""),
                "remove such rows from the data (row numbers start at 0), or leave `assistant_only` out",
                (spec.label("method.assistant_only", "the loss includes only the assistant's turns"),),
            )


@rule("XP603", "prompt-fills-the-sequence", "warning")
def prompt_fills(spec: Spec) -> Iterator[Finding]:
    """A prompt must be shorter than `seq`. Every word is at least one token, so a prompt of `seq` words leaves no room
    for an answer. This rule checks the prompts in all rows of a local file, and the system prompt of the spec
    (`data.system`).

    Why it is bad: if the prompt fills the sequence, no token of the completion is left to learn.

    Without this rule: trl 1.16 silently drops rows whose prompt fills the sequence, and fails with `num_samples=0` if
    it drops every row. trl 0.18 keeps these rows, with every label masked.

    Source: trl 1.16 and 0.18 `sft_trainer.py`; confirmed by running it.
    """
    seq, system = spec.integer("batch.seq"), spec.get("data.system")
    words = len(system.split()) if isinstance(system, str) else 0
    if words >= seq and not spec.flag("batch.packing"):
        yield Finding(
            spec.location("data.system", f"{words:,} words, each at least one token"),
            "the system prompt is longer than `seq`, so every row is cut before its question",
            f"write `seq = {_next_power(2 * words)}`, or a shorter system prompt",
            (spec.label("batch.seq", f"{seq:,} tokens"),),
        )
    masked = spec.get("method.completion_only") is not False
    if not masked or spec.flag("batch.packing"):
        return

    for source in spec.files:
        found = rows.survey(source)
        if source.shape != "prompt_completion" or found is None:
            continue
        full = {words: count for words, count in found.words.items() if words >= seq}
        if full:
            many = sum(full.values())
            every = found.broken is None and many == found.rows
            yield Finding(
                spec.location("batch.seq", f"a prompt has {max(full):,} words, each at least one token"),
                f"{'every' if every else many} prompt{'s' * (many > 1 and not every)} of "
                f"`{source.name[:80]}` {'is' if every or many == 1 else 'are'} longer than `seq`",
                f"write `seq = {_next_power(2 * max(full))}`",
                (source.label,),
                severity="error" if every else None,
            )


def _next_power(words: int) -> int:
    """The smallest power of two that is at least `words`. The help suggests this number for `seq`."""
    return 1 << (words - 1).bit_length()


@rule("XP604", "end-of-turn-not-learned", "warning")
def end_of_turn(spec: Spec) -> Iterator[Finding]:
    """With `assistant_only`, the token that ends the assistant's turn must be inside the `{% generation %}` marks.

    Why it is bad: the loss includes only tokens inside the `{% generation %}` marks. If the end token is outside, the
    model never learns to stop.

    Without this rule: trl only warns, and the training loss looks healthy.

    Source: trl 1.16 `chat_template_utils.py` (`is_chat_template_stop_token_trained`); confirmed by running it.
    """
    template = spec.chat_template if spec.flag("method.assistant_only") else None
    if template is None:
        return

    begin = re.compile(MARK)
    close = re.compile(r"\{%-?\s*endgeneration\s*-?%\}\s*(?:\{\{-?\s*)?['\"]?(.{0,60})", re.S)
    blocks: list[tuple[str, str]] = []
    at = 0
    while (start := begin.search(template, at)) and (end := close.search(template, start.end())):
        blocks.append((template[start.end() : end.start()], end[1]))
        at = end.start(1)
    ends = r"<[^\s<>{}'\"]{1,40}>|eos_token"
    for inside, after in blocks:
        token = re.match(ends, after)
        if token is not None and re.search(ends, inside) is None:
            yield Finding(
                spec.location("model.chat_template", f"{token.group()} comes after {{% endgeneration %}}"),
                "the token that ends the assistant's turn is not learned",
                f"move {token.group()} before {{% endgeneration %}}",
                (spec.label("method.assistant_only", "only marked tokens are learned"),),
            )
            return


@rule("XP605", "nothing-to-predict")
def nothing_to_predict(spec: Spec) -> Iterator[Finding]:
    """`seq` must be at least 2.

    Why it is bad: a sequence of one token has no next token to predict, so no weight changes.

    Without this rule: nothing is reported; the loss of every step is 0 (trl 1.16) or nan (trl 0.18).

    Source: the labels are shifted by one position, so a row of one token has no label; confirmed by running it.
    """
    if spec.integer("batch.seq") < 2:
        yield Finding(
            spec.location("batch.seq", "leaves no next token"),
            "a sequence of one token has nothing to predict",
            write("seq = 1024"),
        )
