"""`xpc verify BUNDLE --run OUT`: the summary of a run is compared with its bundle."""

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
    """The summary of a run that matches the bundle."""
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
    ("changes", "message"),
    [
        ({"bundle": "sha256:0"}, "the run used another bundle"),
        ({"world": 1}, "1 processes, but the bundle asks for 2"),
        ({"steps": 9, "sequences": 72}, "9 steps, but the bundle asks for 10"),
        ({"sequences": 40}, "40 sequences, but 10 steps have 8 each"),
        ({"versions": {"trl": "1.15.0"}}, "trl 1.15.0, but the bundle pins 1.16.0"),
        ({"versions": {"trl": None}}, "trl was not installed, but the bundle pins 1.16.0"),
        ({"arguments": {"learning_rate": 1e-4}}, "learning_rate was 0.0001, but the bundle states "),
        ({"arguments": {"bf16": True}}, "bf16 was true, but the bundle states false"),
    ],
    ids=lambda one: str(one)[:40],
)
def test_differences_are_named(place, changes, message):
    status, out = verified(place, **changes)
    assert (status, message in out, "out is not what x.bundle asks for" in out) == (1, True, True), out


def test_excluded_rows_may_shorten_a_run(place):
    assert verified(place, steps=9, sequences=72, data={"left_out": 4})[0] == 0


def test_missing_and_older_summaries_are_refused(place):
    done = xpc("verify", "x.bundle", "--run", "nowhere", cwd=str(place))
    assert (done.returncode, b"a run writes it when it ends" in done.stderr) == (2, True)
    put(place, {"out/summary.json": "{}"})
    done = xpc("verify", "x.bundle", "--run", "out", cwd=str(place))
    assert (done.returncode, b"older bundle" in done.stderr) == (2, True)
    assert not os.path.exists(place / "out" / "xpc_run.json")
