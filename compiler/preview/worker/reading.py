"""Find out how TRL's trainer prepares a row: its sequences of tokens, which tokens count in the loss, and what is cut
off.
"""

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from .session import Session

PROMPTS = ("prompt_ids", "prompt_input_ids")
ANSWERS = (
    ("text", ("input_ids",)), ("chosen", ("chosen_ids", "chosen_input_ids", "input_ids_chosen")),
    ("rejected", ("rejected_ids", "rejected_input_ids", "input_ids_rejected")),
    ("answer", ("completion_ids", "answer_input_ids")),
)  # fmt: skip
"""Maps the name of a sequence to the column in which TRL 0.18 to 1.16 stores its tokens before truncation."""
IGNORED = -100
FULL_LENGTHS = "full_lengths"


class TokenSequence:
    """A sequence of tokens: the ids that the model reads, whether each of them counts in the loss, and the ids as they
    were before truncation.
    """

    def __init__(self, name: str, ids: Sequence[int], learned: Sequence[bool], full: Sequence[int] | None) -> None:
        self.name, self.ids, self.learned = name, list(ids), list(learned)
        self.full = list(ids if full is None else full)
        many = len(self.ids)
        self.full_length = len(self.full)
        self.head = 0
        if self.full[:many] != self.ids:
            self.head = len(self.full) - many if self.full[-many:] == self.ids else -1
        # more than truncation has changed the tokens, so their positions before and after truncation do not correspond
        if self.head < 0:
            self.full, self.head = self.ids, 0
        self.split = self.continued = False
        """`split`: whether the sequence is a part of a row that was split without a loss of tokens. `continued`:
        whether another part follows.
        """

    @property
    def cut(self) -> int:
        """The number of tokens that are cut off."""
        return 0 if self.split else len(self.full) - len(self.ids)


def mark_parts(parts: Sequence[TokenSequence], full: Sequence[int] | None) -> None:
    """Mark the parts of a row that was split without a loss of tokens (by `long = chunk`, or by packing that splits
    rows). `full` are the tokens of the row. If the joined parts differ from `full`, nothing is marked.
    """
    if len(parts) > 1 and [number for one in parts for number in one.ids] == full:
        for one in parts:
            one.split, one.continued, one.full_length = True, one is not parts[-1], len(one.ids)


class Capture:
    """Captures the tokenized rows before truncation, while TRL's trainer is constructed."""

    tokenized: Any = None

    def __init__(self, session: Session) -> None:
        self.session = session

    @contextmanager
    def watching(self) -> Iterator[None]:
        """A context that stores the tokenized data before truncation: the first dataset with token ids that
        `Dataset.map` gets or returns. For a mixture of shapes (formats of rows), it is the first dataset that has the
        rows of all shapes.
        """
        # a bundle lacks this module if its rows all have the same format
        part = getattr(sys.modules.get("trainer.library_internals.trl_preparation"), "PART", None)

        def mapped(real: Any, rows: Any, *args: Any, **kwargs: Any) -> Any:
            # the data was tokenized before the trainer got it
            if self.tokenized is None and "input_ids" in rows.column_names and part not in rows.column_names:
                self.tokenized = rows.with_format(None)
            out = real(rows, *args, **kwargs)
            names = {*out.column_names}
            if self.tokenized is None and part not in names and any(names & {*answers} for _, answers in ANSWERS):
                self.tokenized = out
            return out

        with importlib.import_module("trainer.library_internals.datasets_rows").map_replaced(mapped):
            yield

    def full(self) -> dict[str, list[int]]:
        """The tokens of each sequence in the first row, before truncation. The prompt is included. Empty if the trainer
        does not tokenize.
        """
        if self.tokenized is None or len(self.tokenized) == 0:
            return {}
        row, out = self.tokenized[0], dict[str, list[int]]()
        prompt: list[int] = next((row[name] for name in PROMPTS if name in row), [])
        if "chosen_labels" in row:  # in orpo, the tokens of an answer already include the prompt's tokens
            prompt = []
        elif prompt and isinstance(row.get("prompt"), str):
            # before trl 1.0, DPO cuts the beginning of a prompt when it tokenizes
            prompt = self.session.uncut(row["prompt"], prompt)
        for name, columns in ANSWERS:
            for column in columns:
                if column in row and row[column] is not None:
                    out[name] = [*(prompt if name != "text" else ()), *row[column]]
        return out

    def full_lengths(self) -> list[int]:
        """The length in tokens of each sequence before truncation; empty if the trainer does not tokenize."""
        if self.tokenized is None or len(self.tokenized) == 0:
            return []
        # orpo truncates while it tokenizes; the runtime has stored the lengths before truncation in a column
        counted = self.tokenized[0].get(FULL_LENGTHS)
        return list(counted or map(len, self.full().values()))


def sequences(session: Session, trainer: Any, capture: Capture, index: int = 0) -> list[TokenSequence]:
    """The sequences of tokens in one prepared row, as the trainer's collator passes them to the model. `index` is the
    index of the row in the trainer's dataset.
    """
    row = trainer.train_dataset[index]
    full = capture.full()
    if session.plan["method"]["generates"]:
        return _prompts(session, trainer, row)
    batch = trainer.data_collator([row])
    if "prompt_input_ids" in batch and "chosen_input_ids" in batch and "chosen_labels" not in batch:
        return _forward_pair(trainer, batch, full)
    if "chosen_labels" in batch:  # a batch of orpo or cpo
        made = [_labelled(name, batch, f"{name}_input_ids", f"{name}_labels", None) for name in CHOICES]
        for one, length in zip(made, capture.full_lengths(), strict=False):
            one.full_length = length
        return made
    if "completion_labels" in batch:  # a batch of kto before trl 1.0
        return [_labelled("answer", batch, "completion_input_ids", "completion_labels", full.get("answer"))]
    if "input_ids_chosen" in batch:  # a batch of reward before trl 0.24
        return [_plain(name, batch, f"input_ids_{name}", f"attention_mask_{name}", full) for name in CHOICES]
    if "completion_mask" in batch:  # a batch of dpo or kto
        names = CHOICES if len(batch["input_ids"]) == 2 else ("answer",)
        return [_masked(name, batch, at, full.get(name)) for at, name in enumerate(names)]
    if "labels" in batch:
        return list(_supervised(batch, full.get("text")))
    return [_of_batch(name, batch, at, full.get(name)) for at, name in enumerate(CHOICES)]


CHOICES = ("chosen", "rejected")


def _kept(ids: Any, mask: Any) -> tuple[list[int], list[int]]:
    """Return a pair: the tokens whose attention mask is 1, and the positions of these tokens."""
    locations = [at for at, one in enumerate(mask.tolist()) if one]
    values = ids.tolist()
    return [values[at] for at in locations], locations


def _labelled(name: str, batch: Any, ids: str, labels: str, full: Any) -> TokenSequence:
    mask = batch[ids.replace("input_ids", "attention_mask")][0]
    kept, locations = _kept(batch[ids][0], mask)
    marks = batch[labels][0].tolist()
    return TokenSequence(name, kept, [marks[at] != IGNORED for at in locations], full)


def _plain(name: str, batch: Any, ids: str, mask: str, full: Mapping[str, list[int]]) -> TokenSequence:
    kept, _ = _kept(batch[ids][0], batch[mask][0])
    return TokenSequence(name, kept, [False] * len(kept), full.get(name))


def _of_batch(name: str, batch: Any, at: int, full: Any) -> TokenSequence:
    kept, _ = _kept(batch["input_ids"][at], batch["attention_mask"][at])
    return TokenSequence(name, kept, [False] * len(kept), full)


def _masked(name: str, batch: Any, at: int, full: Any) -> TokenSequence:
    kept, locations = _kept(batch["input_ids"][at], batch["attention_mask"][at])
    marks = batch["completion_mask"][at].tolist()
    return TokenSequence(name, kept, [bool(marks[one]) for one in locations], full)


def _supervised(batch: Any, full: Any) -> Iterator[TokenSequence]:
    """Yield the sequences of a batch that has labels. A packed row contains several documents, one after the other; at
    the start of each document, the position ids begin again at 0.
    """
    import torch

    for at in range(len(batch["input_ids"])):
        mask = batch["attention_mask"][at] if "attention_mask" in batch else torch.ones_like(batch["input_ids"][at])
        if mask.dim() != 1:
            # a batch of packed documents may have a 4D mask, which does not have one value per token
            mask = torch.ones_like(batch["input_ids"][at])
        kept, locations = _kept(batch["input_ids"][at], mask)
        labels = batch["labels"][at].tolist()
        yield TokenSequence("text", kept, [labels[one] != IGNORED for one in locations], full)


def _forward_pair(trainer: Any, batch: Any, full: Mapping[str, list[int]]) -> list[TokenSequence]:
    """The sequences of DPO with TRL before 1.0. These versions truncate pairs only in the forward pass, so the
    sequences are captured when they are passed to the model.
    """
    import torch

    seen: list[tuple[Any, Any]] = []

    def hook(_: Any, args: Any, given: Mapping[str, Any]) -> None:
        ids = given.get("input_ids", args[0] if args else None)
        mask = given.get("attention_mask")
        seen.append((ids, torch.ones_like(ids) if mask is None else mask))

    handle = trainer.model.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        with torch.no_grad():
            trainer.concatenated_forward(trainer.model, batch)
    finally:
        handle.remove()
    ids, mask = seen[0]
    out = []
    for at, name in enumerate(CHOICES):
        kept, _ = _kept(ids[at], mask[at])
        one, prompt = TokenSequence(name, kept, [False] * len(kept), full.get(name)), len(batch["prompt_input_ids"][0])
        if one.full == full.get(name):  # the prompt may already have been cut when it was tokenized
            prompt = len(one.full) - len(batch[f"{name}_input_ids"][0])
        one.learned = [one.head + location >= prompt for location in range(len(kept))]
        out.append(one)
    return out


def _prompts(session: Session, trainer: Any, row: Mapping[str, Any]) -> list[TokenSequence]:
    """The prompt from which an online method generates, as the trainer's own code prepares it. If distillation trains
    on the row's own answer, the sequence is the prompt followed by this answer.
    """
    import torch

    batch = trainer.data_collator([row])
    if isinstance(batch, Mapping) and "labels" in batch:  # a batch of distillation with `lmbda` below 1
        return [_labelled("answer", batch, "input_ids", "labels", None)]
    if isinstance(batch, Mapping) and "prompts" in batch:  # the batch of distillation in trl before 1.0
        kept, _ = _kept(batch["prompts"][0], batch["prompt_attention_mask"][0])
        return [TokenSequence("prompt", kept, [False] * len(kept), None)]
    many = int(getattr(trainer, "num_generations", 1) or 1)
    trainer.model.eval()
    with torch.no_grad():
        made = trainer._generate_and_score_completions([dict(row) for _ in range(many)])
    kept, _ = _kept(made["prompt_ids"][0], made["prompt_mask"][0])
    full = None
    if session.stated.get("max_prompt_length"):
        from trl.data_utils import maybe_apply_chat_template

        full = session.uncut(maybe_apply_chat_template({"prompt": row["prompt"]}, session.tokenizer)["prompt"], kept)
    return [TokenSequence("prompt", kept, [False] * len(kept), full)]
