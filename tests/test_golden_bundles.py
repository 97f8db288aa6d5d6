"""Each golden bundle is what the compiler writes today. Every choice of the language is in at least one of them."""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache

import pytest

from tests.golden_bundles import GOLDEN, ROOT, SPECS, VERBATIM, compilation, decisions, kept
from xpc.compiler import stacks
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.language.strategies import OLD_STRATEGIES
from xpc.compiler.lower.trainer_files import readme
from xpc.runtime.core.conditions import enabled

once = cache(compilation)


def bundle(name):
    return once(name)[0]


def digest(data):
    return hashlib.sha256(data).hexdigest().encode()


@pytest.mark.parametrize("name", SPECS)
def test_bundle_is_as_kept(name):
    files, golden = decisions(bundle(name)), kept(name)
    assert sorted(files) == sorted(golden)
    for one, data in files.items():
        assert data == golden[one], f"{one} differs; `make golden` rewrites it"


@pytest.mark.parametrize("name", SPECS)
def test_the_trainer_is_the_runtime_byte_for_byte(name):
    trainer = {one: data for one, data in bundle(name).items() if one.startswith("trainer/")}
    assert {"trainer/main.py", "trainer/launcher.py", "trainer/README.md"} <= set(trainer)
    for one, data in trainer.items():
        with open(os.path.join(ROOT, "runtime", one.removeprefix("trainer/")), "rb") as handle:
            whole = handle.read()
        wanted = readme(whole, [path.removeprefix("trainer/") for path in trainer]) if one.endswith(".md") else whole
        if one == "trainer/enabled.py":
            # the enabled.py of a bundle lists only the features that the run uses
            wanted = enabled(whole.decode(), json.loads(bundle(name)["trainer_args.json"])).encode()
        assert data == wanted, one


@pytest.mark.parametrize("name", SPECS)
def test_a_line_of_the_runtime_changes_no_golden(name):
    files = bundle(name)
    edited = {one: data + b"# one line\n" if one.startswith("trainer/") or one in VERBATIM else data
              for one, data in files.items()}  # fmt: skip
    scripts = [one for one in files if one != "bundle.toml" and digest(files["run.sha256"]) in files[one]]
    # the digest of run.sha256 is in job scripts and in bundle.toml
    for listed in ("run.sha256", *scripts, "bundle.toml"):
        for one, data in files.items():
            edited[listed] = edited[listed].replace(digest(data), digest(edited[one]))
    assert edited != files
    assert decisions(edited) == kept(name)


@pytest.mark.parametrize("name", SPECS)
def test_only_programs_are_executable(name):
    base = os.path.join(GOLDEN, f"{name}.bundle")
    executable = {one for one in kept(name) if os.access(os.path.join(base, one), os.X_OK)}
    assert "launch.sh" in executable
    assert all(one.endswith(".sh") for one in executable)


def test_each_golden_bundle_has_a_spec():
    assert sorted(os.listdir(GOLDEN)) == sorted(f"{name}.bundle" for name in SPECS)


def test_every_choice_is_in_a_golden():
    plans = [json.loads(bundle(name)["trainer_args.json"]) for name in SPECS]
    specs = [once(name)[1].spec for name in SPECS]
    assert {plan["target"] for plan in plans} == set(stacks.names())
    assert {plan["method"]["name"] for plan in plans} == set(BY_PATH["method"].choices)
    assert {plan["lora"]["kind"] for plan in plans if plan["lora"]} >= {"lora", "oft", "vera"}
    assert {plan["lora"]["bits"] for plan in plans if plan["lora"]} >= {None, 4}
    assert any(plan["freeze"] for plan in plans)
    strategies = {spec.text("strategy") for spec in specs}
    assert strategies == set(BY_PATH["strategy"].choices) - set(OLD_STRATEGIES)
    assert {spec.text("launch") for spec in specs} == set(BY_PATH["launch"].choices)
