"""For a run in fp8, the plan states the memory of a bf16 run as an upper bound, and no speed and no utilisation."""

from __future__ import annotations

import json

from case_support import spec
from compile_support import checked, compiled

from xpc.compiler.plan.from_spec import load_of, speed_of
from xpc.compiler.plan.load import Load


def load(precision: str) -> Load:
    found = checked(spec("model(compile)", "memory(checkpointing=false)", strategy="fsdp", precision=precision))
    assert found.spec is not None, found.problems
    made = load_of(found.spec)
    assert isinstance(made, Load)
    assert (speed_of(found.spec, made) is None) == (precision == "fp8")
    return made


def test_memory_in_fp8_is_that_of_bf16_at_most() -> None:
    eight, half = load("fp8"), load("bf16")
    assert (eight.at_most, half.at_most) == (True, False)
    assert (eight.weight, eight.element, eight.moments) == (half.weight, half.element, half.moments)


def test_a_run_in_fp8_reports_no_utilisation() -> None:
    plan = json.loads(compiled(spec("model(compile)", strategy="fsdp", precision="fp8"))["trainer_args.json"])
    assert plan["run"]["flops"]["peak"] is None
