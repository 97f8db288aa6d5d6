"""Before training, drop rows with a too long prompt, and rows with too few or too many tokens. Report prompts that the
trainer cuts.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from ...core.errors import RunError, say
from ...core.feature import Bundle, Feature, Rows, RowSets, Source, Tokenizer
from ...core.rows import name
from . import kinds

Restore = Callable[[Mapping[str, Any]], dict[str, Any]] | None
"""The function that restores the original columns of a row of a mixture of formats; None without such a mixture."""


CUT_FIRST = ("dpo", "grpo", "rloo")
"""Methods whose trainers before trl 1.0 cut every prompt to `max_prompt_length` tokens. The trainers of orpo, cpo and
kto cut a prompt only if its row is longer than `seq`; `TokenCounts` counts such rows.
"""


class LengthLimits(Feature):
    """Hooks for a run with limits on the length of rows and prompts."""

    tokenizer: Tokenizer | None = None

    def tokenizer_loaded(self, bundle: Bundle, tokenizer: Tokenizer) -> None:
        """Remember the tokenizer, which later counts the tokens of each source's rows.

        trl 0.24 shortens long prompts at the tokenizer's `truncation_side`. The default, "right", would remove the last
        question of a prompt, so this hook sets "left" for GRPO and RLOO, as trl does if it loads the tokenizer itself.
        """
        self.tokenizer = tokenizer
        if bundle.method in ("grpo", "rloo") and bundle.arguments.get("max_prompt_length"):
            tokenizer.truncation_side = "left"

    def source_mapped(self, bundle: Bundle, source: Source, part: Rows) -> Rows:
        """In a mixture with shares, drop a source's rows before its share is drawn, so that the shares are exact."""
        if source.get("share") is None or self.tokenizer is None or len(part) == 0:
            return part
        return fitting(bundle, part, self.tokenizer, f"draw from {name(source)}")

    def rows_mapped(
        self, bundle: Bundle, sets: RowSets, parts: list[Rows], load: Callable[..., Rows], tokenizer: Tokenizer
    ) -> RowSets:
        """The training set and the evaluation sets, without rows that are too short or too long."""
        train, evaluation = sets
        if len(train) == 0:
            return sets
        most = bundle.arguments.get("max_prompt_length") if tokenizer is not None else None
        if most is not None and bundle.method in CUT_FIRST:
            cut_prompts(train, tokenizer, most)
        streams = bundle.data.get("streaming")
        if not streams and not any(source.get("share") is not None for source in bundle.data["sources"]):
            train = fitting(bundle, train, tokenizer, "train on")
        if isinstance(evaluation, dict):
            limited = {
                title: fitting(bundle, rows, tokenizer, f"evaluate on ({title})") for title, rows in evaluation.items()
            }
            evaluation = type(evaluation)(limited)
        elif evaluation is not None:
            evaluation = fitting(bundle, evaluation, tokenizer, "evaluate on")
        return train, evaluation


def fitting(bundle: Bundle, rows: Rows, tokenizer: Tokenizer, use: str) -> Rows:
    """The rows within `max_prompt`, `min_tokens` and `max_tokens`. Prints how many rows each limit drops."""
    longest, shortest = bundle.data.get("max_prompt"), bundle.data.get("min_tokens")
    most = bundle.data.get("max_tokens")
    mixed = any(one.get("kind") for one in bundle.sources()) and "kind" in rows.column_names
    how = {"tokenizer": tokenizer, "restore": kinds.own_columns if mixed else None}
    if longest is not None:
        none, why = f"every prompt has more than {longest} tokens", f"their prompts have over {longest} tokens"
        rows = _kept(rows, _prompt_fits, {"tokenizer": tokenizer, "limit": longest}, use, none, why)
    if shortest is not None:
        none, why = f"every row has fewer than {shortest} tokens", f"they have fewer than {shortest} tokens"
        rows = _kept(rows, _long_enough, {**how, "least": shortest}, use, none, why)
    if most is not None:
        none, why = f"every row has more than {most} tokens", f"they have more than {most} tokens"
        rows = _kept(rows, _short_enough, {**how, "most": most}, use, none, why)
    return rows


def of_stream(bundle: Bundle, rows: Rows, tokenizer: Tokenizer) -> Rows:
    """The stream without the rows that are too short or too long."""
    shortest, longest = bundle.data.get("min_tokens"), bundle.data.get("max_tokens")
    how = {"tokenizer": tokenizer, "restore": None}
    if shortest is not None:
        rows = rows.filter(_long_enough, fn_kwargs={**how, "least": shortest})
    if longest is not None:
        rows = rows.filter(_short_enough, fn_kwargs={**how, "most": longest})
    return rows


def cut_prompts(rows: Rows, tokenizer: Tokenizer, limit: int) -> None:
    """Print how many prompts have more than ``limit`` tokens. The trainer cuts the beginnings of these prompts."""
    counted = rows.map(_with_length, fn_kwargs={"tokenizer": tokenizer}, remove_columns=rows.column_names, desc=None)
    lengths = counted[:]["tokens"]
    if many := sum(one > limit for one in lengths):
        say(
            f"{many:,} of {len(lengths):,} prompts have more than max_prompt = {limit:,} tokens (the longest "
            f"{max(lengths):,}): their beginnings are cut off"
        )


def _with_length(row: Mapping[str, object], tokenizer: Tokenizer) -> dict[str, int]:
    return {"tokens": before_answer(row, tokenizer)}


def _kept(rows: Rows, fits: Callable[..., bool], limits: Mapping[str, object], use: str, none: str, why: str) -> Rows:
    """The rows for which ``fits`` returns true. Prints how many rows are dropped. Raises RunError if no row is left."""
    kept = rows.filter(fits, fn_kwargs=limits, desc=None)
    if len(kept) == 0:
        raise RunError(f"{none}: there are no rows to {use}")
    if len(kept) < len(rows):
        say(f"{len(rows) - len(kept):,} of {len(rows):,} rows are left out: {why}")
    return kept


def _prompt_fits(row: Mapping[str, object], tokenizer: Tokenizer, limit: int) -> bool:
    return _prompt_length(row, row["prompt"], tokenizer) <= limit


def _prompt_length(row: Mapping[str, object], prompt: Any, tokenizer: Tokenizer) -> int:
    if isinstance(prompt, str):
        return len(tokenizer(prompt)["input_ids"])
    return _rendered(row, prompt, tokenizer, prompt[-1]["role"] != "assistant")


def before_answer(row: Mapping[str, Any], tokenizer: Tokenizer) -> int:
    """The number of tokens before the first answer of a row. 0 for a plain text, which is learned completely."""
    if "chosen" in row and not row.get("prompt"):
        from trl import extract_prompt

        row = extract_prompt(row)
    prompt = row.get("prompt")
    if "messages" in row:
        roles = [turn["role"] for turn in row["messages"]]
        prompt = row["messages"][: roles.index("assistant")] if "assistant" in roles else None
    return _prompt_length(row, prompt, tokenizer) if prompt else 0


def _long_enough(row: Mapping[str, object], tokenizer: Tokenizer, least: int, restore: Restore) -> bool:
    return min(of_row(restore(row) if restore else row, tokenizer, "")) >= least


def _short_enough(row: Mapping[str, object], tokenizer: Tokenizer, most: int, restore: Restore) -> bool:
    """Whether a row has at most ``most`` tokens. The end token that the trainer appends to a text is counted, too."""
    return max(of_row(restore(row) if restore else row, tokenizer, tokenizer.eos_token or "")) <= most


def of_row(row: Mapping[str, Any], tokenizer: Tokenizer, end: str) -> list[int]:
    """The numbers of tokens of a row, one per answer. ``end`` is appended to a text that does not end with it."""
    if "messages" in row:
        return [_rendered(row, row["messages"], tokenizer, False)]
    if "input_ids" in row:
        return [len(row["input_ids"])]
    if "text" in row:
        return [_tokens(row["text"], tokenizer, end)]
    prompt, out = row.get("prompt"), []
    for column in ("completion", "chosen", "rejected"):
        answer = row.get(column)
        if isinstance(answer, str):
            out.append(_tokens((prompt or "") + answer, tokenizer, end))
        elif answer is not None:
            out.append(_rendered(row, [*(prompt or []), *answer], tokenizer, False))
    return out


def _tokens(text: str, tokenizer: Tokenizer, end: str) -> int:
    return len(tokenizer(text if end and text.endswith(end) else text + end)["input_ids"])


def _rendered(row: Mapping[str, Any], turns: Any, tokenizer: Tokenizer, open_end: bool) -> int:
    """The number of tokens of a conversation rendered by the chat template."""
    tools = row.get("tools")
    text = tokenizer.apply_chat_template(
        turns, tools=json.loads(tools) if isinstance(tools, str) else tools, tokenize=False,
        add_generation_prompt=open_end, **(row.get("chat_template_kwargs") or {}),
    )  # fmt: skip
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])
