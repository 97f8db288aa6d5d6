"""trainer_args.json has one type, declared in runtime/core/payload*.py. What the compiler writes has this type, and the
runtime reads it as this type.
"""

import json
import os
import types
import typing

import pytest
from compile_support import REPOSITORY, checked_once, placed
from rule_cases import CASES

from xpc.compiler.lower.payload import payload
from xpc.runtime.core.payload import Payload

GOLDEN = os.path.join(REPOSITORY, "golden", "bundles")
BUNDLES = sorted(name for name in os.listdir(GOLDEN) if os.path.exists(f"{GOLDEN}/{name}/trainer_args.json"))


def faults(value, kind, location="payload"):
    """Compare a value with the type `kind`. Return the path of each piece of the value that has another type."""
    origin = typing.get_origin(kind)
    if kind is typing.Any:
        return []
    if origin in (typing.Union, types.UnionType):
        each = [faults(value, one, location) for one in typing.get_args(kind)]
        return [] if [] in each else min(each, key=len)
    if origin is typing.Literal:
        return [] if value in typing.get_args(kind) else [f"{location} is {value!r}"]
    if origin is list:
        if not isinstance(value, list):
            return [f"{location} is {value!r}"]
        return [
            one for n, item in enumerate(value) for one in faults(item, typing.get_args(kind)[0], f"{location}[{n}]")
        ]
    if typing.is_typeddict(kind):
        if not isinstance(value, dict):
            return [f"{location} is {value!r}"]
        hints = typing.get_type_hints(kind)
        wrong = [f"{location} has {name}" for name in set(value) - set(hints)]
        wrong += [f"{location} lacks {name}" for name in kind.__required_keys__ - set(value)]
        return wrong + [
            one for name in set(value) & set(hints) for one in faults(value[name], hints[name], f"{location}.{name}")
        ]
    if kind is float:
        return [] if type(value) in (int, float) else [f"{location} is {value!r}"]
    wanted = dict if origin is dict else kind
    return [] if type(value) is wanted or (value is None and wanted is type(None)) else [f"{location} is {value!r}"]


@pytest.mark.parametrize("name", BUNDLES)
def test_golden_bundles_are_of_the_type(name):
    with open(f"{GOLDEN}/{name}/trainer_args.json", encoding="utf-8") as handle:
        assert not faults(json.load(handle), Payload)


@pytest.mark.slow
def test_what_every_accepted_case_compiles_to_is_of_the_type(tmp_path_factory):
    seen = 0
    for case in CASES[::3]:
        spec = checked_once(case.accepted, placed(case.files, lambda: tmp_path_factory.mktemp("payload"))).spec
        if spec is not None:
            assert not faults(json.loads(json.dumps(payload(spec))), Payload), case.title
            seen += 1
    assert seen > 0.8 * len(CASES[::3])


def test_what_is_not_of_the_type_is_found():
    with open(f"{GOLDEN}/{BUNDLES[0]}/trainer_args.json", encoding="utf-8") as handle:
        plan = json.load(handle)
    del plan["run"]["gbs"]
    plan["data"]["seed"] = "1"
    plan["model"]["more"] = None
    assert set(faults(plan, Payload)) == {"payload.run lacks gbs", "payload.data.seed is '1'", "payload.model has more"}
