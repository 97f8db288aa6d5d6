"""Functions with which proofs measure rows: either rows of the bundle's files, or the tiny rows with which proofs
train.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, ClassVar

from small_run import REPOSITORY


def _bundle(run: Any) -> Any:
    """The `Bundle` as the runtime reads it; data files that are not copied into the bundle are next to it."""
    sys.path.append(REPOSITORY)
    sys.path.append(os.path.join(REPOSITORY, "tests", "support"))
    import run_features

    os.environ["XPC_DATA_ROOT"] = os.path.join(os.path.dirname(run.folder), "files")
    return run_features.read(run.folder, "runtime")


def _own(run: Any) -> Any:
    """The rows of the bundle's data, converted to the trainer's columns as in a run."""
    read = _bundle(run)
    from runtime.core import data

    return data.build(read)


def _raw(run: Any) -> Any:
    """The stored rows in the first source's file. If they are plain texts, their column is renamed to `text`."""
    import datasets

    source = run.plan["data"]["sources"][0]
    with open(os.path.join(run.folder, source["bundled"]), encoding="utf-8") as handle:
        rows = [json.loads(line) for line in handle if line.strip()]
    names = {"text": ("text",)}.get(source["shape"], ())
    found = datasets.Dataset.from_list(rows)
    for own, name in zip(source["columns"] or (), names, strict=False):
        if own in found.column_names:
            found = found.rename_column(own, name)
    return found


def _trainer(run: Any, rows: Any) -> Any:
    run.__dict__["rows"] = rows
    return run.trainer


def masked(run: Any) -> dict[str, Any]:
    """How many tokens of the prepared rows have no loss."""
    rows = run.trainer.train_dataset
    if "labels" in rows.column_names:
        return {"masked": sum(label == -100 for labels in rows["labels"] for label in labels)}
    batch = run.trainer.data_collator([rows[index] for index in range(4)])
    return {"masked": int((batch["labels"][batch["attention_mask"] == 1] == -100).sum())}


def left(run: Any) -> dict[str, Any]:
    """How many of the bundle's rows the trainer has kept, and how many of their tokens have a loss."""
    rows = _trainer(run, _own(run)[0]).train_dataset
    if "labels" in rows.column_names:
        trained = sum(label != -100 for labels in rows["labels"] for label in labels)
    else:
        trained = sum(bit for mask in rows["completion_mask"] for bit in mask)
    return {"rows": len(rows), "learnt": trained}


def own(run: Any) -> dict[str, Any]:
    """Build the trainer on rows of the bundle's files, converted to the trainer's columns as in a run."""
    return {"rows": len(_trainer(run, _own(run)[0]).train_dataset)}


def raw(run: Any) -> dict[str, Any]:
    """Build the trainer on rows of the bundle's files, without any conversion."""
    return {"rows": len(_trainer(run, _raw(run)).train_dataset)}


def tokenized(run: Any) -> dict[str, Any]:
    """Pass the last row of tokens through the trainer's collator and the model.

    The result says whether the labels equal the labels in the file, whether the labels equal the row's token ids, and
    how many tokens have no loss.
    """
    stored = _raw(run)
    trainer = _trainer(run, stored)
    batch = trainer.data_collator([trainer.train_dataset[len(trainer.train_dataset) - 1]])
    trainer.model(**batch)
    labels = batch["labels"][0].tolist()
    last = stored[len(stored) - 1]
    own = all(label in (-100, token) for label, token in zip(labels, last["input_ids"], strict=True))
    return {"as_stored": labels == last.get("labels"), "own": own, "masked": labels.count(-100)}


def built(run: Any) -> dict[str, Any]:
    """Convert the bundle's rows as in a run; return the numbers of training rows and evaluation rows. Raises any
    exception of the conversion.
    """
    train, evaluation = _own(run)
    return {"train": len(train), "evaluation": 0 if evaluation is None else len(evaluation)}


def stored(run: Any) -> dict[str, Any]:
    """The number of rows that the datasets library reads from the first source's file."""
    from datasets import load_dataset

    location = os.path.join(run.folder, run.plan["data"]["sources"][0]["bundled"])
    kind = {"jsonl": "json"}.get(location.rpartition(".")[2], location.rpartition(".")[2])
    return {"rows": len(list(load_dataset(kind, data_files=[location], split="train")))}


def heard(run: Any) -> dict[str, Any]:
    """How many turns of the bundle's rows are dropped by TRL's Qwen3 template, because the template does not know their
    roles.
    """
    import trl

    with open(os.path.join(os.path.dirname(trl.__file__), "chat_templates", "qwen3.jinja"), encoding="utf-8") as file:
        template = file.read()
    left_out = 0
    for row in _own(run)[0]:
        turns = [{**turn, "content": f"turn-{index}-"} for index, turn in enumerate(row["messages"])]
        text = run.tokenizer.apply_chat_template(turns, chat_template=template, tokenize=False)
        left_out += sum(turn["content"] not in text for turn in turns)
    return {"left_out": left_out}


def silent(run: Any) -> dict[str, Any]:
    """If the trainer keeps all rows, the number of rows whose assistant turns are all empty. Otherwise 0."""
    rows = _own(run)[0]
    kept = len(_trainer(run, rows).train_dataset) == len(rows)
    answers = [[one for one in row["messages"] if one["role"] == "assistant"] for row in rows]
    output = [
        any(one["content"].strip() or "tool_calls" in (one.get("fields") or "") for one in turns) for turns in answers
    ]
    return {"silent": output.count(False) if kept else 0}


def templated(run: Any) -> dict[str, Any]:
    """Whether the trainer has applied the chat template: whether the tokens of the first row begin as a turn of the
    template does.
    """
    run.tokenizer.chat_template = (
        "<|im_start|>{% for turn in messages %}{{ turn.role }}: {{ turn.content }}{% endfor %}"
    )
    made = _trainer(run, _own(run)[0]).train_dataset[0]
    name = next(one for one in ("prompt_input_ids", "prompt_ids", "input_ids", "chosen_ids") if one in made)
    return {"templated": run.tokenizer.decode(made[name]).lstrip().startswith("<|im_start|>")}


def unasked(run: Any) -> dict[str, Any]:
    """If the trainer keeps all rows, the number of rows in which a user turn has no text. Otherwise 0."""
    rows = _own(run)[0]
    kept = len(_trainer(run, rows).train_dataset) == len(rows)
    requested = [
        all((one["content"] or "").strip() for one in row["messages"] if one["role"] == "user") for row in rows
    ]
    return {"unasked": requested.count(False) if kept else 0}


def repeated(run: Any) -> dict[str, Any]:
    """How many prepared rows have exactly the tokens of an earlier row."""
    rows = _trainer(run, _own(run)[0]).train_dataset
    return {"repeated": len(rows) - len({tuple(one) for one in rows["input_ids"]})}


def gradient(run: Any) -> dict[str, Any]:
    """Whether the first batch of the bundle's rows has a gradient. A gradient does not count if it is only the rounding
    error of two terms that cancel out.
    """
    from measures import losses

    run.__dict__["rows"] = _own(run)[0]
    return {"moves": losses.gradient(run)["largest"] > 1e-6}


def evaluated(run: Any) -> dict[str, Any]:
    """Whether the evaluation rows come from the evaluation split, and whether the run also trains on them."""
    train, evaluation = _own(run)
    held = {json.dumps(row, sort_keys=True) for row in evaluation}
    return {
        "from_test": all("test" in row for row in held),
        "trained_on": bool(held & {json.dumps(row, sort_keys=True) for row in train}),
    }


def evaluated_masked(run: Any) -> dict[str, Any]:
    """Return two booleans: whether some tokens of the training rows have no loss, and whether some tokens of the
    evaluation rows have no loss.
    """
    run.__dict__["rows"], run.__dict__["held"] = _own(run)
    out = {}
    for name, rows in (("training", run.trainer.train_dataset), ("evaluation", run.trainer.eval_dataset)):
        batch = run.trainer.data_collator([rows[index] for index in range(2)])
        out[name] = bool((batch["labels"][batch["attention_mask"] == 1] == -100).any())
    return out


def folder(run: Any) -> dict[str, Any]:
    """The bundle's first source is a folder. Return whether the datasets library reads all its files if the library
    gets only the folder, and not the list of the files.
    """
    import datasets

    source, location = run.plan["data"]["sources"][0], run.folder + "-as-written"
    for one in source["files"]:
        path = os.path.join(location, one["path"])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(os.path.join(run.folder, one["bundled"]), "rb") as read, open(path, "wb") as written:
            written.write(read.read())
    split = datasets.load_dataset(location, split="train")
    return {"all": len(split) >= len(source["files"])}


def masks_alone(run: Any) -> dict[str, Any]:
    """Build the trainer on rows that have token ids and masks, but no labels. Raises any exception of the trainer."""
    import datasets

    rows = [{"input_ids": [1, 2, 3, 4], "completion_mask": [0, 0, 1, 1]} for _ in range(4)]
    return {"rows": len(_trainer(run, datasets.Dataset.from_list(rows)).train_dataset)}


def unread(run: Any) -> dict[str, Any]:
    """The keys of `dataset_kwargs` that the trainer does not read."""

    class RecordingRow(dict[str, Any]):
        seen: ClassVar[set[str]] = set()

        def get(self, key: str, default: Any = None) -> Any:
            self.seen.add(key)
            return super().get(key, default)

    keys = RecordingRow(run.args.dataset_kwargs or {})
    run.args.dataset_kwargs = keys
    run.trainer  # noqa: B018
    return {"unread": sorted(set(keys) - RecordingRow.seen)}


def ends(run: Any) -> dict[str, Any]:
    """Whether the prepared rows have the end token. The rows are plain texts, in the column that the arguments name."""
    rows = _own(run)[0]
    made = _trainer(run, rows).train_dataset
    end = run.tokenizer.eos_token_id
    return {"ended": all(end in row for row in made["input_ids"])}


def order(run: Any) -> dict[str, Any]:
    """The name of the class that samples the training rows in the trainer."""
    return {"sampler": type(run.trainer._get_train_sampler()).__name__}


def project(run: Any) -> dict[str, Any]:
    """The name of the project that a tracker gets."""
    return {"project": run.args.project}
