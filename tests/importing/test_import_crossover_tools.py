"""Files of axolotl and LLaMA-Factory into which random keys of other files are put: the bundle has the arguments with
which the tool would train, or the import reports the difference.

The tests run only where `make oracles` has installed the tools. XPC_SEED chooses other files.
"""

from __future__ import annotations

import glob
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import oracle_support
import pytest
import yaml
from import_support import HARDWARE, PUBLISHED, REPOSITORY, imported

sys.path.append(oracle_support.FOLDER)

from file_cases import CASES, SECOND, table

pytestmark = pytest.mark.slow

FILES = 200
STRUCTURE = {
    "axolotl": {"adapter", "base_model", "datasets", "test_datasets", "pretraining_dataset", "rl", "plugins",
                "reward_model", "deepspeed", "special_tokens", "tokenizer_config", "lora_model_dir"},
    "llamafactory": {"model_name_or_path", "stage", "dataset", "dataset_dir", "template", "finetuning_type",
                     "deepspeed", "adapter_name_or_path", "reward_model", "eval_dataset", *SECOND} - {"learning_rate"},
}  # fmt: skip
"""Keys that the files keep: other keys depend on them, or they name files that are missing."""
ENVIRONMENTS = {
    "axolotl": (".venv-axolotl-0.19", (sys.executable,)),
    "llamafactory": (".venv-llamafactory", (os.path.join(REPOSITORY, ".venv-llamafactory", "bin", "python"),)),
}
"""The folder of a tool in the Makefile, and the interpreter that runs the tool."""


def sources(tool: str) -> list[dict[str, Any]]:
    """The keys and values of the tool's cases, and of its published files if they exist."""
    out = [table(tool, name) for name in CASES[tool]]
    for path in sorted(glob.glob(os.path.join(PUBLISHED, tool, "**", "*.y*ml"), recursive=True)):
        with open(path, encoding="utf-8") as handle:
            found = yaml.safe_load(handle)
        out += [found] if isinstance(found, dict) else []
    required = "base_model" if tool == "axolotl" else "stage"
    return [one for one in out if required in one]


def generated(chance: random.Random, tool: str) -> list[dict[str, Any]]:
    """Files of a tool, in each of which up to three keys have the values of other files."""
    known = sources(tool)
    free = [(key, one) for keys in known for key, one in keys.items() if key not in STRUCTURE[tool]]
    return [{**chance.choice(known), **dict(chance.sample(free, chance.choice((1, 2, 3))))} for _ in range(FILES)]


@pytest.mark.parametrize("tool", ENVIRONMENTS)
def test_a_file_with_keys_of_other_files_means_what_the_tool_would_do(
    tool: str, chance: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, words = ENVIRONMENTS[tool]
    if not os.path.isdir(os.path.join(REPOSITORY, folder)):
        pytest.skip(f"`make oracles` installs {tool} in {folder}")
    files = {f"{tool}/{number}.yaml": keys for number, keys in enumerate(generated(chance, tool))}
    (tmp_path / tool).mkdir()
    for name, keys in files.items():
        (tmp_path / name).write_text(yaml.safe_dump(keys, sort_keys=False))
    program = os.path.join(oracle_support.FOLDER, f"ask_{tool}.py")
    environment = {**os.environ, "PYTHONPATH": os.path.join(REPOSITORY, folder)}
    subprocess.run(
        [*words, program, tmp_path, tmp_path / "out.jsonl"], env=environment, check=True, capture_output=True
    )
    head, *lines = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    answers = {one["file"]: one for one in lines}
    monkeypatch.setattr(oracle_support, "records", lambda tool: (head, answers))
    compared, wrong = 0, []
    for name, keys in files.items():
        found = imported((tmp_path / name).read_text(), *HARDWARE)
        theirs = None if found.draft.wrong or found.errors else getattr(oracle_support, tool)(name)
        if theirs is None:
            continue
        compared += 1
        different = oracle_support.differing(theirs, oracle_support.ours(found), found.draft.differences)
        wrong += [f"{keys}: {different}"] if different else []
    print(f"{tool}: {compared} of {FILES} files compared")
    assert not wrong, "\n".join(wrong)
    assert compared > FILES / 5
