"""The tokens and loss mask on which a bundle trains. They are read from the batches of the bundle's own trainer. The
bundle is compiled from an imported case of oracles/token_cases.py.
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from typing import Any

from import_support import REPOSITORY, Imported, convert, imported

sys.path.append(os.path.join(REPOSITORY, "tests", "importing", "oracles"))

from ask_rows import answer, tokens
from oracle_support import FOLDER
from token_cases import CASES, Case


@cache
def records(tool: str) -> dict[str, Any]:
    """Map each case to the recorded rows of a tool."""
    with open(os.path.join(FOLDER, f"{tool}_rows.jsonl"), encoding="utf-8") as handle:
        _, *lines = [json.loads(line) for line in handle]
    return {one["case"]: one for one in lines}


def cases(tool: str) -> dict[str, Case]:
    """The cases of token_cases.py by name."""
    found = {one.name: one for one in CASES[tool]}
    assert len(found) == len(CASES[tool]), "two cases have the same name"
    return found


def laid(case: Case, tool: str, folder: str) -> Imported:
    """Write the case's model and rows into a folder, and import its file there. The folder then also has the files that
    the import writes next to a spec.
    """
    text, name = case.lay(tool, folder), os.path.join(folder, "recipe.yaml")
    for file, data in convert(text, "--hardware", "1 x cpu", name=name, folder=folder)[0].files.items():
        with open(os.path.join(folder, file), "wb") as handle:
            handle.write(data)
    return imported(text, "--hardware", "1 x cpu", name=name, root=folder)


def laid_together(parts: list[Case], tool: str, folder: str) -> Imported:
    """Import one file with the data of several cases that have the same tokenizer."""
    first = parts[0]
    first.lay(tool, folder)
    data, about, sets = os.path.join(folder, "data" * (tool == "llamafactory")), {}, []
    for number, case in enumerate(parts):
        assert case.tokenizer == first.tokenizer
        name = f"rows{number}"
        with open(os.path.join(data, f"{name}.jsonl"), "w", encoding="utf-8") as handle:
            handle.writelines(json.dumps(row) + "\n" for row in case.rows)
        about[name] = {"file_name": f"{name}.jsonl", **case.about}
        sets.append({"path": f"{name}.jsonl", **case.dataset})
    keys = {key: one for case in parts for key, one in case.source(tool).items()}
    if tool == "llamafactory":
        with open(os.path.join(data, "dataset_info.json"), "w", encoding="utf-8") as handle:
            json.dump(about, handle)
    keys |= {"dataset": ",".join(about)} if tool == "llamafactory" else {"datasets": sets}
    name = os.path.join(folder, "recipe.yaml")
    return imported(json.dumps(keys), "--hardware", "1 x cpu", name=name, root=folder)


def trained_on(found: Imported, folder: str) -> list[dict[str, Any]]:
    """The rows on which the bundle's trainer trains, as its collator returns them. They have the same form as the
    recorded rows of the tools.
    """
    import run_features

    from xpc.runtime.core import arguments, run

    location = os.path.join(folder, "bundle")
    for name, data in found.files.items():
        path = os.path.join(location, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as handle:
            handle.write(data)
    was = os.getcwd()
    os.chdir(folder)
    try:
        bundle = run_features.read(location)
        run.trainer_class = run_features.enabled(bundle.plan).trainer_class
        weights(folder)
        trainer, _ = run._trainer(bundle, arguments.build_arguments(bundle))
        return [_row(trainer, row) for row in trainer.train_dataset]
    finally:
        os.chdir(was)


def weights(folder: str) -> None:
    """Write random weights for the case's model."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(f"{folder}/model")).save_pretrained(f"{folder}/model")


def _row(trainer: Any, row: Any) -> dict[str, Any]:
    """A row of the trainer in the form of the recorded rows. For a preference pair, the result has both answers, each
    with the prompt before it.
    """
    if "chosen_ids" in row:
        return {one: answer(row.get("prompt_ids", []), row[f"{one}_ids"]) for one in ("chosen", "rejected")}
    if "chosen_input_ids" in row:
        return {one: tokens(row[f"{one}_input_ids"], row[f"{one}_labels"]) for one in ("chosen", "rejected")}
    if "completion_ids" in row and "label" in row:
        return {**answer(row["prompt_ids"], row["completion_ids"]), "label": row["label"]}
    batch = trainer.data_collator([row])
    return tokens(batch["input_ids"][0].tolist(), batch["labels"][0].tolist())


def alike(theirs: list[dict[str, Any]], ours: list[dict[str, Any]]) -> bool:
    """Whether two lists have the same rows, in any order. The loss of a row's first token is ignored, because no
    earlier token predicts this token.
    """
    return sorted(map(_key, theirs)) == sorted(map(_key, ours))


def _key(row: dict[str, Any]) -> str:
    if "ids" not in row:
        return json.dumps({one: [two["ids"], two["trained"]] for one, two in sorted(row.items())})
    return json.dumps([row["ids"], [at for at in row["trained"] if at], row.get("label")])
