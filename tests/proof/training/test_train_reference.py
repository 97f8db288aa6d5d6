"""What is the reference model of a run that continues an adapter? On some stacks, the trainer takes a frozen copy of
the adapter; on the other stacks, it takes the base. And is the reference the same after a resume?

In the first step, a frozen copy still equals the policy, so every divergence and every implicit reward is 0.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from interpreters import OTHERS, methods_of
from method_runs import DATA, ONLINE_SETTINGS, Trained, Warm, small, tensors
from tiers import nightly_but

from xpc.compiler.stacks import DEFAULT, STACKS, load

pytestmark = pytest.mark.slow

METHODS = {
    "dpo": "method dpo",
    "precomputed": "method dpo(precompute)",
    "kto": "method kto",
    "grpo": f'method grpo(rewards="rewards.py:even", {ONLINE_SETTINGS})',
    "rloo": f'method rloo(rewards="rewards.py:even", {ONLINE_SETTINGS})',
}
VALUES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reference_values.py")
COPIES = [one for one in STACKS if load(one).facts.adapter_references]
KINDS = {"lora": "lora(rank=4, dropout=0)", "saved": "lora(rank=4, dropout=0, modules_to_save=[norm])",
         "qlora": "qlora(rank=4, dropout=0)"}  # fmt: skip


@pytest.fixture(scope="module")
def first(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Train an adapter of each kind in a short supervised run, and link it into the folder of the tiny model."""
    for kind, text in KINDS.items():
        cwd = tmp_path_factory.mktemp(kind)
        spec = small("method sft", text, method="sft").replace("lr=1e-3", "lr=5e-2")
        os.symlink(
            warm.train(spec, f"first-{kind}", DEFAULT, str(cwd)).out, os.path.join(warm.location, f"first-{kind}")
        )


def continued(warm: Warm, cwd: Path, name: str, kind: str, target: str = DEFAULT, strategy: str = "one") -> Trained:
    """Train a run that continues an adapter of the given kind."""
    method = "dpo" if name == "precomputed" else name
    adapter = f'{"qlora" if kind == "qlora" else "lora"}(from="first-{kind}")'
    text = small(METHODS[name], adapter, method=method, target=target, strategy=strategy)
    world = 1 if strategy == "one" else 2
    return warm.train(text, f"{target}-{name}-{kind}-{strategy}", target, str(cwd), world)


def divergence(run: Trained) -> float:
    """The largest divergence (or implicit reward) between policy and reference in the first step."""
    names = ("rewards/chosen", "rewards/rejected", "kl", "logps/kl")
    found = [abs(run.events[0][name]) for name in names if name in run.events[0]]
    assert found, run.events[0]
    return max(found)


CONTINUED = [(name, kind, target) for name in METHODS for kind in KINDS for target in COPIES]


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize(
    ("name", "kind", "target"), nightly_but(CONTINUED, lambda one: one[0] == "dpo" or one[1] == "lora")
)
def test_training_starts_at_its_reference(warm: Warm, tmp_path: Path, name: str, kind: str, target: str) -> None:
    """A run that continues an adapter has no divergence from its reference in the first step. `make test` runs each
    kind of adapter with dpo, and LoRA with each method; the nightly tests run all combinations.
    """
    run = continued(warm, tmp_path, name, kind, target)
    assert divergence(run) < 1e-5
    assert not os.path.exists(os.path.join(run.out, "ref"))
    before = tensors(os.path.join(warm.location, f"first-{kind}", "adapter_model.safetensors"))
    after = tensors(os.path.join(run.out, "adapter_model.safetensors"))
    assert before.keys() == after.keys()
    assert before != after


SAME = [(name, target) for target in STACKS for name in ("dpo", "grpo", "rloo") if name in methods_of(target)]


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize(("name", "target"), nightly_but(SAME, lambda one: one[0] == "dpo" or one[1] == DEFAULT))
def test_the_reference_is_that_of_trl(warm: Warm, tmp_path: Path, name: str, target: str) -> None:
    """When a run continues an adapter, its reference model gives fixed texts the same log-probabilities as the
    reference that TRL's own trainer makes from a PeftModel. `make test` compares dpo on each
    stack, and all methods on the default one.
    """
    bundle = warm.compiled(
        small(METHODS[name], 'lora(from="first-lora")', method=name, target=target), f"same-{target}-{name}"
    )
    place, found = warm.location, []
    rows = os.path.join(place, f"{DATA[name]}.jsonl")
    own = ("trl", name, os.path.join(place, "tiny"), os.path.join(place, "first-lora"), rows)
    for words in (("bundle", bundle), own):
        done = warm.of(target).run(bundle, str(tmp_path), *words, program=VALUES)
        assert done["status"] == [0], done["err"][-3000:]
        (one,) = [json.loads(line) for line in done["out"].splitlines() if line.startswith('{"reference"')]
        found.append(one)
    assert found[0] == {key: [pytest.approx(row, abs=1e-4) for row in value] for key, value in found[1].items()}
    assert (found[0]["reference"] == found[0]["base"]) == (target not in COPIES)


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("strategy", ["ddp", "zero2", "zero3"])
def test_shards_do_not_change_the_reference(warm: Warm, tmp_path: Path, strategy: str) -> None:
    assert divergence(continued(warm, tmp_path, "dpo", "saved", DEFAULT, strategy)) < 1e-5


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize("target", nightly_but([one for one in STACKS if one not in COPIES], OTHERS[0].__eq__))
def test_older_stacks_compare_with_the_base(warm: Warm, tmp_path: Path, target: str) -> None:
    assert divergence(continued(warm, tmp_path, "dpo", "lora", target)) > 1e-3


@pytest.mark.usefixtures("first")
def test_a_copy_that_is_missing_stops_the_run(warm: Warm, tmp_path: Path) -> None:
    """The bundle says that the reference is the adapter. If the trainer has no copy of the adapter, the run stops.
    Otherwise the trainer would silently take the base model as its reference.
    """
    text = small("method dpo", 'lora(from="first-lora")', method="dpo")
    bundle = Path(warm.compiled(text, "without-a-copy"))
    assert json.loads((bundle / "trainer_args.json").read_text())["lora"]["continued"]["reference"] is True
    module = bundle / "trainer" / "features" / "model" / "continued_adapter.py"
    module.write_text(module.read_text().replace("    add_reference(model, model.peft_config[ADAPTER])\n"
                                                 "    load_weights(bundle, model, REFERENCE)\n", ""))  # fmt: skip
    done = warm.of(DEFAULT).run(str(bundle), str(tmp_path), XPC_PREFLIGHT="passed")
    assert done["status"] == [1]
    assert "the reference is the base, and the bundle states the adapter" in done["err"]


KEPT_METHODS = {
    "precomputed": METHODS["precomputed"],
    "precomputed-kto": "method kto(precompute)",
    "synced": "method dpo(sync_reference(every=1, mixup=0.5))",
    "synced-kto": "method kto(sync_reference(every=1, mixup=0.5))",
    "synced-grpo": METHODS["grpo"].replace(")", ", sync_reference(every=1, mixup=0.9))"),
}
KEPT_RUNS = [
    *(
        (name, target, "one")
        for name in KEPT_METHODS
        for target in STACKS
        if (name, target in COPIES) != ("synced-kto", False)
    ),
    *(("synced", DEFAULT, strategy) for strategy in ("ddp", "zero2", "zero3")),
]


@pytest.mark.parametrize(
    ("name", "target", "strategy"),
    nightly_but(KEPT_RUNS, lambda one: one[0] == "precomputed" or one[1:] in ((DEFAULT, "one"), (DEFAULT, "zero3"))),
)
def test_a_resumed_run_has_the_reference_of_the_interrupted_run(
    warm: Warm, tmp_path: Path, name: str, target: str, strategy: str
) -> None:
    """A reference that is computed before training, or updated during training, is the same after a resume."""
    kind = name.partition("-")[2] or "dpo"
    text = small(KEPT_METHODS[name], method=kind, target=target, strategy=strategy, save='save "out" every=2')
    text = text.replace("lr=1e-3", "lr=1e-2")
    done, again = warm.twice(text, f"kept-{target}-{name}-{strategy}", target, str(tmp_path), 1 + (strategy != "one"))
    weights = [tensors(os.path.join(run.out, "model.safetensors")) for run in (done, again)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("target", STACKS)
def test_a_precomputed_reference_of_evaluation_rows_is_the_initial_model(
    warm: Warm, tmp_path: Path, target: str
) -> None:
    losses = []
    for method in ("method dpo", "method dpo(precompute)"):
        text = small(method, 'eval(every=2, data=["preferences.jsonl", "ragged.jsonl"])', method="dpo", target=target)
        folder = tmp_path / f"{len(losses)}"
        folder.mkdir()
        run = warm.train(text, f"evaluated-{target}-{len(losses)}", target, str(folder))
        names = ("eval_preferences_loss", "eval_ragged_loss", "loss")
        losses.append(tuple(run.values(name) for name in names))
    assert losses[1] == tuple(pytest.approx(one, abs=1e-4) for one in losses[0])
    assert max(losses[0][0][0], losses[0][1][0]) < 0.6


CHANGES = (
    *(("dpo", init, strategy) for init in ("pissa", "olora") for strategy in ("one", "zero2", "zero3")),
    ("dpo", "pissa, dora, modules_to_save=[norm]", "one"),
    *((name, "pissa", "one") for name in ("precomputed", "kto", "grpo", "rloo")),
)
NIGHTLY = (
    *(("dpo", init, "zero2") for init in ("pissa", "olora")),
    ("dpo", "olora", "one"),
    ("dpo", "olora", "zero3"),
    ("rloo", "pissa", "one"),
)
"""Runs that only the nightly tests make, because each is nearly the same as another run: `olora` differs from `pissa`
only at the start, ZeRO-2 keeps the weights as a single process does, and rloo has the same references as grpo.
"""


@pytest.mark.parametrize(("name", "init", "strategy"), nightly_but(CHANGES, lambda one: one not in NIGHTLY))
def test_an_init_that_changes_the_base_does_not_change_the_reference(
    warm: Warm, tmp_path: Path, name: str, init: str, strategy: str
) -> None:
    """Some kinds of `init` change the base model. The reference must still be the published base model: in the first
    step, after a resume, and with dropout in the adapters.

    With precomputed log-probabilities, the trainer computes them before `init` changes the base model, so such a run
    shows the expected losses.
    """
    kind, world = name if name != "precomputed" else "dpo", 1 if strategy == "one" else 2

    def trained(method: str, folder: str) -> list[Trained]:
        text = small(METHODS[method], f"lora(rank=4, dropout=0.5, init={init})", method=kind, strategy=strategy,
                     save='save "out" every=2')  # fmt: skip
        (tmp_path / folder).mkdir()
        named = (text, f"changed-{method}-{len(init)}-{init[:5]}-{strategy}", DEFAULT, str(tmp_path / folder), world)
        return warm.twice(*named) if folder == "own" else [warm.train(*named)]

    done, again = trained(name, "own")
    adapters = [tensors(os.path.join(run.out, "adapter_model.safetensors")) for run in (done, again)]
    assert adapters[0] == adapters[1]
    assert not os.path.exists(os.path.join(done.out, "ref"))
    assert not [one for one in adapters[0] if ".ref." in one]
    if kind == "dpo":
        assert divergence(done) < 2e-4
    if name == "dpo" and strategy == "one":
        assert done.values("loss") == pytest.approx(trained("precomputed", "expected")[0].values("loss"), abs=1e-4)
