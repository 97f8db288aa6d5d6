"""FSDP2: the number of processes that load a checkpoint may differ from the number of processes that saved it, and the
weights and optimizer states stay the same, for each kind of checkpoint. Gradients are right if processes use different
weights.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from forks import shared
from process_groups import together
from stacks import interpreter
from tiers import EACH_STACK, nightly_but

from xpc.compiler import stacks

pytestmark = pytest.mark.slow
WITH_FSDP2 = [name for name in stacks.names() if stacks.load(name).facts.fsdp2]


@pytest.mark.parametrize(("world", "copies"), [(2, 1), pytest.param(4, 2, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("target", WITH_FSDP2)
def test_other_processes_load_what_some_have_saved(target: str, world: int, copies: int, tmp_path: Path) -> None:
    import torch

    for phase, processes, number in (("save", world, copies), ("load", 3, 1)):
        together(interpreter(target), "fsdp_states.py", processes, phase, str(tmp_path), str(number))
    for kind in ("FULL_STATE_DICT", "SHARDED_STATE_DICT"):
        was, now = (torch.load(tmp_path / f"{kind}-{phase}.pt") for phase in ("save", "load"))
        for part in ("weights", "states"):
            torch.testing.assert_close(now["loaded"][part], was["loaded"][part], rtol=0, atol=0)
            torch.testing.assert_close(now["trained"][part], was["trained"][part], rtol=1e-5, atol=1e-6)
        assert not torch.equal(was["trained"]["weights"]["0.weight"], was["loaded"]["weights"]["0.weight"])


@pytest.mark.parametrize("target", WITH_FSDP2)
def test_a_gradient_that_one_process_lacks_counts_as_zero(target: str) -> None:
    """A process has no gradient for an expert to which none of its tokens is routed."""
    together(interpreter(target), "unused_weights.py", 2)


@pytest.mark.parametrize("target", WITH_FSDP2)
def test_a_reference_model_is_complete(target: str, tmp_path: Path) -> None:
    """On trl-0.24, only the first process loads the reference's weights, and trl cannot shard it by FSDP2."""
    together(interpreter(target), "reference_weights.py", 2, str(tmp_path / "model"))


KINDS = {"fsdp1": "SHARDED_STATE_DICT", "fsdp2": "SHARDED_STATE_DICT", "fsdp2_full": "FULL_STATE_DICT"}
"""Maps kinds of checkpoints to accelerate's state dict type. FSDP1's full checkpoints are missing, because they need a
GPU (torch 2.13 crashes on a CPU).
"""


@pytest.mark.parametrize("kind", nightly_but(KINDS, lambda kind: kind == "fsdp2"))
@pytest.mark.parametrize("target", EACH_STACK)
def test_adapters_are_restored_except_where_the_stack_loses_them(target: str, kind: str, tmp_path: Path) -> None:
    facts = stacks.load(target).facts
    if kind != "fsdp1" and not facts.fsdp2:
        pytest.skip("the stack's accelerate has no FSDP2")
    together(shared(target).python, "adapter_states.py", 2, kind.removesuffix("_full"), KINDS[kind], str(tmp_path))
    lost, _, trained = (tmp_path / "lost").read_text(encoding="utf-8").partition(" of ")
    assert trained == "8"
    assert (lost != "0") == (kind in facts.fsdp_adapters_lost), lost


@pytest.mark.nightly
@pytest.mark.parametrize("target", stacks.names())
def test_fsdp1_trains_the_same_without_the_original_parameters(target: str, tmp_path: Path) -> None:
    """With and without `fsdp_use_orig_params`, all weights change and the losses are equal.

    In accelerate#3256 the loss stayed constant: the optimizer updated the parameters that the model had before FSDP
    wrapped it, and the wrapped model did not use these any more.
    """
    runs = []
    for original in ("true", "false"):
        together(interpreter(target), "orig_params.py", 2, original, str(tmp_path))
        runs.append(json.loads((tmp_path / "moved").read_text(encoding="utf-8")))
    first, second = runs
    assert first == second
    assert first["moved"] == first["of"]
    assert first["losses"][-1] < first["losses"][0] - 0.5
