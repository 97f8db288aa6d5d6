"""Suggest what to write for an unknown name outside of all clauses, in the body of a spec or after `with`."""

from __future__ import annotations

import re

from xpc.compiler.language import schema
from xpc.compiler.language.advisor import Suggestion, UnknownName
from xpc.compiler.language.kinds import BLOCK
from xpc.compiler.language.schema import Setting
from xpc.compiler.suggest.components import misspelt_clause
from xpc.compiler.suggest.converted_values import NO, YES
from xpc.compiler.suggest.flag_values import reward
from xpc.compiler.suggest.known_names import NEVER_LEGAL, known_choice
from xpc.compiler.suggest.lines.shell import COMMAND, command_help
from xpc.compiler.suggest.meaning import Meaning, meaning
from xpc.compiler.suggest.no_equivalent import advice
from xpc.compiler.suggest.registry_names import either
from xpc.compiler.suggest.tables import commands
from xpc.compiler.suggest.typed_form import intended_value, written
from xpc.compiler.suggest.unknown_names.case import Case, first_answer
from xpc.compiler.suggest.unknown_names.search import search
from xpc.compiler.suggest.unknown_names.setting import of_guess, of_source
from xpc.compiler.suggest.unknown_names.wrong_value import wrong_value
from xpc.compiler.suggest.unset_values import ALREADY
from xpc.grammar.record import evolve
from xpc.grammar.tree import Call

CHOICE = re.compile(r"[ \t]*=?[ \t]*(?P<choice>\w[\w.-]*)(?:\(|[ \t]*\{|[ \t]+\w+[ \t]*=)")
"""A pattern for a choice with settings after a name: `adamw(lr=1e-5)`, `adamw lr=1e-5`."""
HEADER = "it is the first line of a spec: `train MODEL on DATA for 3 epochs`"


def outside(unknown: UnknownName) -> Suggestion:
    """The suggestion for a name outside of all clauses. The functions in `steps` are called one after another until one
    returns a suggestion.
    """
    steps = (
        first_line_again,
        _stray_value,
        _misspelt_clause,
        _clause_of_the_choice,
        _shell_command,
        _setting_of_a_source,
        split_in_parts,
        _adapter_with_its_rank,
        _setting_of_a_clause,
        choice_with_a_value,
    )
    return first_answer(Case(unknown), steps) or search(unknown)


def first_line_again(case: Case) -> Suggestion | None:
    """Handle `train` that does not begin the first line: `with train`, `data { train }`."""
    return case.says(HEADER, code="XP102" if case.clause else "XP101") if case.name == "train" else None


def _stray_value(case: Case) -> Suggestion | None:
    """Handle `true`, `no` or `none` that stands where a name belongs, because the `=` before it is missing:
    `jit_compile true`.
    """
    stray = case.node is None and case.name.lower() in ("true", "false", "yes", "no", "null", "none")
    return case.says(f"a value follows `=`, as in `packing={case.name.lower()}`") if stray else None


def _shell_command(case: Case) -> Suggestion | None:
    """Handle a shell command of another trainer: `accelerate launch train.py`, `axolotl train config.yml`."""
    text, start = case.unknown.label.source.text, case.unknown.label.span.start
    command = COMMAND.match(text, start) if case.name.lower() in commands() else None
    known = command is not None and not re.match(r"[\w./-]*[ \t]*[=({]", text[command.end() : command.end() + 80])
    return case.says(command_help(command)) if command is not None and known else None


def _misspelt_clause(case: Case) -> Suggestion | None:
    """Handle a clause whose name is misspelt: `eva { every = 100 }`."""
    # `seeds = [1, 2]` is a sweep
    head = misspelt_clause(case.unknown) if advice(case.name, case.typed) is None else None
    return None if head is None else evolve(case.suggests(head, head, replaces_value=False), intended=(head,))


def _clause_of_the_choice(case: Case) -> Suggestion | None:
    """Handle another tool's word for a clause, before the clause's choice and further settings: `lr_scheduler
    cosine(warmup=3%)`, `optim adamw lr=1e-5`, and `adapter lora(rank=16)`.
    """
    unknown = case.unknown
    text, at = unknown.label.source.text, unknown.label.span.end
    after = CHOICE.match(text, at) if case.node is None or isinstance(case.node, Call) else None
    if after is None:
        return None
    if after["choice"] in schema.ADAPTERS and isinstance(case.node, Call):
        return case.suggests(case.typed, case.typed)
    rows = [row for row in schema.TABLE if row.head and row.choices and known_choice(row, after["choice"])]
    if len(rows) != 1:
        return None
    return evolve(case.suggests(rows[0].name, rows[0].name, replaces_value=False), intended=(rows[0].path,))


def _setting_of_a_source(case: Case) -> Suggestion | None:
    """Handle a setting that belongs to a single data source, but is written outside of the `data` block: `take =
    1000`.
    """
    alone = case.name in schema.SOURCE_SETTINGS and f"data.{case.name}" not in schema.BY_PATH
    return of_source(case) if alone else None


def split_in_parts(case: Case) -> Suggestion | None:
    """Handle a split that is given in parts: `split = "98,2"` is `holdout=2%`."""
    text = case.typed.strip('"')
    listed = re.fullmatch(r"(?:\s*\d+(?:\.\d+)?\s*,){1,2}\s*\d+(?:\.\d+)?\s*", text)
    if listed is None or "split" not in re.split(r"[^a-z]", case.name.lower()):
        return None
    numbers = [float(part) for part in text.split(",")]
    share = 100 * numbers[1] / sum(numbers) if sum(numbers) else 0.0
    return case.suggests(form := f"holdout={share:.4g}%", form) if 0 < share < 100 else None


def _adapter_with_its_rank(case: Case) -> Suggestion | None:
    """Handle an adapter that is joined with a number: `lora-16` is `lora(rank=16)`."""
    joined = re.fullmatch(r"([a-z]+)[-_]?r?(\d{1,3})", case.name.lower())
    if joined is None or joined[1] not in schema.ADAPTERS or case.node is not None or int(joined[2]) < 2:
        return None
    return case.says(f"write `{joined[1]}(rank={joined[2]})`")


def _setting_of_a_clause(case: Case) -> Suggestion | None:
    """Handle a setting that is legal only in its clause: `rank = 16` is `lora(rank=16)`."""
    rows = [row for row in schema.TABLE if row.name == case.name and row.path not in NEVER_LEGAL]
    rows.sort(key=lambda row: row.path.count("."))
    exact = meaning(case.name, exact=True)
    special = all(row.methods for row in rows)
    if not rows or (exact is not None and (special or exact.path.startswith("train"))):
        return None
    message = f"`{case.name[:60]}` belongs inside a clause"
    # `split="train[:5000]"` is about the rows to train on
    name = "train_split" if case.name == "split" and re.match('"?train', case.typed) else case.name
    if (advised := advice(f"{name} {case.typed}", "") or advice(name, case.typed)) is not None:
        return Suggestion("XP102", message, help=advised)
    if len(rows) == 1 and (refused := _refused_value(case, rows[0], message)) is not None:
        return refused
    ways = [written(row, case.unknown) for row in rows]
    valued = case.node is not None or rows[0].kind.name in ("flag", "block")  # else the value is only an example
    alone = ways[0] if len(ways) == 1 and valued else None
    return Suggestion("XP102", message, help=f"write {either(ways)}", edit=alone, replaces_value=True)


def _refused_value(case: Case, row: Setting, message: str) -> Suggestion | None:
    """The suggestion for a value that the setting cannot have (`rank = many`), or for a value that need not be written,
    because xpc always does this (`resume = auto`).
    """
    if case.node is None and (row.path, "auto") in ALREADY:
        return Suggestion("XP102", message, help=ALREADY[row.path, "auto"])
    if case.node is None or row.kind is BLOCK:
        return None
    if row.kind.name in ("name", "text") and case.typed == "false":  # `partition = false` names no partition
        return Suggestion("XP102", message, help=f"leave `{case.name}` out: it is off")
    value = intended_value(row, case.unknown)
    if (row.path, value) in ALREADY:
        return Suggestion("XP102", message, help=ALREADY[row.path, value or ""])
    if value is not None:
        return None
    found = of_guess(case.unknown, Meaning(row.path, own=True))  # `context = 4096` is `seq`
    other = found.edit or found.refusing not in ("", row.path)
    return found if other else evolve(wrong_value(row, case.unknown, message), code="XP102")


def choice_with_a_value(case: Case) -> Suggestion | None:
    """Handle a choice that stands alone, but has a value: `bf16 = true`, and `bf16.enabled` of deepspeed.json."""
    name = case.name.removesuffix(".enabled") if case.name in ("bf16.enabled", "fp16.enabled") else case.name
    path = schema.bare_choices().get(name)
    if path is None:
        return None
    message, value = f"`{name[:60]}` is a choice of `{path}`, and takes no value", case.typed.strip('"').lower()
    if name == "reward" and (known := reward(case.typed)) is not None:
        return Suggestion("XP104", message, help=f"write `rewards = [{known}]`, which `method` grpo, rloo reads")
    if value in NO:
        text = case.unknown.label.source.text.lower()
        if name == "bf16" and not re.search(r"\bfp16|float16|half|fp32|float32|fp8|mixed_precision|precision", text):
            help = "write `fp32`: without bf16, weights and gradients are computed in fp32"
            return Suggestion("XP104", message, help=help, edit="fp32", replaces_value=True)
        return Suggestion("XP104", message, help=f"leave `{name}` out: `{path}` names the only choice that is used")
    if value == "auto":
        return Suggestion("XP104", message, help=f"leave `{name}` out: without it, xpc chooses `{path}`")
    stated = [one for one in re.split(r"[\s,]+", value) if one in schema.BY_PATH[path].choices]
    chosen = stated[0] if stated and "offload" not in value else name  # `fsdp = "hybrid_shard auto_wrap"`
    form = f"`{path.rpartition('.')[2]} = {chosen}`"
    if chosen != name:
        return Suggestion("XP104", message, help=f"write {form}")
    help = advice(f"{name} {case.typed}", "") or f"write `{name}` alone, or {form}"
    # no edit for `wandb = myproj` and `zero3 = cpu`: the choice alone would lose the project and the offload
    edit = name if value in (*YES, "") else None
    return Suggestion("XP104", message, help=help, edit=edit, replaces_value=True)
