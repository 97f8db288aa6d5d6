"""Every name of the language is typed in a wrong place. The first suggestion must be the right place of the name.

The wrong places are: after `with`, in the body, and inside each clause that has no setting with this name.
OTHER_SETTING lists names that have another meaning at such a place, because other tools use them with this meaning.
"""

from __future__ import annotations

import re
import zlib
from functools import cache
from typing import Any

import pytest

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language import schema
from xpc.compiler.language.advisor import UnknownName
from xpc.compiler.language.kinds import BLOCK, FLAG
from xpc.compiler.pipeline import check_text
from xpc.compiler.suggest.legal import example
from xpc.compiler.suggest.meaning import meaning
from xpc.compiler.suggest.tables import other_names
from xpc.compiler.suggest.unknown_names.entry import unknown_name
from xpc.grammar.diagnostic import Label
from xpc.grammar.parse import parse
from xpc.grammar.record import evolve
from xpc.grammar.source import Source, Span

NAMES = sorted({row.name for row in schema.TABLE} | {*schema.SOURCE_SETTINGS, *schema.CLAUSES})
CLAUSES = [one for one in schema.CLAUSES if one not in ("train", "extra", "sweep")]
OTHER_SETTING = {
    # `precision { dtype = bf16 }` is another form of `precision bf16`
    "dtype in precision": "precision", "data": "train",
    "activation_checkpointing": "checkpointing", "epsilon": "eps", "iterations": "steps", "max_length": "seq",
    "timeout": "nccl_timeout", "block_size in batch": "seq", "block_size in None": "seq", "context in batch": "seq",
    "eps in method": "epsilon",
    "env in method": "environment",
    "max_lr in optimizer": "lr", "optimizer in save": "full_state", "steps in method": "iterations",
    "strategy in eval": "every", "strategy in save": "every", "target in lora": "targets", "target in qlora": "targets",
    "target in oft": "targets", "target in optimizer": "targets", "tokens in batch": "gbs", "top_k in save": "keep",
    "epsilon_high in optimizer": "eps", "timeout in launch": "nccl_timeout", "max_length in method": "seq",
    "config in data": "SOURCE", "name in data": "SOURCE", "revision in data": "SOURCE", "split in data": "SOURCE",
    "iterations in eval": "every", "iterations in save": "every", "iterations in track": "every",
    "steps in eval": "every", "steps in save": "every", "steps in track": "every", "batch in eval": "micro",
    "format in save": "safetensors", "limit in save": "keep",
    "prompt_template in model": "chat_template", "name in model": "train",
    "dropout in model": "config.json", "parameters in freeze": "except_modules", "image in data": "processor",
    "scale in method": "scale_rewards", "tensor_parallel in strategy": "splits", "bits in optimizer": "adamw8bit",
    "limit in memory": "card", "limit in eval": "holdout", "take in eval": "holdout", "tokens in eval": "holdout",
    "epochs in eval": "every", "epochs in save": "every", "environment in launch": "env", "port in launch": "rank",
    "memory in launch": "host_memory",
    "embedding_lr in optimizer": "adamw_lr", "scale in lora": "alpha", "timeout in method": "tool_timeout",
    "beta in optimizer": "betas", "decay in optimizer": "weight_decay", "max_tokens in method": "max_completion",
}  # fmt: skip
"""Maps a name to the setting that is meant. The key is the name alone, or the name with its clause, such as `target in
oft`.
"""


def valued(name: str) -> str:
    """A legal value of a setting with this name. If the schema has several settings with this name, the value is legal
    for the first of them.
    """
    rows = [row for row in schema.TABLE if row.name == name] or [schema.SOURCE_SETTINGS.get(name)]
    return "true" if rows[0] is None or rows[0].kind in (FLAG, BLOCK) else example(rows[0])


def unknown(name: str, clause: str | None) -> UnknownName:
    value = valued(name)
    file, problems = parse(Source("t.xp", f"train qwen2.5-3b on alpaca\nprobe = {value}\n"))
    assert not problems, (name, value)
    (node,) = [one.value for one in file.statements]
    return UnknownName(name, clause, node, value, Label(Source("t.xp", name), Span(0, len(name))))


def is_legal(name: str, clause: str | None) -> bool:
    """Whether a name is legal in a place."""
    if clause is None:
        return name in schema.outer_names() or name in schema.CLAUSES
    return f"{clause}.{name}" in schema.BY_PATH


def first_suggestion(name: str, clause: str | None) -> str:
    """The first text in backticks that the help for a name says to write. Without such a text, the complete help."""
    found = unknown_name(unknown(name, clause))
    first = re.search(r"`([^`]*)`", found.help.partition("write ")[2]) if "write " in found.help else None
    return first[1] if first else found.help


def misleading(name: str, clause: str | None) -> str:
    """The first suggestion, if it is not the right setting in its right place; otherwise ""."""
    if is_legal(name, clause) or clause == name:
        return ""
    first = first_suggestion(name, clause)
    wanted = {name, OTHER_SETTING.get(name, name), OTHER_SETTING.get(f"{name} in {clause}", name)}
    right = any(re.search(rf"\b{re.escape(one)}\b", first) for one in wanted)
    return "" if right else f"{name} in {clause}: {first}"


@pytest.mark.slow
def test_setting_outside_of_its_clause_suggests_its_clause():
    assert [found for name in NAMES if (found := misleading(name, None))] == []


@pytest.mark.slow
def test_setting_in_some_wrong_clause_suggests_its_clause():
    some = [(name, CLAUSES[zlib.crc32(name.encode()) % len(CLAUSES)]) for name in NAMES]
    assert [found for name, clause in some if (found := misleading(name, clause))] == []


@pytest.mark.nightly  # the test above tries each name in only one wrong clause
@pytest.mark.parametrize("clause", CLAUSES)
def test_setting_in_any_wrong_clause_suggests_its_clause(clause):
    assert [found for name in NAMES if (found := misleading(name, clause))] == []


@pytest.mark.parametrize(
    ("clause", "name", "words"),
    [
        (None, "take", "`SOURCE(take=5%)` in the `data` block"),
        ("track", "take", "`SOURCE(take=5%)` in the `data` block"),
        (None, "train", "`train MODEL on DATA"),
        ("schedule", "train", "`train MODEL on DATA"),
        ("optimizer", "steps", "`for 1000 steps`"),
        ("data", "max_prompt", "`max_prompt=512` outside of `data`"),
        ("memory", "precompute", "`method(precompute)`"),
        ("method", "prompt", "`data(prompt="),
    ],
)
def test_suggestions_that_were_wrong(clause, name, words):
    assert words in unknown_name(unknown(name, clause)).help


@pytest.mark.parametrize("name", ["_", "A.", "_._", "-"])
def test_a_name_without_letters_gets_a_finding(name):
    assert check_text(f"{name}\n".encode(), "t.xp", Workspace(".")).problems


CHOICE_DECIDES = {"mlflow experiment_name": "project", "mlflow run_id": "MLFLOW_TAGS", "slurm timeout": "time"}
CHOICE_DECIDES |= dict.fromkeys(("muon b1", "muon beta1", "muon beta_1"), "momentum")
CHOICE_DECIDES |= dict.fromkeys(("muon adam_rate", "muon adamw_learning_rate", "muon scalar_lr"), "adamw_lr")
CHOICE_DECIDES |= dict.fromkeys(("muon update_scale", "muon update_scaling"), "adjust_lr")
CHOICE_DECIDES |= dict.fromkeys(("reward callables", "reward functions"), "rewards")
CHOICE_DECIDES |= {
    "cpo sft_loss": "likelihood",
    "linear warmup_epochs": "warmup",
    "muon weightdecay": "no equivalent",
    "zero3 offload_all": "offload",
    "dpo bc_weight": "loss=[sigmoid",
    "reward reward_manager": "rewards",
    "fsdp cpu_offload": "offload",
    "fsdp fsdp_offload": "offload",
    "fsdp offload_params": "offload",
    "muon matrix_lr": "lr",
    "muon muon_scale_mode": "adjust_lr",
    "cosine number_of_restarts": "cycles",
    "wandb wandb_run_id": "name",
    "slurm deadline": "--deadline",
    "sky job_recovery": "--job-recovery",
    "grpo dr_grpo": "loss",
}
CHOICE_DECIDES |= dict.fromkeys(("wsd lr_decay_steps", "wsd wsd_decay", "wsd lr_wsd_decay_iters"), "decay")
CHOICE_DECIDES |= {
    f"reward {one}": "rewards"
    for one in (
        "reward_plugins", "reward_plugin", "reward_file", "reward_function_path", "reward_function_file",
        "custom_reward_function_path",
    )
}  # fmt: skip
"""Maps a clause with its choice and a name, such as `slurm timeout`, to the setting that is meant."""


@cache
def probed(value: str) -> Any:
    """Parse a text as the value of a setting."""
    (probe,) = parse(Source("t.xp", f"train qwen2.5-3b on alpaca\nprobe = {value}\n"))[0].statements
    return probe.value


def typed_after(clause: str, choice: str, name: str, value: str) -> str:
    """The help that a check gives for `CLAUSE CHOICE(NAME = VALUE)`."""
    text = f"train qwen2.5-3b on alpaca\n{clause} {choice}({name} = {value})\n"
    start = text.index(f"({name}") + 1
    label = Label(Source("t.xp", text), Span(start, start + len(name)))
    node = evolve(probed(value), span=Span(label.span.end + 3, label.span.end + 3 + len(value)))
    return str(unknown_name(UnknownName(name, clause, node, value, label)).help)


@pytest.mark.parametrize(
    ("clause", "choice", "name"),
    [
        ("track", "mlflow", "experiment_name"),
        ("track", "mlflow", "run_id"),
        ("launch", "slurm", "timeout"),
        ("optimizer", "muon", "beta1"),
        ("optimizer", "muon", "update_scale"),
        ("method", "reward", "functions"),
        ("schedule", "wsd", "wsd_decay"),
    ],
)
def test_name_of_another_tool_means_what_the_choice_decides(clause: str, choice: str, name: str) -> None:
    assert CHOICE_DECIDES[f"{choice} {name}"] in typed_after(clause, choice, name, "1")


@pytest.mark.slow
def test_name_of_another_tool_means_the_same_next_to_every_choice_of_its_clause():
    other = {}
    decided = {one.partition(" ")[2] for one in CHOICE_DECIDES}
    for path, names in other_names().items():
        clause, _, setting = path.partition("=")[0].rpartition(".")
        value = "1" if "=" in path else valued(setting)
        for name in (one.replace(" ", "_") for one in names):
            if name not in decided and zlib.crc32(name.encode()) % 8:
                continue  # every eighth name, because all of them take two minutes
            found = meaning(name, clause, exact=True) if clause in schema.BY_PATH else None
            if (
                found is None
                or found.path != f"{clause}.{setting}"
                or found.path.replace(setting, name) in schema.BY_PATH
            ):
                continue
            if clause == "track" and name not in decided and name.partition("_")[0] in schema.BY_PATH["track"].choices:
                continue  # without a tracker in the clause, the name states it
            plain = typed_after(clause, "", name, value)
            for choice in schema.BY_PATH[clause].choices:
                given = typed_after(clause, choice, name, value)
                if given != plain and "does not read it" not in given:
                    other[f"{choice} {name}"] = given
    assert other.keys() == CHOICE_DECIDES.keys()
    assert [one for one, word in CHOICE_DECIDES.items() if word not in other[one]] == []
