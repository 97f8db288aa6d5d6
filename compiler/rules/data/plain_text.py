"""The rule about plain text for a chat model: prompts and answers that are learned without the chat
template (XP186).
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.data import rows
from xpc.compiler.registry import chat_templates
from xpc.compiler.rules.core.conditions import prompted_texts
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource, Model

WHEN = prompted_texts


@rule("XP186", "plain-text-for-a-chat-model", "warning")
def plain_text(spec: Spec) -> Iterator[Finding]:
    """Rows for a chat model should be conversations, or `data(chat)` should turn their texts into conversations.
    Otherwise prompts and answers of plain text are joined and tokenized without the chat template. `data(chat=false)`
    states that this is intended. Prompts of grpo and rloo may be plain text, because the run turns them into
    conversations.

    Why it is bad: in use, a chat model answers within its chat template, but it would be trained on answers without the
    template.

    Without this rule: nothing is reported, and no row has a token of the template. The loss falls, but in a chat the
    trained model gets prompts in a form that it was not trained on.

    Source: trl 1.16 and 0.18 `sft_trainer.py`, `dpo_trainer.py`, `kto_trainer.py`, `orpo_trainer.py`,
    `reward_trainer.py` (`is_conversational`); confirmed by running it.
    """
    if not prompted_texts(spec) or not chats(spec.model):
        return
    # the rule XP558 already reports a chat template that no row needs
    if spec.written("model.chat_template") and rows.all_texts(spec.data):
        return
    for source in spec.data:
        if source.shape == "text" or rows.conversational(source) is not False:
            continue
        if source.shape not in spec.method.shapes:
            continue  # XP503 reports rows that the method cannot train on
        have = "questions and answers" if source.shape != "preference" else "pairs"
        if _prompted(source) or spec.written("data.prompt"):
            turns = "write `data(chat)`: the prompt becomes the user's turn, and each answer the assistant's"
        else:
            turns = (
                "turn the texts into lists of messages, or move the prompts to their own column and write `data(chat)`"
            )
        name, model = source.name[:80], spec.model.name if spec.model.path is None else "the model"
        yield Finding(
            source.label,
            f"the {have} of `{name}` are plain text, which {model} learns without its chat template",
            f"{turns}; if plain text is intended, write `data(chat=false)`",
            (spec.model.label,),
        )
        return


def _prompted(source: DataSource) -> bool:
    """Whether the source's rows have a separate column for the prompt."""
    if source.shape != "preference" or len(rows.columns(source)) > 2:
        return True
    found = rows.survey(source)
    return "prompt" in ((source.found or ()) if found is None else found.columns)


def chats(model: Model) -> bool:
    """Whether xpc knows that the model was trained to answer in its chat template. For a model of the hub, the model's
    name decides. For a local model, xpc checks whether the template ends turns with the tokenizer's end token.
    """
    if model.path is not None:
        text = model.template or ""
        return bool(text) and ("eos_token" in text or (model.eos is not None and model.eos in text))
    if model.known_from == "registry":
        return bool(model.chat) and chat_templates.base_end(model.name) is None
    name = model.name.rpartition("/")[2].lower()
    return model.chat is not False and chat_templates.TUNED.search(name) is not None
