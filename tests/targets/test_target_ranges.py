"""Every number that an escape takes has a range, or a reason for having none; the edges are tried by the proofs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from xpc.compiler import targets
from xpc.compiler.methods import METHODS
from xpc.compiler.resolve import extras
from xpc.compiler.rules import every
from xpc.compiler.targets import Target

NUMBERS = {"int", "float"}


def load(name: str) -> Target:
    target = targets.load(name)
    assert target is not None
    return target


def words(kind: str) -> set[str]:
    return {word.strip() for word in kind.split("|")}


def numbers(target: Target) -> Iterator[tuple[str, str]]:
    """Every method with each of the numbers that `extra trl` may hold for it."""
    for method in METHODS:
        if target.refused(method) is None:
            fields = target.fields(target.config(method))
            for name in sorted(extras.legal_names(target, "trl", method)):
                if words(fields[name].type) & NUMBERS:
                    yield method, name


@pytest.mark.parametrize("name", targets.names())
def test_every_number_has_a_range_or_a_reason(name: str) -> None:
    target = load(name)
    found = list(numbers(target))
    assert len(found) > 60
    for method, one in found:
        assert bool(target.legal(method, one)) != bool(target.free(method, one)), (method, one)
    codes = {rule.code for rule in every()}
    for method, one in found:
        reason = target.free(method, one)
        assert reason is None or (reason.split()[0] in codes if reason.startswith("XP") else len(reason) > 20), one


@pytest.mark.parametrize("name", targets.names())
def test_every_range_and_reason_is_of_a_name_that_can_be_written(name: str) -> None:
    target = load(name)
    policy = target.table["policy"]
    known = {f"{head}{one}" for method in METHODS if target.refused(method) is None
             for one in extras.legal_names(target, "trl", method) for head in ("", f"{method}.")}  # fmt: skip
    known |= {f"{file}.{one}" for file in ("accelerate", "deepspeed") for one in extras.legal_names(target, file)}
    for part in ("legal", "free"):
        table = policy[part]
        assert isinstance(table, dict)
        assert not set(table) - known


@pytest.mark.parametrize("name", targets.names())
def test_a_launch_number_without_a_range_does_not_exist(name: str) -> None:
    target = load(name)
    for file in ("accelerate", "deepspeed"):
        for key, record in target.launch_keys(file).items():
            if extras.owner(file, key) is None and words(str(record["type"])) & NUMBERS:
                assert {**record, **target.legal(file, key)}.keys() & {"low", "above", "high"}, key


@pytest.mark.parametrize("name", targets.names())
def test_the_default_is_within_the_range_and_what_lies_outside_is_refused(name: str) -> None:
    target = load(name)
    for method, one in numbers(target):
        legal, field = target.legal(method, one), target.fields(target.config(method))[one]
        if field.effective is not None:
            assert extras.wrong_value(target, "trl", one, field.effective, method) is None, one
        whole = "float" not in words(field.type)
        for limit, step in (("low", -1), ("above", 0), ("high", 1), ("below", 0), ("other_than", 0)):
            bound = legal.get(limit)
            if isinstance(bound, int | float):
                beyond = bound + step if whole else float(bound) + step
                said = extras.wrong_value(target, "trl", one, beyond, method)
                assert str(bound) in str(said), (one, limit, said)
                within = extras.wrong_value(target, "trl", one, bound if whole else float(bound), method)
                assert (within is None) is (step != 0), (one, limit, within)


def test_a_range_in_words() -> None:
    target = load("trl-0.18")
    assert extras.wrong_value(target, "trl", "torch_empty_cache_steps", 0) == "a number of at least 1"
    assert extras.wrong_value(target, "trl", "label_smoothing_factor", 1.0) == "a number of at least 0 and below 1"
    said = extras.wrong_value(target, "trl", "f_alpha_divergence_coef", 0.0, "dpo")
    assert said == "a number from -1000 to 1000 and other than 0"
    assert extras.wrong_value(target, "trl", "label_pad_token_id", -1, "orpo") == "-100"
    assert extras.wrong_value(target, "trl", "label_pad_token_id", -1, "kto") is None
    assert extras.wrong_value(load("trl-1.16"), "trl", "pad_to_multiple_of", "8") == "a number from 1 to 1048576"
    assert extras.wrong_value(load("trl-1.16"), "trl", "include_num_input_tokens_seen", "some") is not None
    assert extras.wrong_value(load("trl-1.16"), "trl", "include_num_input_tokens_seen", True) is None
    assert extras.wrong_value(load("trl-1.16"), "trl", "include_num_input_tokens_seen", 1) is not None


def test_lists() -> None:
    target = load("trl-1.16")
    for good in ([-1.0, 1.0], [0, 5]):
        assert extras.wrong_value(target, "trl", "reward_clip_range", good, "rloo") is None
    for bad in ([1.0], [1.0, -1.0], ["a", "b"], 3, [True, 2]):
        assert extras.wrong_value(target, "trl", "reward_clip_range", bad, "rloo") is not None
    assert extras.wrong_value(target, "trl", "label_names", ["labels"]) is None
    assert extras.wrong_value(target, "trl", "label_names", "labels") is not None
    assert extras.wrong_value(target, "trl", "label_names", [1]) is not None
