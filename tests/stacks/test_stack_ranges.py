"""Each numeric argument that `extra` accepts has a legal range, or a reason why it has none. Proofs try the limits of
the ranges.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from interpreters import stack_of

from xpc.compiler import stacks
from xpc.compiler.language import extras
from xpc.compiler.language.methods import METHODS
from xpc.compiler.rules import every
from xpc.compiler.stacks import Stack

NUMBERS = {"int", "float"}


def words(kind: str) -> set[str]:
    return {word.strip() for word in kind.split("|")}


def policy(name: str) -> str:
    """The path of the file that has the ranges of a stack."""
    return f"compiler/stacks/{name}/policy.toml"


def numbers(stack: Stack) -> Iterator[tuple[str, str]]:
    """Yield pairs: a numeric argument that `extra trl` accepts, and a method that has this argument."""
    for method in METHODS:
        if stack.refused(method) is None:
            fields = stack.fields(stack.config(method))
            for name in sorted(extras.legal_names(stack, "trl", method)):
                if words(fields[name].type) & NUMBERS:
                    yield method, name


@pytest.mark.parametrize("name", stacks.names())
def test_every_number_has_a_range_or_a_reason(name: str) -> None:
    stack = stack_of(name)
    found = list(numbers(stack))
    assert len(found) > 60
    open_ = [".".join(one) for one in found if bool(stack.legal(*one)) == bool(stack.free(*one))]
    assert not open_, f"{policy(name)} needs either a range in [legal] or a reason in [free] for {', '.join(open_)}"
    codes = {rule.code for rule in every()}
    for method, one in found:
        reason = stack.free(method, one)
        assert reason is None or (reason.split()[0] in codes if reason.startswith("XP") else len(reason) > 20), one


@pytest.mark.parametrize("name", stacks.names())
def test_every_range_and_reason_is_of_a_name_that_can_be_written(name: str) -> None:
    stack = stack_of(name)
    output = stack.table["policy"]
    known = {f"{head}{one}" for method in METHODS if stack.refused(method) is None
             for one in extras.legal_names(stack, "trl", method) for head in ("", f"{method}.")}  # fmt: skip
    known |= {f"{file}.{one}" for file in ("accelerate", "deepspeed") for one in extras.legal_names(stack, file)}
    for part in ("legal", "free"):
        table = output[part]
        assert isinstance(table, dict)
        removed = sorted(set(table) - known)
        assert not removed, f"{policy(name)}: no spec can write {', '.join(removed)} any more; remove it from [{part}]"


@pytest.mark.parametrize("name", stacks.names())
def test_a_launch_number_without_a_range_does_not_exist(name: str) -> None:
    stack = stack_of(name)
    for file in ("accelerate", "deepspeed"):
        for key, record in stack.launch_keys(file).items():
            if extras.owner(file, key) is None and words(str(record["type"])) & NUMBERS:
                assert {**record, **stack.legal(file, key)}.keys() & {"low", "above", "high"}, key


@pytest.mark.parametrize("name", stacks.names())
def test_the_default_is_within_the_range_and_what_lies_outside_is_refused(name: str) -> None:
    stack = stack_of(name)
    for method, one in numbers(stack):
        legal, field = stack.legal(method, one), stack.fields(stack.config(method))[one]
        if field.effective is not None:
            assert extras.wrong_value(stack, "trl", one, field.effective, method) is None, one
        whole = "float" not in words(field.type)
        for limit, step in (("low", -1), ("above", 0), ("high", 1), ("below", 0), ("other_than", 0)):
            bound = legal.get(limit)
            if isinstance(bound, int | float):
                beyond = bound + step if whole else float(bound) + step
                output = extras.wrong_value(stack, "trl", one, beyond, method)
                assert str(bound) in str(output), (one, limit, output)
                within = extras.wrong_value(stack, "trl", one, bound if whole else float(bound), method)
                assert (within is None) is (step != 0), (one, limit, within)


def test_a_range_is_written_in_words() -> None:
    stack = stack_of("trl-0.18")
    assert extras.wrong_value(stack, "trl", "torch_empty_cache_steps", 0) == "a number of at least 1"
    assert extras.wrong_value(stack, "trl", "label_smoothing_factor", 1.0) == "a number of at least 0 and below 1"
    output = extras.wrong_value(stack, "trl", "f_alpha_divergence_coef", 0.0, "dpo")
    assert output == "a number from -1000 to 1000 and other than 0"
    assert extras.wrong_value(stack, "trl", "label_pad_token_id", -1, "orpo") == "-100"
    assert extras.wrong_value(stack, "trl", "label_pad_token_id", -1, "kto") is None
    assert extras.wrong_value(stack_of("trl-1.16"), "trl", "pad_to_multiple_of", "8") == "a number from 1 to 1048576"
    assert extras.wrong_value(stack_of("trl-1.16"), "trl", "include_num_input_tokens_seen", "some") is not None
    assert extras.wrong_value(stack_of("trl-1.16"), "trl", "include_num_input_tokens_seen", True) is None
    assert extras.wrong_value(stack_of("trl-1.16"), "trl", "include_num_input_tokens_seen", 1) is not None


def test_lists() -> None:
    stack = stack_of("trl-1.16")
    for good in ([-1.0, 1.0], [0, 5]):
        assert extras.wrong_value(stack, "trl", "reward_clip_range", good, "rloo") is None
    for bad in ([1.0], [1.0, -1.0], ["a", "b"], 3, [True, 2]):
        assert extras.wrong_value(stack, "trl", "reward_clip_range", bad, "rloo") is not None
    assert extras.wrong_value(stack, "trl", "label_names", ["labels"]) is None
    assert extras.wrong_value(stack, "trl", "label_names", "labels") is not None
    assert extras.wrong_value(stack, "trl", "label_names", [1]) is not None


def test_a_switch_of_deepspeed_may_have_one_legal_value() -> None:
    """In deepspeed 0.16.8, a run with this switch ends in its first step (TypeError)."""
    key = "zero_optimization.stage3_use_all_reduce_for_fetch_params"
    for stack in map(stacks.load, stacks.names()):
        old = stack.pins["deepspeed"] == "0.16.8"
        assert extras.wrong_value(stack, "deepspeed", key, True) == ("false" if old else None)
        assert extras.wrong_value(stack, "deepspeed", key, False) is None
