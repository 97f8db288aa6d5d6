"""Rules about limits on the length of rows (XP655, XP656)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.setting import IntegerPath
from xpc.compiler.rules.core.conditions import written
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec

WHEN = written("data.min_tokens", "data.max_tokens", "method.max_prompt")


@rule("XP655", "no-length-left")
def no_length_left(spec: Spec) -> Iterator[Finding]:
    """`min_tokens` must not be larger than `max_tokens`.

    Why it is bad: no row can satisfy both `min_tokens` and `max_tokens`, so all rows are dropped.

    Without this rule: RunError after every row was tokenized.

    Source: the runtime's `lengths.py`; confirmed by running it.
    """
    least, most = spec.get("data.min_tokens"), spec.get("data.max_tokens")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        yield Finding(
            spec.location("data.min_tokens"),
            f"no row has at least {least:,} and at most {most:,} tokens",
            write(f"min_tokens = {most}"),
            (spec.label("data.max_tokens", "the maximum"),),
        )


@rule("XP656", "limits-beyond-seq", "warning")
def limits_beyond_seq(spec: Spec) -> Iterator[Finding]:
    """`max_tokens` and `min_tokens` should not be larger than `seq`, and `max_prompt` should be smaller than `seq`.

    Why it is bad: `max_tokens` drops long rows so that no row is cut. If `max_tokens` is above `seq`, rows with more
    than `seq` and up to `max_tokens` tokens are still cut. If `min_tokens` is above `seq`, only rows longer than `seq`
    remain, and all are cut. If `max_prompt` is not smaller than `seq`, a prompt of `max_prompt` tokens leaves no room
    for an answer.

    Without this rule: the run tokenizes the rows, and only then prints how many of them are cut.

    Source: the runtime's `lengths.py`, trl 1.16 `sft_trainer.py` (`max_length`); confirmed by running it.
    """
    seq = spec.integer("batch.seq")
    prompt = spec.get("method.max_prompt")
    if (
        isinstance(prompt, int)
        and spec.written("method.max_prompt")
        and "batch.seq" in spec.method.reads
        and prompt >= seq
    ):
        yield Finding(
            spec.location("method.max_prompt", f"`seq` is {seq}"),
            f"a prompt of {prompt:,} tokens leaves no room for its answers in seq = {seq:,}",
            write(f"max_prompt = {max(1, seq // 2)}", f", or `seq = {prompt * 2}`"),
            (spec.label("batch.seq", "prompt and answer"),),
        )
        return
    if spec.get("data.long") == "chunk":
        return
    paths: tuple[IntegerPath, ...] = ("data.max_tokens", "data.min_tokens")
    for path in paths:
        limit, name = spec.get(path), path.rpartition(".")[2]
        if isinstance(limit, int) and limit > seq:
            yield Finding(
                spec.location(path),
                f"rows of up to {limit:,} tokens are kept, and cut at seq = {seq:,}"
                if name == "max_tokens"
                else f"only rows of at least {limit:,} tokens are kept, and each is cut at seq = {seq:,}",
                write(f"{name} = {seq}", f", or `seq = {limit}`"),
                (spec.label("batch.seq", "the longest sequence"),),
            )
            return
