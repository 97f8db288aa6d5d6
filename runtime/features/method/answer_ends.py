"""Write one end token after each answer. Some trainers append one although the chat template has already written it.

trl's ORPO and CPO, and its KTO before 1.0, append an end token unless the rendered answer's last token is one. So an
answer that ends with `<|im_end|>` and a line break gets two. DPO before 1.0 always appends an end token.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from types import ModuleType
from typing import Any

from ...core.feature import Bundle, Feature, Model
from ...library_internals.trl_modules import replaced

ANSWERS = ("chosen", "rejected", "completion")


class AnswerEnds(Feature):
    """Hooks for a run with DPO, KTO, ORPO or CPO, which compare answers."""

    def making_trainer(
        self, bundle: Bundle, model: Model, module: ModuleType, load: Callable[[], Model]
    ) -> AbstractContextManager[object]:
        """Let trl render each answer only up to its end token. If trl always appends an end token, omit the rendered
        one.
        """
        # in trl 1.0, the modules of DPO and KTO lack this function, and these trainers need no correction
        render = getattr(module, "maybe_apply_chat_template", None)
        return replaced(module, {"maybe_apply_chat_template": partial(_rendered, render, bundle.method == "dpo")})


def _rendered(render: Any, always: bool, example: Any, **options: Any) -> object:
    """The texts of a row as trl renders them; a row of plain texts is returned unchanged."""
    made = render(example, **options)
    end = options["processing_class" if "processing_class" in options else "tokenizer"].eos_token
    rendered = {name: made[name] for name in ANSWERS if name in made and not isinstance(example[name], str)}
    return {**made, **{name: without_end(text, end, always) for name, text in rendered.items()}}


def without_end(text: str, end: str, always: bool) -> str:
    """Cut white space after a text's last end token and, with ``always``, this token. Other texts stay unchanged."""
    if not text.rstrip().endswith(end):
        return text
    return text.rstrip().removesuffix(end) + ("" if always else end)
