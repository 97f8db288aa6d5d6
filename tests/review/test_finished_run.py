"""`xpc verify BUNDLE --run OUT`: what a run noted, beside what its bundle asks for."""

import json
import os

import pytest
from case_support import spec
from compile_support import put, xpc

from xpc.compiler.review.finished_run import _digest
from xpc.compiler.review.installed import pins

ROWS = b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n' * 40


@pytest.fixture
def place(tmp_path):
    text = spec(
        train='qwen2.5-3b on "rows.jsonl" for 2 epochs', hardware="2 x cpu", precision="fp32", batch="gbs=8 micro=2"
    )
    put(tmp_path, {"x.xp": text, "rows.jsonl": ROWS})
    assert xpc("compile", "x.xp", cwd=str(tmp_path)).returncode == 0
    return tmp_path


def noted(place):
    """What a run of the bundle that did as it was asked notes."""
    bundle = str(place / "x.bundle")
    versions = pins(f"{bundle}/requirements.txt")
    plan = json.loads((place / "x.bundle" / "trainer_args.json").read_text())
    seen = {**plan["arguments"], "report_to": [], "eos_token": "<EOS_TOKEN>", "deepspeed": f"{bundle}/deepspeed.json"}
    return {
        "bundle": _digest(bundle), "world": 2, "steps": 10, "sequences": 80, "tokens": 640.0, "data": {"left_out": 0},
        "versions": {**versions, "torch": f"{versions['torch']}+cpu"},
        "arguments": seen,
    }  # fmt: skip


def verified(place, **changes):
    found = noted(place)
    found["arguments"] |= changes.pop("arguments", {})
    found["versions"] |= changes.pop("versions", {})
    put(place, {"out/summary.json": json.dumps({**found, **changes})})
    done = xpc("verify", "x.bundle", "--run", "out", cwd=str(place))
    assert b"broke the compiler" not in done.stderr, done.stderr
    return done.returncode, done.stdout.decode() + done.stderr.decode()


def test_run_that_matches_its_bundle_has_no_finding(place):
    assert verified(place) == (0, "out is what x.bundle asks for: 10 steps, 80 sequences, 640 tokens\n")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"bundle": "sha256:0"}, "the run is of another bundle"),
        ({"world": 1}, "1 processes, where the bundle asks for 2"),
        ({"steps": 9, "sequences": 72}, "9 steps, where the bundle asks for 10"),
        ({"sequences": 40}, "40 sequences, where 10 steps are of 8 each"),
        ({"versions": {"trl": "1.15.0"}}, "trl 1.15.0, where the bundle pins 1.16.0"),
        ({"versions": {"trl": None}}, "trl was not installed, where the bundle pins 1.16.0"),
        ({"arguments": {"learning_rate": 1e-4}}, "learning_rate was 0.0001, where the bundle states "),
        ({"arguments": {"bf16": True}}, "bf16 was true, where the bundle states false"),
    ],
    ids=lambda one: str(one)[:40],
)
def test_what_differs_is_named(place, changes, told):
    status, said = verified(place, **changes)
    assert (status, told in said, "out is not what x.bundle asks for" in said) == (1, True, True), said


def test_rows_that_were_left_out_make_a_run_shorter(place):
    assert verified(place, steps=9, sequences=72, data={"left_out": 4})[0] == 0


def test_a_folder_without_a_summary_and_one_of_an_older_bundle_are_refused(place):
    done = xpc("verify", "x.bundle", "--run", "nowhere", cwd=str(place))
    assert (done.returncode, b"a run writes it when it ends" in done.stderr) == (2, True)
    put(place, {"out/summary.json": "{}"})
    done = xpc("verify", "x.bundle", "--run", "out", cwd=str(place))
    assert (done.returncode, b"older bundle" in done.stderr) == (2, True)
    assert not os.path.exists(place / "out" / "xpc_run.json")
