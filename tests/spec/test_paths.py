"""If code reads a setting by a misspelt path, or by a getter for another kind of value, mypy reports it. At run time,
both raise an exception.
"""

import os
import subprocess
import sys

import pytest
from compile_support import REPOSITORY, SEED, checked, checked_once, placed
from rule_cases import CASES

from xpc.compiler.language import build
from xpc.compiler.language.codes import report
from xpc.compiler.language.kinds import Amount, Weighted
from xpc.compiler.language.schema import BY_PATH, TABLE
from xpc.compiler.spec import Spec
from xpc.compiler.spec.checked import CheckedSpec
from xpc.grammar.record import evolve, fields

TYPES = {"Flag": bool, "Integer": int, "Real": float, "Text": str, "Amount": Amount}
KINDS = {kind: getter for getter, kinds in build.GETTERS.items() for kind in kinds}
MISTAKES = (
    'spec.flag("memory.chekpointing")',
    'spec.flag("optimizer")',
    'spec.get("method.bta")',
    'spec.written("lr")',
    'spec.location("batch.bgs")',
    'spec.integer("optimizer.lr")',
    'spec.text("batch.gbs")',
    'spec.names("method.loss")',
    "lower(spec)",
)


def test_the_paths_are_those_of_the_table():
    with open(build.OUT, encoding="utf-8") as handle:
        assert handle.read() == build.source(), "run: make docs"


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    found = checked(SEED, tmp_path_factory.mktemp("paths")).spec
    return Spec(**{name: getattr(found, name) for name in fields(Spec)})


@pytest.mark.parametrize("getter", ["get", "written", "label", "location", "flag", "integer", "text", "names"])
def test_misspelled_path_is_an_error_and_not_an_unset_value(spec, getter):
    with pytest.raises(KeyError):
        getattr(spec, getter)("memory.chekpointing")


def test_a_flag_is_not_read_off_another_kind(spec):
    with pytest.raises(TypeError):
        spec.flag("optimizer")
    with pytest.raises(TypeError):
        spec.flag("batch.gbs")


@pytest.mark.slow
def test_every_value_has_the_type_of_its_getter(tmp_path_factory):
    seen = set()
    for case in CASES:
        found = checked_once(case.accepted, placed(case.files, lambda: tmp_path_factory.mktemp("types"))).spec
        for path, value in found.values.items() if found is not None else ():
            getter = KINDS[BY_PATH[path].kind.name]
            if value.value is not None and getter in TYPES:
                assert type(value.value) is TYPES[getter], (path, value.value)
            elif getter in ("Reals", "Weighted"):
                inner = float if getter == "Reals" else Weighted
                assert all(type(one) is inner for one in value.value), (path, value.value)
            seen.add(path)
    assert len(seen) > 0.8 * len(TABLE)


def test_a_spec_with_an_error_is_no_checked_spec(spec):
    wrong = report("XP113", "`trl-9` is not a target of this version", None)
    with pytest.raises(ValueError, match="has errors"):
        CheckedSpec.of(spec, [wrong])
    assert checked("xpc 1\n\ntrain qwen2.5-0.5b on ultrachat for 1 epochs\ntarget trl-9\n").spec is None


def test_a_changed_checked_spec_keeps_its_findings(spec):
    note = report("XP190", "the spec states no hardware", None)
    assert evolve(CheckedSpec.of(spec, [note]), name="other").problems == (note,)


@pytest.mark.slow
def test_strict_mypy_refuses_each_mistake(tmp_path):
    """mypy checks a file in which each line has one mistake, except two correct lines. It reports exactly the lines
    with mistakes.
    """
    imports = (("lower", "lower"), ("spec", "Spec"), ("spec.checked", "CheckedSpec"))
    lines = [*(f"from xpc.compiler.{module} import {name}" for module, name in imports), "", ""]
    lines += ["def read(spec: Spec, checked: CheckedSpec) -> None:"]
    first = len(lines) + 1
    lines += [f"    {one}" for one in (*MISTAKES, 'spec.flag("memory.checkpointing")', "lower(checked)")]
    (tmp_path / "mistakes.py").write_text("\n".join(lines) + "\n")
    packages = tmp_path / "root" / "xpc"
    packages.mkdir(parents=True)
    for name in ("grammar", "compiler", "runtime"):
        (packages / name).symlink_to(os.path.join(REPOSITORY, name))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", os.path.join(REPOSITORY, "pyproject.toml"),
         "--follow-imports", "silent", "mistakes.py"],
        cwd=tmp_path, env={**os.environ, "MYPYPATH": str(packages.parent)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert found == {first + n for n in range(len(MISTAKES))}, done.stdout
