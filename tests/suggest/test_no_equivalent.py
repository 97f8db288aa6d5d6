"""The list of names without an equivalent (no_equivalent.txt) agrees with the language, the importers and TRL: no name
in it is something that a spec can say, and each name has one reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compile_support import checked
from interpreters import ROOT, interpreter

from xpc.compiler import stacks
from xpc.compiler.importing.keys import OUTCOMES, load
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.schema import ADAPTERS, BY_PATH, CLAUSES
from xpc.compiler.suggest import no_equivalent

KINDS = ("none", "left", "family")
NO_TRAINER = "the stack has no such trainer"
NO_LOSS = "no trainer of the three stacks has this loss"
NO_OPTIMIZER = "`optim` of transformers has no such optimizer, on none of the three stacks"
FRAGMENT = re.compile(r"(?:^|\s)(\w+)(?: [-\w\"{}.]+)?\(([^()]*)\)")
"""Matches a clause with its settings in an advice, such as `method grpo(level=sequence)`."""


def names(kind: str) -> dict[str, str]:
    """Map each name of a kind, reduced to its letters, to the reason why it has no equivalent."""
    return no_equivalent._table(kind)


def letters(*words: str) -> str:
    return no_equivalent._letters(" ".join(words))


def stated_names() -> Iterator[tuple[str, str]]:
    """Yield a pair for everything that a spec can say: its name, as no_equivalent.txt would write it, and the path of
    its setting or choice.
    """
    for path, row in BY_PATH.items():
        yield letters(path), path
        for name in row.args:
            yield letters(name), path
        for choice in row.choices:
            yield letters(row.name, choice), path
            yield letters(path, choice), path
    for stack in map(stacks.load, stacks.names()):
        for method in METHODS:
            yield letters("method", method), "method"
            for loss in stack.losses(method):
                yield letters("loss", loss), f"method {method}"
                yield letters(f"method {method} loss", loss), f"method {method}"
        for optimizer in stack.optimizers:
            yield letters("optimizer", optimizer), "optimizer"


def test_nothing_that_a_spec_can_say_has_no_equivalent() -> None:
    none, known = names("none"), dict(stated_names())
    assert len(known) > 600  # settings, arguments, choices, losses and optimizers
    assert {name: (none[name], known[name]) for name in none.keys() & known.keys()} == {}


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_has_one_reason_in_one_sentence(kind: str) -> None:
    found: dict[str, set[str]] = {}
    for phrase, reason in no_equivalent.phrases(kind):
        found.setdefault(no_equivalent._letters(phrase), set()).add(reason)
    assert {name: reasons for name, reasons in found.items() if len(reasons) > 1} == {}
    for reason in {one for reasons in found.values() for one in reasons}:
        assert 10 < len(reason) < 200, reason
        assert not reason.endswith("."), reason
        assert ". " not in reason, reason


def test_the_settings_in_an_advice_exist() -> None:
    wrong = []
    clauses = {**{one: one for one in CLAUSES}, **dict.fromkeys(ADAPTERS, "lora")}
    fragments = {one for _, text in no_equivalent.phrases("instead") for one in re.findall(r"`([^`]+)`", text)}
    for fragment in sorted(fragments):
        for typed, inside in FRAGMENT.findall(fragment):
            clause = clauses.get(typed, "extra")
            if clause == "extra":
                continue
            below = {path.rpartition(".")[2] for path in BY_PATH if path.startswith(f"{clause}.")}
            wrong += [(fragment, one) for one in re.findall(r"(?:^|,\s*)(\w+)\s*=", inside) if one not in below]
    assert wrong == []


def keys() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The rows of every importer's key table, as tuples: the source, the key, and what the import does with the key."""
    for path in Path(ROOT, "compiler", "importing").glob("*/keys.toml"):
        for name, row in load(f"{path.parent.name}/keys.toml").items():
            yield path.parent.name, name, {one: getattr(row, one) for one in OUTCOMES if getattr(row, one)}


def test_a_key_that_an_importer_translates_has_an_equivalent() -> None:
    none, seen = names("none"), 0
    for source, name, value in keys():
        if source in ("axolotl", "llamafactory", "trl", "torchtune"):
            seen += 1
            if "setting" in value:
                assert no_equivalent._letters(name) not in none, (source, name)
        for outcome in ("refused", "irrelevant"):
            if outcome in value:
                assert len(value[outcome]) > 5, (source, name)
                assert not value[outcome].endswith("."), (source, name)
    assert seen > 500


def installed(target: str, library: str) -> Path:
    """The folder of a library in the environment of a stack."""
    (found,) = Path(os.path.dirname(os.path.dirname(interpreter(target)))).glob(f"lib/python3*/site-packages/{library}")
    return found


def trainers(target: str) -> set[str]:
    """The trainers of a stack's TRL. Each is named by its module, such as `onlinedpo`."""
    library = installed(target, "trl")
    found = {path.stem.removesuffix("_trainer") for path in library.glob("trainer/*_trainer.py")}
    found |= {path.name for path in library.glob("experimental/*") if path.is_dir()}
    return {no_equivalent._letters(one) for one in found}


@pytest.mark.parametrize("target", stacks.names())
def test_a_trainer_that_the_stack_has_is_not_called_absent(target: str) -> None:
    none = names("none").items()
    absent = {name.removeprefix("method").removeprefix("loss") for name, why in none if why in (NO_TRAINER, NO_LOSS)}
    assert "dpo" in trainers(target)
    assert absent & trainers(target) == set()


@pytest.mark.parametrize("target", stacks.names())
def test_an_optimizer_of_transformers_is_not_called_absent(target: str) -> None:
    absent = {name.removeprefix("optimizer") for name, why in names("none").items() if why == NO_OPTIMIZER}
    text = (installed(target, "transformers") / "training_args.py").read_text(encoding="utf-8")
    optimizers = {letters(one) for one in re.findall(r"^    [A-Z0-9_]+ = \"(\w+)\"", text, re.MULTILINE)}
    assert "adamwtorch" in optimizers
    assert "lamb" in absent
    assert absent & optimizers == set()


@pytest.mark.parametrize(
    "line",
    [
        *(f"method {one}" for one in ("sdft", "sdpo", "dppo", "papo", "gfpo", "tpo", "minillm", "async_grpo", "gmpo")),
        *(f"adapter = {one}" for one in ("ia3", "lokr", "boft", "shira")),
        "peft_type = ADALORA",
    ],
)
def test_another_algorithm_is_not_the_nearest_name(line: str) -> None:
    """`sdpo` is not dpo, and the adapter `ia3` is not lora: an edit would compile to another experiment."""
    found = checked(f"xpc 1\ntrain qwen2.5-3b on alpaca\n{line}\nhardware 8 x h100-80gb\n").problems
    (error,) = [one for one in found if one.severity == "error"]
    assert "it has no equivalent, because " in (error.help or "")
    assert error.edits == ()
