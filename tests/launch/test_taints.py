"""The rule XP912 accepts the same taints and labels as kubectl, as far as kubectl checks them before it contacts a
server.
"""

from __future__ import annotations

import shutil
import subprocess

import pytest
from patience import HUNG

from xpc.compiler.rules.strategy.launch_environment import label_fault, taint_fault

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")]

KEYS = ("gpu", "nvidia.com/gpu", "a_b.c-d", "a" * 63)
WRONG_KEYS = ("-gpu", "gpu.", "NVIDIA.com/gpu", "a/b/c", "/gpu", "nvidia.com/", "a" * 64, "g u")
VALUES = ("present", "", "v1.2_3-x", "A" * 63)
WRONG_VALUES = ("-x", "x.", "a b", "a/b", "A" * 64)
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
WRONG_EFFECTS = ("Never", "noschedule", "")


def takes(kind: str, text: str) -> bool:
    """Whether `kubectl taint` or `kubectl label` accepts the argument. After accepting it, kubectl tries to contact a
    server and finds no server.
    """
    done = subprocess.run(
        ["kubectl", "--server=http://127.0.0.1:9", kind, "--", "nodes", "n", text],
        text=True, capture_output=True, timeout=HUNG,
    )  # fmt: skip
    assert done.returncode, done.stdout
    refused = "was refused" in done.stderr  # the connection was refused, not the argument
    assert refused or "invalid" in done.stderr or "required" in done.stderr, done.stderr
    return refused


def combinations(keys: tuple[str, ...], values: tuple[str, ...]) -> list[str]:
    """The arguments to try: each key is combined with the first value, and the first key with each value."""
    return [*(f"{key}={values[0]}" for key in keys), *(f"{keys[0]}={value}" for value in values)]


def test_labels_are_those_of_kubectl() -> None:
    for label in combinations(KEYS, VALUES):
        assert (label_fault(label), takes("label", label)) == ("", True), label
    # kubectl does not check the key of a label (the server does), so labels with a wrong key are left out.
    for label in ("a100", *combinations(KEYS[:1], WRONG_VALUES)[1:]):
        assert label_fault(label), label
        assert not takes("label", label), label


def test_taints_are_those_of_kubectl() -> None:
    """The rule accepts the taints that kubectl accepts. kubectl has the same conditions for the key of a taint and the
    key of a label.
    """
    for taint in ("gpu:NoSchedule", *(f"{one}:{effect}" for effect in EFFECTS for one in combinations(KEYS, VALUES))):
        assert (taint_fault(taint), takes("taint", taint)) == ("", True), taint
    wrong = [f"gpu:{one}" for one in WRONG_EFFECTS]
    wrong += [
        f"{one}:NoSchedule"
        for one in (*combinations(WRONG_KEYS, VALUES[:1])[:-1], *combinations(KEYS[:1], WRONG_VALUES)[1:])
    ]
    for taint in wrong:
        assert taint_fault(taint), taint
        assert not takes("taint", taint), taint
