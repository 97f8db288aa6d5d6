"""Prepare chosen rows one by one, and describe what the trainer gets from each."""

import importlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from . import templates, tokens, verdicts
from .printed import Say, waiting
from .reading import Capture, TokenSequence, mark_parts, sequences
from .session import Session

ALL_DROPPED = "there are no rows to train on"
"""The end of the runtime's error message if it has dropped all rows because of their length. A preview gives the
runtime only one row at a time, so the message means that this row was dropped.
"""


def prepared(
    session: Session, source: Mapping[str, Any], number: int, stored: Any, rewards: bool = False
) -> dict[str, Any]:
    """Prepare one row of a source. Returns the row's sequences of tokens and the findings about the row (`verdicts`),
    or the reason why the run drops the row.

    `number` is the index of the row in its source. `stored` is the row as it is stored, as a dataset of one row. With
    `rewards`, the reward functions and the tools are called.
    """
    out: dict[str, Any] = {
        "source": session.core("rows").name(source), "row": number, "excluded": None, "sequences": [], "verdicts": [],
    }  # fmt: skip
    out["verdicts"] += verdicts.unread_columns(session, source, stored)
    with session.only(source, [number], stored), unchecked(session):
        try:
            rows, _ = session.rows()
        except session.errors as error:
            # the preview gives the runtime a single row, which the runtime may call row 0
            why = str(error).replace(f"{out['source']}, row 0:", f"{out['source']}, row {number}:")
            return {**out, "excluded": why, "verdicts": [*out["verdicts"], _refused(why)]}
        for at in range(len(rows)):
            _describe(session, out, rows.select([at]), rows[at])
            if rewards and session.plan["method"]["rewarded"]:
                from .rewards import judged

                out["rewards"], found = judged(session, rows[at], f"row {number} of {out['source']}")
                out["verdicts"] += found
            if session.plan["method"].get("tools"):
                out["rollout"] = None
                if rewards:
                    from .rollout import played

                    out["rollout"], found = played(session, rows[at], f"row {number} of {out['source']}")
                    out["verdicts"] += found
    return out


def _refused(why: str) -> verdicts.Verdict:
    """The finding about a row that the runtime cannot convert. It says whether a run drops such a row, or stops at such
    a row.
    """
    if why.endswith(ALL_DROPPED):
        return verdicts.verdict("XP591", f"the run drops the row: {why.partition(':')[0].replace('every', 'the')}")
    return verdicts.verdict("XP554", f"the run stops at the row: {why}")


@contextmanager
def unchecked(session: Session) -> Iterator[None]:
    """A context in which the runtime does not raise RunError for a row that loses content. A preview reports the lost
    content as a finding instead.
    """
    features = map(session.optional, ("features.messages.turn_notes", "features.messages.unread_columns"))
    modules = [session.core("row_comparison"), *(one for one in features if one is not None)]
    real = [one.check for one in modules]
    for one in modules:
        one.check = lambda *_, **__: []
    try:
        yield
    finally:
        for one, check in zip(modules, real, strict=True):
            one.check = check


def _describe(session: Session, out: dict[str, Any], rows: Any, row: Mapping[str, Any]) -> None:
    row = _own(session, row)
    if session.processor is not None:
        out["images"] = _images(session, row["images"])
    capture = Capture(session)
    out["verdicts"] += [*verdicts.lost(session, row), *verdicts.of_tokenizer(session, row)]
    try:
        with capture.watching():
            trainer = session.trainer(rows)
    except session.errors as error:
        out["excluded"] = str(error)
        out["verdicts"].append(_refused(str(error)))
        return
    except Exception as error:
        if templates.raised(error):
            out["excluded"] = f"the chat template refuses the row: {error}"
            help = "change the row, or name another template"
            out["verdicts"].append(verdicts.verdict("XP537", out["excluded"], help))
            return
        if not isinstance(error, RuntimeError | ValueError | TypeError | KeyError):
            raise
        out["excluded"] = f"trl refuses the row: {str(error).strip().splitlines()[0]}"
        if session.bears_loss:
            out["verdicts"].append({**verdicts.verdict("XP591", out["excluded"]), "severity": "error"})
        return
    if len(trainer.train_dataset) == 0:
        out["excluded"], needed = _why_dropped(session, capture)
        out["sequences"] += [
            _shown(session, trainer, TokenSequence(name, [], [], ids), row, at)[0]
            for at, (name, ids) in enumerate(capture.full().items())
        ]
        code = "XP595" if needed else "XP591"
        help = f"write seq = {needed} or more, or shorten the row" if needed else ""
        out["verdicts"].append(verdicts.verdict(code, f"the trainer drops the row: {out['excluded']}", help))
        return
    parts = [sequences(session, trainer, capture, index) for index in range(len(trainer.train_dataset))]
    mark_parts([each for one in parts for each in one], capture.full().get("text"))
    for found_sequences in parts:
        out["verdicts"] += verdicts.same_answers(found_sequences)
        for at, one in enumerate(found_sequences):
            shown, found = _shown(session, trainer, one, row, at)
            found += verdicts.without_embedding(session, one)
            out["sequences"].append(shown)
            out["verdicts"] += [each for each in found if each not in out["verdicts"]]


def _images(session: Session, images: Sequence[Mapping[str, Any]]) -> list[dict[str, int]]:
    """The width and height in pixels of each image, and the number of its tokens."""
    many = importlib.import_module("trainer.features.model.vision").image_tokens(session.processor, images)
    return [
        {"width": one["width"], "height": one["height"], "tokens": count}
        for one, count in zip(images, many, strict=True)
    ]


def _why_dropped(session: Session, capture: Capture) -> tuple[str, int]:
    """Return a pair: the reason why the trainer drops a row, and the smallest `seq` with which it would keep the row.
    The second value is 0 if the row is not dropped because of its length.
    """
    most = session.core("truncation").limit(session.bundle)
    longest = max(capture.full_lengths(), default=0)
    if most is not None and longest > most:
        why = "more than" if session.plan["method"]["scores"] else "and no answer is within"
        return f"it has {longest:,} tokens, {why} seq = {most:,}", longest
    return "it has nothing to learn", 0


def _own(session: Session, row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with only the columns of its own format. In a mixture of formats, a row also has the other formats'
    columns.
    """
    if "kind" in row and any(one.get("kind") for one in session.bundle.data["sources"]):
        return dict(importlib.import_module("trainer.features.rows.kinds").own_columns(row))
    return dict(row)


def _shown(
    session: Session, trainer: Any, one: TokenSequence, row: Mapping[str, Any], at: int
) -> tuple[dict[str, Any], list[verdicts.Verdict]]:
    """Return a pair: a sequence of tokens as JSON data, and the findings about it. `at` is the sequence's index among
    the sequences of its row.
    """
    texts = tokens.pieces(session.tokenizer, one.full, getattr(session.processor, "image_token_id", None))
    roles, contents, starts, before = _turns(session, trainer, one, row, at)
    turns = tokens.turns_of(texts, contents, starts, before)
    excluded = _excluded(session, row, at)
    read = verdicts.Read(session, one, texts, turns, roles, len(roles) > 1, session.bears_loss, excluded)
    kept = [[number, text, int(learned), turn] for number, text, learned, turn in zip(
        one.ids, read.kept_texts, one.learned, read.kept_turns, strict=True)]  # fmt: skip
    counted, every = Counter(read.kept_turns), Counter(turns)
    learned_of = Counter(turn for turn, learned in zip(read.kept_turns, one.learned, strict=True) if learned)
    end = one.head + len(one.ids)
    around = [] if one.split else [*zip(one.full, texts, strict=True)]
    cut = {"start": [[*each] for each in around[: one.head]], "end": [[*each] for each in around[end:]]}
    shown = {
        "name": one.name, "tokens": kept, "cut": cut, "roles": roles,
        "turns": [
            {"role": role, "tokens": counted[number], "learned": learned_of[number],
             "cut": 0 if one.split else every[number] - counted[number]}
            for number, role in enumerate(roles)
        ],
    }  # fmt: skip
    return shown, verdicts.of_sequence(read)


def _excluded(session: Session, row: Mapping[str, Any], at: int) -> list[int]:
    """The turns of a conversation that the row itself excludes from the loss."""
    fields, talks = session.optional("features.rows.message_fields"), session.bundle.row_format().conversations(row)
    turns = fields.unpacked(talks[min(at, len(talks) - 1)])[0] if fields is not None and talks else []
    return [number for number, turn in enumerate(turns) if fields.untrained(turn)]


def _turns(
    session: Session, trainer: Any, one: TokenSequence, row: Mapping[str, Any], at: int
) -> tuple[list[str], list[str], Iterable[str | None], str]:
    """Return four values. The first three have an entry for each turn of a sequence: the role; the content;
    and the rendered conversation up to the end of the turn (None if the template cannot render this part alone). The
    fourth value is the text that the template writes before the first turn.
    """
    talks = session.bundle.row_format().conversations(row)
    if talks:
        turns = talks[min(at, len(talks) - 1)]
        template = getattr(trainer, "chat_template", None)
        starts = tokens.beginnings(session.tokenizer, template, turns, row)
        before = tokens.opening(session.tokenizer, template, turns, row)
        return [str(turn.get("role")) for turn in turns], [tokens.content_of(turn) for turn in turns], starts, before
    prompt = row.get("prompt")
    answer = row.get({"answer": "completion", "text": "completion"}.get(one.name, one.name))
    if isinstance(prompt, str) and isinstance(answer, str):
        return ["prompt", "completion"], [prompt, answer], [prompt, prompt + answer], ""
    if "input_ids" in row:  # the row is already tokenized
        text = "".join(tokens.pieces(session.tokenizer, one.full))
        return ["text"], [text], [text], ""
    text = next((row[name] for name in (one.name, "prompt", "text", "chosen") if isinstance(row.get(name), str)), "")
    return ["prompt" if one.name == "prompt" else "text"], [text], [text], ""


def every(
    session: Session,
    chosen: Sequence[tuple[Mapping[str, Any], Mapping[int, Any]]],
    rewards: bool = False,
    say: Say = lambda _: None,
) -> Iterator[dict[str, Any]]:
    """Prepare the chosen rows of every source, one row after the other. `chosen` lists, for each source, the indices of
    the chosen rows. `say` reports a row that takes long.
    """
    reported = set[str]()
    for source, rows in chosen:
        for number, stored in rows.items():
            with waiting(say, f"preparing row {number:,} of {session.core('rows').name(source)}"):
                row = prepared(session, source, number, stored, rewards)
            row["verdicts"] = [one for one in row["verdicts"] if verdicts.about_tokenizer(one) not in reported]
            reported |= {verdicts.about_tokenizer(one) for one in row["verdicts"]} - {""}
            yield row
