"""A preview as text, with colours or without, and as JSON.

    row 0 of train.jsonl: 28 tokens, 6 bear loss
      user: 12 tokens
             <|im_start|>user\\n
             What colour is the red apple?<|im_end|>\\n
      assistant: 16 tokens, 6 bear loss
             <|im_start|>assistant\\n
      learn  The apple is red.<|im_end|>

The tokens of lines with `learn` count in the loss (they "bear loss"). `\\n` is a line break of the text, and `·` is a
space at the end of a line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from xpc.compiler.render.color import Paint
from xpc.compiler.render.visible import LONGEST, visible
from xpc.grammar.diagnostic import ERROR, NOTE, WARNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LEARN = "learn"
SPACE = "\u00b7"
"""The character that is printed for a space at the end of a line, which would be invisible."""
SHOWN = 2000
"""The largest number of characters of a text that are printed. For a longer text, the middle is left out."""
CUT = 300
"""Of the text that truncation cuts off, at most this many characters are printed."""
WIDTH = 116
"""Width of a line of tokens, in characters."""
TEMPLATE = "chat template"
"""The title of tokens before the first turn, such as a system prompt that the chat template adds."""
NAMES = {"text": "", "answer": "the answer", "chosen": "chosen", "rejected": "rejected", "prompt": "the prompt"}
"""Maps the name of a token sequence, as in the worker's result, to the title that is printed above the sequence."""
QUANTILES = {"0.0": "shortest", "0.5": "median", "1.0": "longest"}
"""Names of some quantiles; other quantiles are printed as percentages (`90 %`)."""
Token = Sequence["Any"]
"""A token as a list: its id, its text, 1 if it counts in the loss (otherwise 0), and the index of its turn."""


def as_json(found: Mapping[str, Any]) -> str:
    """The worker's complete answer as JSON, in which control characters of the rows are escaped."""
    return json.dumps(found, indent=1) + "\n"


def text(found: Mapping[str, Any], *, color: bool = False, tokens: bool = False, complete: bool = False) -> str:
    """The rows as text for a terminal or a file. With `complete`, long texts are not shortened. With `tokens`, the id
    of each token is printed.
    """
    paint = Paint(color)
    lines: list[str] = []
    for row in found["rows"]:
        lines += [*_row(found, row, paint, tokens, complete), ""]
    if found.get("order"):
        steps, explained = order(found)
        lines += [*steps, "", explained, ""]
    if found.get("stored"):
        lines += [surveyed(found), *_verdicts(found["stored"], paint), ""]
    lines += [visible(one, LONGEST) for one in found["messages"]]
    lines += counts(found["counts"]) if found.get("counts") else []
    return "\n".join([*lines, summary(found)]) + "\n"


def order(found: Mapping[str, Any]) -> tuple[list[str], str]:
    """Return a pair: lines that list the rows of the first steps, one line per step, and a sentence that explains the
    lines.
    """
    steps = (" | ".join(", ".join(batch) for batch in step) for step in found["order"])
    explained = (
        "Each step lists the row numbers of its micro-batches, for all processes together; `|` separates micro-batches."
    )
    if found.get("group"):
        explained = "Each step lists the row numbers of its prompts, for all processes together."
    return [f"step {at}: {visible(step)}" for at, step in enumerate(steps, 1)], explained


def group(found: Mapping[str, Any]) -> str:
    """The phrase at the end of a line about a sequence. For methods with groups, it is the number of completions per
    prompt: `, for a group of 8 completions`. For distillation, it is the share of the batches that train on the rows'
    own answers: `, in 40.0 % of the batches`. Empty for other methods.
    """
    if 0 < (share := found.get("generated_share", 0)) < 1:
        return f", in {100 * (1 - share):.1f} % of the batches (the student generates the other answers)"
    return f", for a group of {found['group']:,} completions" if found.get("group") else ""


def findings(found: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """All findings of a preview: the findings about single rows, and the findings about all rows that were read."""
    return [*(one for row in found["rows"] for one in row["verdicts"]), *found.get("stored", ())]


def summary(found: Mapping[str, Any]) -> str:
    """The last line of a preview: the number of shown rows and of findings, and how many of the counted rows are
    dropped or too long.
    """
    rows, counted = found["rows"], found["counts"]
    severities = [one["severity"] for one in findings(found)]
    counts = [(severities.count(word), word) for word in (ERROR, WARNING, NOTE)]
    listed = ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts if count)
    shown = f"{len(rows)} row{'' if len(rows) == 1 else 's'}: {listed or 'nothing wrong'}"
    if not counted:
        return shown
    lost = [f"{counted['dropped']:,} dropped"] * bool(counted["dropped"])
    lost += [f"{counted['cut']:,} longer than seq"] * bool(counted["cut"])
    every = f"{counted['rows']:,} row{'' if counted['rows'] == 1 else 's'} counted"
    return f"{f'{shown}; ' if rows else ''}{every}: {', '.join(lost) or 'none is dropped or longer than seq'}"


def counts(found: Mapping[str, Any]) -> list[str]:
    """Sentences about the counts over many rows: numbers of rows and tokens, lengths, truncated rows, dropped rows, and
    steps.
    """
    many, lengths = found["rows"], found["quantiles"]
    out = [f"{many:,} rows, {found['tokens']:,} tokens"] if found["quantiles"] else [f"{many:,} rows"]
    if found["quantiles"]:
        shown = (f"{QUANTILES.get(share, f'{100 * float(share):g} %')} {one:,}" for share, one in lengths.items())
        out.append(f"tokens of a row: {', '.join(shown)}")
    if found["limit"] is not None and found["quantiles"]:
        out.append(f"{_part(found['cut'], many)} are longer than {found['limit']:,} tokens")
    if found["dropped"]:
        out.append(f"{_part(found['dropped'], many)} are dropped by the trainer")
    if found["learned_tokens"] is not None:
        out.append(f"{_part(found['learned_tokens'], found['kept_tokens'])} kept tokens bear loss")
    if "fill" in found:
        out.append(f"{found['sequences']:,} packed sequences, filled to {100 * found['fill']:.1f} %")
    steps = found["steps"]
    out.append(f"steps of these rows: {steps['epoch']:,} in an epoch, {steps['run']:,} in the run")
    return [*out, ""]


def _part(some: int, every: int) -> str:
    return f"{some:,} of {every:,} ({100 * some / max(every, 1):.1f} %)"


def title(row: Mapping[str, Any]) -> str:
    """The title of a row: `row 0 of train.jsonl`."""
    return f"row {row['row']:,} of {row['source']}"


def counted(one: Mapping[str, Any], bears_loss: bool) -> str:
    """A phrase about a sequence, such as `28 tokens, 6 bear loss, 4 are cut off`. Tokens that "bear loss" count in the
    loss.
    """
    learned = sum(token[2] for token in one["tokens"])
    many = f"{len(one['tokens']):,} tokens" + (f", {learned:,} bear loss" if bears_loss else "")
    cut = len(one["cut"]["start"]) + len(one["cut"]["end"])
    return many + (f", {cut:,} are cut off" if cut else "")


def _row(found: Mapping[str, Any], row: Mapping[str, Any], paint: Paint, tokens: bool, complete: bool) -> Iterator[str]:
    sequences = row["sequences"]
    only = sequences[0] if len(sequences) == 1 and not NAMES.get(sequences[0]["name"], "-") else None
    what = f": {counted(only, found['bears_loss'])}" if only else ""
    yield paint.bold(visible(title(row) + ("" if row["excluded"] else what)))
    if row["excluded"]:
        yield f"  not trained on: {visible(row['excluded'], LONGEST)}"
    yield from images(row)
    for number, one in enumerate(sequences):
        indent = ""
        if only is None and not row["excluded"]:
            indent = "  "
            name = NAMES.get(one["name"], one["name"]) or f"part {number + 1}"
            yield f"  {name}: {counted(one, found['bears_loss'])}{group(found)}"
        lines = _sequence(one, found["bears_loss"], paint, tokens, complete)
        yield from (f"{indent}{line}".rstrip() for line in lines)
    if common := common_tokens(sequences):
        yield f"  chosen and rejected share their first {common:,} tokens"
    yield from (f"  {visible(one, LONGEST)}" for one in rewards(row))
    if "rollout" in row:
        yield from (f"  {visible(one, LONGEST)}" for one in rollout(row["rollout"]))
    yield from _verdicts(row["verdicts"], paint)


def _verdicts(verdicts: Sequence[Mapping[str, str]], paint: Paint) -> Iterator[str]:
    for one in verdicts:
        name = paint.severity(one["severity"], f"{one['severity']} {one['code']} {one['slug']}")
        yield f"  {name}: {visible(one['message'], LONGEST)}"
        if one["help"]:
            yield f"    {paint.help('help:')} {visible(one['help'], LONGEST)}"


def surveyed(found: Mapping[str, Any]) -> str:
    """A title for findings about rows that `xpc check` does not read, but the preview has read."""
    return f"in the {sum(found['written'].values()):,} rows that `xpc check` does not read:"


def rewards(row: Mapping[str, Any]) -> Iterator[str]:
    """A line for each reward function: its value for each answer, and the spread of the values."""
    for one in row.get("rewards", ()):
        values = ", ".join(
            f"{answer} {'None' if value is None else f'{value:g}'}" for answer, value in one["values"].items()
        )
        spread = "" if one["spread"] is None else f"; spread {one['spread']:g}"
        yield f"reward {one['name']}: {values or 'no values'}{spread}"


def images(row: Mapping[str, Any]) -> Iterator[str]:
    """A line for each image of a row: its size, and the number of tokens that it becomes."""
    for number, one in enumerate(row.get("images", ())):
        yield f"  image {number}: {one['width']:,} x {one['height']:,} pixels, {one['tokens']:,} tokens"


def rollout(played: Mapping[str, Any] | None) -> Iterator[str]:
    """Lines about a made-up completion that calls tools. `played` is this completion, or None: without `--rewards`, no
    tool is called.
    """
    if played is None:
        yield "tools: the prompt also gets their descriptions; --rewards calls the tools in a made-up completion"
        return
    if played["text"]:
        yield f"tools: with their descriptions the prompt has {played['prompt']:,} tokens"
    for one in played["calls"]:
        yield f"made-up call {one['call']}: {one['result']}"
    for piece, learned in played["text"]:
        yield f"{'bears loss' if learned else 'no loss'}: {piece}"
    if played["reward"] is not None:
        yield f"reward of the environment: {played['reward']:g}"


def common_tokens(sequences: Sequence[Mapping[str, Any]]) -> int:
    """The number of tokens that the chosen and the rejected answer share at their beginning. 0 for a row that is not a
    preference pair.
    """
    if [one["name"] for one in sequences] != ["chosen", "rejected"]:
        return 0
    both = [[token[0] for token in one["tokens"]] for one in sequences]
    return next((at for at, (x, y) in enumerate(zip(*both, strict=False)) if x != y), min(map(len, both)))


def stretches(one: Mapping[str, Any]) -> Iterator[tuple[int, bool, list[Token]]]:
    """Split a sequence into stretches. A new stretch begins where the turn changes, or where tokens begin or cease to
    count in the loss. Yields triples: the index of the turn, whether the stretch counts in the loss, and its tokens.
    """
    current: list[Token] = []
    for token in one["tokens"]:
        if current and (token[2], token[3]) != (current[0][2], current[0][3]):
            yield current[0][3], bool(current[0][2]), current
            current = []
        current.append(token)
    if current:
        yield current[0][3], bool(current[0][2]), current


def _sequence(one: Mapping[str, Any], bears_loss: bool, paint: Paint, tokens: bool, complete: bool) -> Iterator[str]:
    yield from _cut(one["cut"]["start"], "cut off before", complete)
    turn = None
    for number, learned, part in stretches(one):
        if number != turn and len(one["roles"]) > 1:
            yield f"  {visible(_turn(opening(one) if number < 0 else one['turns'][number], bears_loss))}"
        turn = number
        mark = LEARN if learned else ""
        for line in shown_lines("".join(token[1] for token in part), complete):
            yield f"  {paint.help(f'{mark:<5}') if mark else ' ' * 5}  {_painted(line, learned, paint)}".rstrip()
        if tokens:
            yield from _ids(part)
    yield from _cut(one["cut"]["end"], "cut off", complete)


def _painted(line: str, learned: bool, paint: Paint) -> str:
    return paint.help(line) if learned else line


def opening(one: Mapping[str, Any]) -> dict[str, Any]:
    """A turn for the tokens that the chat template itself writes before the first turn of a sequence."""
    learned = [token[2] for token in one["tokens"] if token[3] < 0]
    return {"role": TEMPLATE, "tokens": len(learned), "learned": sum(learned), "cut": 0}


def _turn(turn: Mapping[str, Any], bears_loss: bool) -> str:
    out = f"{turn['role']}: {turn['tokens']:,} tokens"
    if bears_loss and turn["learned"]:
        out += f", {turn['learned']:,} bear loss"
    return out + (f", {turn['cut']:,} are cut off" if turn["cut"] else "")


def shown_lines(content: str, complete: bool) -> list[str]:
    """The lines of a text, with control characters escaped. A line break is shown as the two characters `\\n`."""
    if len(content) > SHOWN and not complete:
        half = SHOWN // 2
        between = f"... {len(content) - 2 * half:,} characters ..."
        return [*shown_lines(content[:half], True), between, *shown_lines(content[-half:], True)]
    out = []
    for line in content.splitlines(keepends=True) if "\r" not in content else content.split("\n"):
        body = line.removesuffix("\n")
        spaces = len(body) - len(body.rstrip(" "))
        out.append(visible(body.rstrip(" ")) + SPACE * spaces + ("\\n" if line.endswith("\n") else ""))
    return out


def _ids(part: Sequence[Token]) -> Iterator[str]:
    """Lines that list the id and the text of each token, with as many tokens on a line as fit."""
    line = ""
    for token in part:
        one = f"{token[0]} {visible(token[1]).replace(' ', SPACE) or '(part of a character)'}"
        if line and len(line) + len(one) > WIDTH - 12:
            yield f"         {line}"
            line = ""
        line += f" | {one}" if line else one
    if line:
        yield f"         {line}"


def _cut(tokens: Sequence[Token], words: str, complete: bool) -> Iterator[str]:
    if tokens:
        yield f"  ... {len(tokens):,} tokens are {words}:"
        content = "".join(token[1] for token in tokens)
        for line in shown_lines(content if complete else content[:CUT], True):
            yield f"  cut    {line}"
