"""Findings about a prepared row, one sentence each. `compiler/language/codes.toml` explains their codes."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import accumulate
from typing import Any

from . import templates
from .reading import TokenSequence
from .session import Session
from .tokens import OPENING

EMPTY_THOUGHTS = re.compile(r"<(think(?:ing)?)>\s*</\1>")
UNTHINKING = "/no_think"
"""If a prompt contains this word, Qwen3 and SmolLM3 answer with an empty block of reasoning. So a row with such a
prompt may teach the model this empty block.
"""
Verdict = dict[str, str]
"""A finding as a dict with the keys `code`, `message` and `help`."""


def verdict(code: str, message: str, help: str = "") -> Verdict:
    """Make a finding. `help` is a sentence on how to solve the problem, or ""."""
    return {"code": code, "message": message, "help": help}


class Read:
    """The input of the checks in this module: a sequence of tokens, each with its text and the index of its chat
    turn. `excluded` are the turns that the row excludes from the loss, such as by a weight of 0.
    """

    def __init__(
        self, session: Session, one: TokenSequence, texts: Sequence[str], turns: Sequence[int], roles: Sequence[str],
        answers: bool, bears_loss: bool, excluded: Collection[int] = (),
    ) -> None:  # fmt: skip
        self.session, self.one, self.roles = session, one, list(roles)
        self.texts, self.turns = list(texts), list(turns)
        self.answers, self.bears_loss, self.excluded = answers, bears_loss, excluded

    @property
    def kept_turns(self) -> list[int]:
        """For each token that truncation does not cut off, the index of its turn."""
        return self.turns[self.one.head : self.one.head + len(self.one.ids)]

    @property
    def kept_texts(self) -> list[str]:
        """The text of each token that truncation does not cut off."""
        return self.texts[self.one.head : self.one.head + len(self.one.ids)]

    @property
    def last_answer(self) -> int | None:
        """The index of the assistant's last turn; None if the assistant has no turn."""
        return next((at for at in range(len(self.roles) - 1, -1, -1) if self.roles[at] in ANSWERING), None)


ANSWERING = ("assistant", "completion", "text")


def of_sequence(read: Read) -> list[Verdict]:
    """The findings about one sequence of tokens, such as the chosen answer of a pair with its prompt."""
    out = [*_begin_twice(read), *_cut(read)]
    if read.bears_loss:
        out += [*_nothing(read), *_all_learned(read), *_wrong_turns(read), *_end(read), *_thoughts(read)]
    return out


def _name(read: Read) -> str:
    """A phrase that names the sequence in messages: ` of the chosen answer`. Empty if the row has only one text."""
    names = {"text": "", "answer": " of the answer", "prompt": " of the prompt"}
    return names.get(read.one.name, f" of the {read.one.name} answer")


def _nothing(read: Read) -> Iterator[Verdict]:
    if not any(read.one.learned):
        requested = read.session.stated.get("assistant_only_loss") and not read.one.cut
        help = (
            "name a chat_template with {% generation %} marks around the answers, or remove assistant_only"
            if requested
            else "shorten the prompt, or write a larger seq"
        )
        yield verdict("XP591", f"no token{_name(read)} bears loss: nothing is learned from it", help)


def _all_learned(read: Read) -> Iterator[Verdict]:
    """Report that every token counts in the loss, although the spec or the method says that only answers should
    count.
    """
    stated = read.session.stated
    requested = stated.get("assistant_only_loss") or stated.get("completion_only_loss") or read.one.name != "text"
    if requested and read.answers and read.one.ids and all(read.one.learned):
        only = "assistant_only" if stated.get("assistant_only_loss") else "completion_only"
        what = f"`{only}` asks for" if read.one.name == "text" else "the method learns from"
        yield verdict(
            "XP597", f"every token{_name(read)} bears loss, also the prompt's, but {what} only the answers",
            "check the row's columns, and the chat template's {% generation %} marks",
        )  # fmt: skip


def _wrong_turns(read: Read) -> Iterator[Verdict]:
    """With `assistant_only`, report each turn of the user or the system that counts in the loss, and each answer that
    does not count. If the row itself excludes an answer from the loss, the answer is not reported.
    """
    learned = Counter(turn for turn, one in zip(read.kept_turns, read.one.learned, strict=True) if one)
    if not read.session.stated.get("assistant_only_loss") or not learned or all(read.one.learned):
        return
    kept = {*read.kept_turns}
    help = "put {% generation %} marks around every answer of the chat template, and around nothing else"
    if learned[OPENING] > 1:
        what = "the text before the first turn bears loss, but `assistant_only` limits the loss to answers"
        yield verdict("XP597", what, help)
    for turn, role in enumerate(read.roles):
        if role not in ANSWERING and learned[turn] > 1:  # one token may belong to the end of a turn and to the next one
            yield verdict(
                "XP597", f"turn {turn} ({role}) bears loss, but `assistant_only` limits the loss to answers", help
            )
        elif role in ANSWERING and not learned[turn] and turn in kept and turn not in read.excluded:
            yield verdict("XP591", f"turn {turn} ({role}) bears no loss, although it is an answer", help)


def same_answers(sequences: Sequence[TokenSequence]) -> Iterator[Verdict]:
    """Report a pair whose two answers are the same after truncation."""
    if [one.name for one in sequences] == ["chosen", "rejected"] and sequences[0].ids == sequences[1].ids:
        needed = max(len(one.full) for one in sequences)
        help = f"write seq = {needed} or more, or shorten the row" if any(one.cut for one in sequences) else ""
        what = f"the chosen and the rejected answer are the same {len(sequences[0].ids):,} tokens: nothing is learned"
        yield verdict("XP591", what, help)


def _end(read: Read) -> Iterator[Verdict]:
    """Report a missing, repeated or misplaced end token of the last answer, except if the answer is truncated."""
    one, tokenizer = read.one, read.session.tokenizer
    end, last = tokenizer.eos_token_id, read.last_answer
    if one.cut or one.continued or end is None or last is None or not any(one.learned):
        return
    turns = read.kept_turns
    learned = [at for at, token in enumerate(one.ids) if one.learned[at] and turns[at] == last]
    ends = [at for at in learned if one.ids[at] == end]
    if len(ends) > 1 and not "".join(read.kept_texts[ends[0] + 1 : ends[-1]]).strip():
        name = tokenizer.eos_token
        yield verdict("XP592", f"the end token {name} follows the answer{_name(read)} twice", "end each answer once")
    if len(learned) > 1 and ends[:1] == learned[:1]:
        what = f"the answer{_name(read)} begins with the end token {tokenizer.eos_token}: generation would stop at once"
        yield verdict("XP592", what, "remove the end token before the answers from the chat template")
    if not learned or ends:
        return
    name = tokenizer.eos_token
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    closed = next((at for at in reversed(learned) if read.kept_texts[at].strip()), learned[-1])
    if one.ids[closed] in special:
        closing = tokenizer.convert_ids_to_tokens(one.ids[closed])
        what = f"the answer{_name(read)} ends with {closing}, and the end token is {name}: generation would not stop"
        yield verdict("XP592", what, f'write `model {{ eos = "{closing}" }}`')
    elif any(token == end for at, token in enumerate(one.ids) if turns[at] == last):
        what = f"the end token {name} after the answer{_name(read)} bears no loss: the model does not learn to stop"
        yield verdict("XP592", what, "put the end token inside the {% generation %} marks of the chat template")
    else:
        what = f"no end token {name} follows the answer{_name(read)}: the model does not learn to stop"
        texts = read.roles == ["text"]  # the rows were tokenized before the run, and TRL adds no end token to such rows
        help = "end each row" if texts else "name a chat_template that ends each answer"
        yield verdict("XP592", what, f"{help} with the end token")


def _begin_twice(read: Read) -> Iterator[Verdict]:
    tokenizer, ids = read.session.tokenizer, read.one.ids
    begin, name = tokenizer.bos_token_id, tokenizer.bos_token
    if begin is not None and ids[:2] == [begin, begin]:
        plain = read.roles in (["text"], ["prompt"], ["prompt", "completion"])
        writer, place = ("the row", "row's text") if plain else ("the chat template", "chat template")
        added = tokenizer("a")["input_ids"][:1] == [begin]
        why = f"{writer} has it, and the tokenizer adds it" if added else f"{writer} has it twice"
        help = f"remove {'the' if added else 'one'} begin token from the {place}"
        yield verdict("XP593", f"the sequence begins with {name} twice: {why}", help)


def _thoughts(read: Read) -> Iterator[Verdict]:
    texts, learned = read.kept_texts, read.one.learned
    joined = "".join(texts)
    if UNTHINKING in joined:
        return
    starts = [0, *accumulate(map(len, texts))]
    for found in EMPTY_THOUGHTS.finditer(joined):
        if any(learned[bisect_left(starts, found.start()) : bisect_left(starts, found.end())]):
            yield verdict(
                "XP594", f"an empty <{found[1]}> block{_name(read)} is learned: the model learns to skip its reasoning",
                "give the row its reasoning, or name a chat_template that writes no empty block",
            )  # fmt: skip
            return


def _cut(read: Read) -> Iterator[Verdict]:
    one, last, name = read.one, read.last_answer, _name(read)
    many, limit = max(len(one.full), one.full_length), len(one.ids)
    if many == limit or one.split or not one.ids:
        return
    kept, turns = read.kept_turns, read.turns
    help = f"write seq = {many} or more, or shorten the row"
    if one.head and read.session.stated.get("max_prompt_length"):
        help = "write a larger `max_prompt`, or shorten the prompt"
    if last is not None and last in turns and last not in kept:
        yield verdict("XP595", f"the answer{name} is cut away: {limit:,} of the row's {many:,} tokens are kept", help)
        return
    if not one.cut:  # the number of lost tokens is known, but not which tokens they are
        yield verdict("XP596", f"the sequence{name} is cut: {limit:,} of its {many:,} tokens are kept", help)
        return
    end = one.head + limit
    if end < many and 0 <= turns[end] == turns[end - 1]:
        turn, inside, left = turns[end], turns.count(turns[end]), kept.count(turns[end])
        role = read.roles[turn] if turn < len(read.roles) else "text"
        what = f"turn {turn} ({role}){name} is cut in the middle: {left:,} of its {inside:,} tokens are kept"
        yield verdict("XP596", what, help)
    if one.head and 0 <= turns[one.head - 1] == turns[one.head]:
        turn, inside, left = turns[one.head], turns.count(turns[one.head]), kept.count(turns[one.head])
        role = read.roles[turn] if turn < len(read.roles) else "text"
        what = f"turn {turn} ({role}){name} is cut at its beginning: {left:,} of its {inside:,} tokens are kept"
        yield verdict("XP596", what, help)
    elif one.head:
        what = f"the beginning of the sequence{name} is cut away: {limit:,} of its {many:,} tokens are kept"
        yield verdict("XP596", what, help)


def unread_columns(session: Session, source: Mapping[str, Any], stored: Any) -> Iterator[Verdict]:
    """Report columns that no trainer reads, such as `documents`. `stored` is a dataset of one row."""
    module = session.optional("features.messages.unread_columns")
    for kind in () if module is None else module.counted(session.bundle, source, stored)[0]:
        read = module.not_read_by(session.method, source["shape"])
        found = verdict("XP549", f"the row has {module.WORDS[kind]}, {read}")
        if kind == "question" or module.rewarded(session.method, source["shape"]):
            found["severity"] = "error" if kind == "question" else "note"
        yield found


def lost(session: Session, row: Mapping[str, Any]) -> list[Verdict]:
    """Report content of the row that its rendered text lacks. To find such content, the runtime compares the row with
    the text.
    """
    comparison = session.core("row_comparison")
    if not session.tokenizer.chat_template:
        return []
    omit, out = session.bundle.data.get("omit") or (), [*_notes(session, row), *_of_template(session, row)]
    for loss in comparison.losses(row, session.tokenizer, session.bundle.row_format().conversations):
        code = "XP598" if loss.how == "missing" else "XP599"
        allowed = f"`data(omit=[{loss.name}])`"
        if loss.name in omit:
            out.append({**verdict(code, f"the chat template {loss}, as {allowed} allows"), "severity": "note"})
            continue
        help = f"change the data, name another chat_template, or allow it with {allowed}"
        out.append(verdict(code, f"the chat template {loss}", help))
    return out


def _of_template(session: Session, row: Mapping[str, Any]) -> Iterator[Verdict]:
    """Report three faults of a chat template: it writes the date or a random value, it changes the order of the turns,
    or it lacks the right generation prompt (the header with which answers begin).
    """
    for what in templates.changing(session, row):
        yield verdict("XP529", what, "write a text into the chat template in place of the changing value")
    for what in templates.moved(session, row):
        found = verdict("XP599", what, "write the turns in the order of the row, or name another chat_template")
        yield {**found, "severity": "warning"}  # a run does not stop at such a row, so this is only a warning
    what, stops = templates.prompt_end(session)
    if what:
        found = verdict("XP528", what, "end the chat template with the beginning of an answer, as `chatml` does")
        yield {**found, "severity": "error"} if stops else found


STATE_ENDS = "state `add_bos_token` and `add_eos_token` in tokenizer_config.json of the model"
"""The help for a tokenizer that transformers 4 changes. Executed for llama, gemma, qwen2, gpt_neox, mistral and phi3
with transformers 4.57: only the post_processor changes, and not if these two are stated.
"""
OF_TOKENIZER = {
    "parts": (
        "XP175",
        "for a model trained with tokenizer.json, write `target STACK` with a stack of transformers 4 (`xpc list "
        f"stacks` prints them), and {STATE_ENDS}",
    ),
    "lacking": ("XP560", "add the tokens to the vocabulary with `tokens`, or name another chat_template"),
    "ends": ("XP177", "change `eos_token_id` in the model's generation_config.json"),
}
"""Maps each kind of problem that the runtime's `tokenizer_files` reports to two texts: the code of a finding, and its
help.
"""


def about_tokenizer(found: Verdict) -> str:
    """A text that is equal for two findings about the same fault of the tokenizer, which is reported only for the first
    row that shows it. "" for a finding about a row.
    """
    if found["code"] == OF_TOKENIZER["parts"][0]:  # its message has the tokens of the row
        return found["code"]
    return found["message"] * any(found["code"] == code for code, _ in OF_TOKENIZER.values())


def of_tokenizer(session: Session, row: Mapping[str, Any]) -> Iterator[Verdict]:
    """Report a tokenizer of a local model that does not fit the model's other files."""
    module = session.optional("features.launch.tokenizer_files")
    for kind, what in () if module is None else module.notes(session.bundle, [row], session.tokenizer):
        code, help = OF_TOKENIZER[kind]
        if kind == "parts" and version("transformers").startswith("4."):
            help = STATE_ENDS
        yield verdict(code, what, help)


def without_embedding(session: Session, one: TokenSequence) -> Iterator[Verdict]:
    """Report a token that the embeddings of a local model do not have. A run stops at a row with such a token."""
    module = session.optional("features.launch.tokenizer_files")
    most = None if module is None else module.beyond(session.bundle, session.tokenizer)
    if most is not None and max(one.ids, default=0) >= most:
        what = f"the row has {module.without(session.bundle, session.tokenizer, one.ids, most)}"
        yield {**verdict("XP176", what, "list the new tokens in `tokens`, which adds embeddings"), "severity": "error"}


NOTES = {
    "weight": "XP549", "key": "XP549", "unread": "XP549", "system": "XP546", "special": "XP587", "turn": "XP548",
}  # fmt: skip
"""The code of each kind of problem that the runtime's `turn_notes` reports."""
EFFECTS = {
    "weight": "which counts as 1", "key": "which the run does not read",
    "unread": "which the chat template does not write, so it is not learned",
    "system": "which is therefore not learned", "special": "which the model reads as this token",
    "turn": "although it is not the assistant's",
}  # fmt: skip
"""Maps each kind of problem in `NOTES` to a phrase about its consequence, which ends the message of a finding."""
HELPS = {
    "turn": "move the turns before the last answer into `prompt`",
    "unread": "name a chat_template that reads the key, or rename a key of reasoning to `reasoning_content`",
    "system": "delete one of the two",
    "special": "remove it from the text, unless the model should read the token there",
}


def _notes(session: Session, row: Mapping[str, Any]) -> Iterator[Verdict]:
    """Report three things: keys of turns that have no effect, turns that count in the loss although they should not,
    and reasoning that is rendered twice.
    """
    turn_notes = session.optional("features.messages.turn_notes")
    if turn_notes is None:  # messages with only a role and a text cannot have these faults
        return
    learned = turn_notes.learned_columns(session.method, bool(session.stated.get("assistant_only_loss")))
    for kind, what in dict(turn_notes.notes(row, session.tokenizer, learned)).items():
        # a bundle states all arguments of its trainer; a trainer without `assistant_only_loss` cannot mask turns
        masks = kind == "turn" and "assistant_only_loss" in session.stated
        help = "write `method sft(assistant_only)`" if masks else HELPS.get(kind, "")
        found = verdict(NOTES[kind], f"{what}, {EFFECTS[kind]}", help)
        yield {**found, "severity": "note"} if kind == "unread" else found
    doubles = session.optional("features.messages.call_forms").doubles(session.tokenizer)
    if doubles and (twice := turn_notes.doubled(row)):
        found = verdict("XP599", turn_notes.written_twice(*twice))
        allowed = "reasoning" in (session.bundle.data.get("omit") or ())
        yield {**found, "severity": "note"} if allowed else found
