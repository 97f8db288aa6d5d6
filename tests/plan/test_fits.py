"""`xpc check` reports whether the run fits in GPU memory, and proposes changes with which it fits. If the run does not
fit, this is an error, or a note with `--allow-oom`.
"""

from __future__ import annotations

import json
import os
import re

import pytest
from typed_in import typed_in

from xpc.compiler import cli, registry
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import Checked, check_text
from xpc.compiler.plan import FITS, NO, TIGHT, changes, coefficients
from xpc.compiler.plan.changed import legality
from xpc.compiler.plan.experiment import plan
from xpc.compiler.plan.quick_estimate import MemoryInputs, states
from xpc.compiler.registry.linear_layers import linear_layers, lora_parameters
from xpc.compiler.spec import Spec
from xpc.compiler.tuning import command

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SPEC = """xpc 1
train {model} on infinity-instruct:0625 for 1 epochs
hardware {hardware}
{more}
precision bf16
batch {batch}
save "out"
"""
SHORT = {
    "kept": {"more": "zero2\nmemory(checkpointing=false)", "batch": "gbs=128 micro=4 seq=4096"},
    "accumulation": {"more": "zero2", "batch": "gbs=512 micro=32 accum=2 seq=8192"},
    "no gbs": {"more": "zero2", "batch": "micro=32 seq=8192"},
    "states": {"more": "zero2", "batch": "gbs=64 micro=4 seq=4096", "hardware": "2 x h100-80gb"},
    "ddp": {"more": "ddp", "batch": "gbs=64 micro=4 seq=4096"},
    "one card": {"more": "", "batch": "gbs=8 micro=4 seq=2048", "hardware": "1 x a100-40gb"},
    "logits": {"more": "zero2\ntarget trl-0.18", "batch": "gbs=256 micro=16 seq=4096"},
    "pairs": {"more": "zero3\nmethod dpo\ntarget trl-0.24", "batch": "gbs=512 micro=32 seq=2048"},
    "adapters": {"more": "zero2\nlora", "batch": "gbs=512 micro=16 seq=8192", "hardware": "4 x a100-40gb"},
    "evaluated": {
        "more": "zero2\ndata(holdout=1%)\neval(every=100, micro=32)",
        "batch": "gbs=512 micro=32 seq=8192",
    },
}
"""Specs that do not fit their GPUs, each for a different reason."""


def written(**parts: str) -> str:
    found = {"model": "qwen2.5-7b-instruct", "hardware": "8 x h100-80gb", "more": "", "batch": "", **parts}
    if "dpo" in found["more"] or "kto" in found["more"]:
        return SPEC.format(**found).replace("infinity-instruct:0625", "ultrafeedback-binarized")
    return SPEC.format(**found)


def checked(text: str, allow_oom: bool = False) -> Checked:
    return check_text(text.encode(), "t.xp", Workspace(ROOT, allow_oom=allow_oom))


def spec_of(text: str) -> Spec:
    found = checked(text, allow_oom=True).spec
    assert found is not None
    return found


@pytest.mark.parametrize("name", SHORT)
def test_a_help_that_is_typed_in_compiles_and_fits(name: str) -> None:
    text = written(**SHORT[name])
    (finding,) = [one for one in checked(text).problems if one.code in ("XP480", "XP960", "XP961")]
    after = typed_in(text, finding)
    assert after is not None, finding.help
    again = checked(after)
    assert again.spec is not None, (after, again.problems)
    assert not [one for one in again.problems if one.code in ("XP480", "XP960", "XP961")], after
    assert plan(again.spec).verdict == FITS
    before = spec_of(text)
    for path in ("batch.gbs", "batch.seq", "train.epochs", "optimizer.lr"):
        assert again.spec.get(path) == before.get(path), path


@pytest.mark.parametrize("name", SHORT)
def test_every_change_is_planned_as_it_is_typed(name: str) -> None:
    """A proposal states a memory and a speed. They equal the plan of the spec after the user has typed the proposed
    line.
    """
    text = written(**SHORT[name])
    found = changes.fitting(spec_of(text))
    assert found
    for change in found:
        assert legality(spec_of(text))(change.settings)
        form = " with ".join(f"`{one}`" for one in change.typed)
        (finding,) = [one for one in checked(text).problems if one.code in ("XP480", "XP960", "XP961")]
        after = typed_in(text, type(finding)(**{**vars(finding), "help": f"write {form}", "edits": ()}))
        assert after is not None
        again = checked(after).spec
        assert again is not None, after
        assert plan(again).peak == change.plan.peak


def test_what_is_faster_fits_and_is_legal() -> None:
    text = written(more="zero3", batch="gbs=128 micro=2 seq=2048")
    # The spec leaves `checkpointing` open, so the plan chooses it for each proposal, and no proposal has to set it.
    found = changes.faster(spec_of(text))
    assert found
    assert {path for one in found for path in one.settings} <= {"strategy", "batch.micro"}
    spec = spec_of(written(more="zero3\nmemory(checkpointing)", batch="gbs=128 micro=2 seq=2048"))
    found = changes.faster(spec)
    assert found
    for change in found:
        assert change.plan.verdict == FITS
        assert change.pace is not None
        assert change.pace > 1
        assert legality(spec)(change.settings)
    assert [one.pace for one in found] == sorted((one.pace or 0 for one in found), reverse=True)
    assert changes.faster(spec_of(written(**SHORT["kept"]))) == []


def test_a_change_that_a_rule_refuses_is_not_proposed() -> None:
    """Changes that a rule refuses are not proposed. For example, offloading needs a sharded strategy."""
    spec = spec_of(written(**SHORT["kept"]))
    assert not legality(spec)({"strategy": "ddp", "strategy.offload": "optimizer"})
    assert legality(spec)({"strategy": "zero3"})


def evaluated(text: str) -> float:
    """The bytes of activations and logits that the plan counts for an evaluation."""
    held = plan(spec_of(text)).memory
    assert held is not None
    found = held.phases["evaluate"]
    return found["activations"] + found.get("logits and loss", 0.0)


@pytest.mark.parametrize(
    ("more", "packing"), [("", ""), ("", " packing"), ("method dpo\n", "")], ids=["padded", "packed", "pairs"]
)
def test_what_an_evaluation_holds_grows_with_its_own_rows(more: str, packing: str) -> None:
    """The memory of an evaluation depends on the evaluation's own micro-batch, but not on the training's micro-batch,
    nor on packing or pairs. With flash attention, no part of the memory grows with the square of the length.
    """
    more += "zero3\nmodel { attn = flash2 }\nmemory(checkpointing=false)\ndata(holdout=1%)\neval(every=100, micro="
    held = {
        (micro, own): evaluated(written(more=f"{more}{own})", batch=f"gbs=64 micro={micro} seq=2048{packing}"))
        for micro in (2, 4)
        for own in (2, 4)
    }
    assert held[2, 2] == pytest.approx(held[4, 2])
    assert held[2, 4] == pytest.approx(2 * held[2, 2])
    assert held[4, 4] == pytest.approx(2 * held[4, 2])


def test_kto_keeps_one_sequence_of_a_sample() -> None:
    """KTO has two forward passes. The second one runs without gradients (trl 1.16 `_compute_kl_logps`), so only the
    first one keeps activations.
    """
    more = "zero3\nmodel { attn = flash2 }\nmemory(checkpointing=false)"
    kept = {
        method: plan(spec_of(written(more=f"{more}\n{method}", batch="gbs=64 micro=2 seq=2048"))).memory
        for method in ("", "method kto", "method dpo")
    }
    activations = {method: held.phases["forward"]["activations"] for method, held in kept.items() if held is not None}
    assert activations["method kto"] == activations[""]
    assert activations["method dpo"] == 2 * activations[""]


def test_verdicts_are_findings_of_check() -> None:
    for batch, code, severity, verdict in (
        ("gbs=128 micro=4 seq=4096", "XP960", "error", NO),
        ("gbs=128 micro=2 seq=4096", "XP961", "warning", TIGHT),
        ("gbs=128 micro=1 seq=4096", "", "", FITS),
    ):
        text = written(more="zero2\nmemory(checkpointing=false)", batch=batch)
        found = [(one.code, one.severity) for one in checked(text).problems if one.severity != "note"]
        assert found == ([(code, severity)] if code else [])
        assert plan(spec_of(text)).verdict == verdict


def test_a_help_says_that_no_change_fits_and_which_adapter_qlora_replaces() -> None:
    tight = {"model": "qwen2.5-32b", "hardware": "4 x rtx-4090", "batch": "gbs=16 micro=2 seq=16384"}
    (found,) = [one for one in checked(written(more="qlora", **tight)).problems if one.code == "XP960"]
    assert found.help is not None
    assert found.help.startswith("no change fits into 80 % of the memory; write `strategy zero3(offload=cpu)` with ")
    assert found.help.count(", tight") == 2
    smaller = {"model": "qwen2.5-3b", "hardware": "1 x rtx-4090", "batch": "gbs=64 micro=8 seq=2048"}
    (found,) = [one for one in checked(written(more="lora", **smaller)).problems if one.code == "XP961"]
    assert found.help is not None
    assert "or `qlora` instead of `lora` (11.3 GiB" in found.help
    assert "no change" not in found.help
    lone = {**smaller, "model": "llama-3.1-8b"}
    (found,) = [one for one in checked(written(more="fsdp", **lone)).problems if one.code == "XP480"]
    assert str(found.help).startswith("write `strategy zero3(offload=")  # fsdp would need more GPUs
    for adapter in ("oft", "vera", "miss"):
        found = next(one for one in checked(written(more=adapter, **smaller)).problems if one.code == "XP961")
        assert f"`{adapter}(bits=4)` (" in str(found.help)


def test_what_is_not_known_says_nothing() -> None:
    for more in ("hardware 8 x cpu",):
        text = written(batch="gbs=128 micro=16 seq=32768").replace("hardware 8 x h100-80gb", more)
        text = text.replace("precision bf16", "precision fp32")
        assert not [one for one in checked(text).problems if one.code in ("XP960", "XP961")]


@pytest.mark.parametrize(
    ("more", "output"),
    [
        ("freeze(except_last=2)", NO),  # no upper bound: the plan counts activations only of the two trained layers
        ("freeze(except_modules=[norm], except_last=2, except_first=1)", TIGHT),
        # the model states alone exceed the memory, so the unknown activations do not matter
        ("memory(offload_activations)", NO),
        ("lora\nmemory(offload_activations)", TIGHT),
        ("lora", NO),
        ("lora(dora)", NO),
        ("oft", NO),
        ("vera", TIGHT),
    ],
)
def test_the_check_says_what_the_plan_says(more: str, output: str) -> None:
    """If the plan knows only an upper bound of the memory, and this bound exceeds the GPU's memory, both `check` and
    `plan` say `tight` instead of `no`.
    """
    text = written(more=f"{more}\nddp", batch="gbs=256 micro=32 seq=8192", model="qwen2.5-3b-instruct",
                   hardware="8 x a100-40gb")  # fmt: skip
    assert plan(spec_of(text)).verdict == output
    codes = {one.code for one in checked(text).problems} & {"XP480", "XP960", "XP961"}
    assert codes <= ({"XP480", "XP960"} if output == NO else {"XP961"}), codes
    assert codes


def test_a_micro_batch_that_nobody_wrote_is_one_that_fits() -> None:
    """Without recomputation, the first estimate of the micro-batch would need more than 80 % of the GPU's memory.
    Therefore the compiler looks for another micro-batch, with which the plan says `fits`.
    """
    text = "xpc 1\ntrain qwen2.5-0.5b-instruct on smoltalk for 1 epochs\nhardware 8 x v100-32gb\n"
    text += "zero2\nmemory(checkpointing=false)\n"
    spec = spec_of(text)
    chosen = spec.values["batch.micro"]
    assert chosen.origin.kind == "derived"
    assert "planned" in chosen.origin.why
    assert plan(spec).verdict == FITS
    assert spec.integer("batch.gbs") == spec.integer("batch.micro") * spec.integer("batch.accum") * 8 == 128
    assert spec.get("eval.micro") == spec.integer("batch.micro")
    more = changes.changed(spec, {"batch.micro": 2 * spec.integer("batch.micro")})
    assert plan(more).verdict != FITS
    notes = [one.message for one in checked(text).problems if "states no micro-batch" in one.message]
    assert len(notes) == 1
    assert chosen.origin.why in notes[0]


def test_states_beyond_the_card_are_reported_once() -> None:
    found = [one.code for one in checked(written(**SHORT["ddp"])).problems if one.severity == "error"]
    assert found == ["XP480"]


def test_a_member_of_a_sweep_that_does_not_fit_is_named() -> None:
    text = written(more="zero2\nmemory(checkpointing=false)", batch="gbs=128 seq=4096") + "sweep { micro = [1, 4] }\n"
    (found,) = [one for one in checked(text).problems if one.code == "XP960"]
    assert found.primary is not None
    assert found.primary.source.text[found.primary.span.start : found.primary.span.end] == "4"
    assert len(checked(text, allow_oom=True).members) == 2


def test_allow_oom_compiles_and_the_bundle_says_so(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("XPC_CACHE", "off")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.xp").write_text(written(**SHORT["kept"]))
    assert cli.main(["check", "a.xp"]) == 1
    assert cli.main(["compile", "a.xp"]) == 1
    assert cli.main(["check", "a.xp", "--allow-oom", "--deny", "warnings"]) == 0
    assert cli.main(["compile", "a.xp", "--allow-oom", "-o", "a.bundle"]) == 0
    assert "allow_oom = true" in (tmp_path / "a.bundle" / "bundle.toml").read_text()
    assert "`--allow-oom`" in (tmp_path / "a.bundle" / "README.md").read_text()
    assert cli.main(["verify", "a.bundle"]) == 0
    assert cli.main(["check", "a.bundle/spec.xp"]) == 0
    capsys.readouterr()
    assert cli.main(["check", "a.xp", "--allow-oom", "--format", "json"]) == 0
    assert [one["severity"] for one in json.loads(capsys.readouterr().out) if one["code"] == "XP960"] == ["note"]


def test_a_bundle_of_a_run_that_fits_does_not_know_the_option(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.xp").write_text(written(more="zero3", batch="gbs=128 micro=2 seq=2048"))
    for name in (["-o", "plain"], ["-o", "allowed", "--allow-oom"]):
        assert cli.main(["compile", "a.xp", *name]) == 0
    for file in ("bundle.toml", "README.md"):
        assert (tmp_path / "plain" / file).read_bytes() == (tmp_path / "allowed" / file).read_bytes()


TIGHT_RECIPES = {"deepseek-r1-distill-qwen-1.5b-openr1-math-grpo-8xh100.xp"}
"""Recipes that are `tight`: vLLM uses a third of each GPU, and TRL 0.18 keeps the logits of 16 x 2,048 tokens."""


@pytest.mark.parametrize(
    ("batch", "title"), [("gbs=128 micro=4 seq=4096", "fit"), ("gbs=128 micro=1 seq=2048", "go faster")]
)
def test_plan_lists_the_changes(batch, title, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.xp").write_text(written(more="zero2\nmemory(checkpointing=false)", batch=batch))
    text, _ = command.run(command.parse(["a.xp"]))
    table = json.loads(command.run(command.parse(["a.xp", "--format", "json"]))[0])
    assert table["changes"]
    shown = text.partition(f"what would make it {title}:\n")[2].splitlines()
    assert len(shown) == len(table["changes"])
    for line, change in zip(shown, table["changes"], strict=True):
        assert line.startswith(f"  {' with '.join(change['settings'])}: ")
        assert change["verdict"] == "fits"


@pytest.mark.slow
def test_the_recipes_fit() -> None:
    """These recipes have been trained on this hardware, so xpc must not say that they do not fit."""
    folder = os.path.join(ROOT, "specs")
    seen = 0
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".xp"):
            continue
        with open(os.path.join(folder, name), "rb") as handle:
            found = check_text(handle.read(), name, Workspace(folder))
        seen += found.spec is not None
        codes = {one.code for one in found.problems} & {"XP480", "XP960", "XP961"}
        assert codes == ({"XP961"} if name in TIGHT_RECIPES else set()), name
    assert seen > 30


def test_the_states_of_zero3_are_stepped_in_sub_groups() -> None:
    """A 70B model on 16 GPUs of 80 GB has 65.7 GiB of model states per GPU. The run fits only because DeepSpeed's
    optimizer steps one sub-group of weights after the other: a copy of the sub-group's gradients and its conversion to
    fp32 take six bytes for each of 1e9 elements.
    """
    text = SPEC.format(model="llama-3.1-70b-instruct", hardware="16 x a100-80gb", more="zero3", batch="gbs=64 micro=1")
    memory = plan(spec_of(text)).memory
    assert memory is not None
    assert memory.phases["step"]["step temporaries"] <= 6.2e9


def test_one_family_is_read_as_in_the_complete_table() -> None:
    for name, rows in coefficients.families().items():
        assert coefficients.family(name) == rows
    for name in ("", "llam", "families", "versions", *coefficients.differences()):
        assert coefficients.family(name) == coefficients.families().get(name, {})


def test_two_rules_plan_a_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from xpc.compiler.plan import memory

    planned: list[object] = []
    real = memory.memory
    monkeypatch.setattr(memory, "memory", lambda load: planned.append(load) or real(load))
    found = checked(written(more="zero2", batch="gbs=64 micro=1 seq=2048"))
    assert found.spec is not None
    assert len(planned) == 1


@pytest.mark.parametrize("more", ["ddp", "zero1", "zero2", "zero3", "fsdp"])
def test_states_of_an_unmeasured_family_are_held_by_the_first_strategy_that_can(
    monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    """If the plan cannot predict a model family, the help of XP480 still proposes a strategy, and the spec compiles
    with it.
    """
    monkeypatch.setattr("xpc.compiler.plan.changes.fitting", lambda spec, most: [])
    text = written(model="qwen2.5-32b", hardware="2 x h100-80gb", more=more, batch="gbs=64 micro=1 seq=512")
    output = [one for one in checked(text).problems if one.code == "XP480"]
    assert len(output) == 1
    assert output[0].help is not None
    if "strategy" in output[0].help:
        again = text.replace(f"\n{more}\n", "\n" + output[0].help.split("`")[1] + "\n")
        assert "XP480" not in {one.code for one in checked(again).problems}


@pytest.mark.parametrize("model", ["gpt2", "falcon-7b", "qwen2.5-0.5b", "llama-3.2-1b"])
@pytest.mark.parametrize(
    "kind", ["lora(dora, {})", "qlora(dora, {})", "oft({})", "lora({}, dropout=0.1)", "lora(bits=8, {})"]
)
def test_adapters_on_modules_that_the_model_lacks_are_refused_and_not_planned(kind: str, model: str) -> None:
    adapters = kind.format("targets=[no_proj]")
    found = checked(f"xpc 1\ntrain {model} on alpaca\nhardware 8 x h100-80gb\n{adapters}\nbatch gbs=64 seq=1024\n")
    assert "XP455" in [one.code for one in found.problems]


@pytest.mark.parametrize(
    ("stage", "offloaded", "frozen", "adapters"),
    [(0, False, 6, 18), (2, False, 6, 12), (2, True, 6, 10), (3, False, 1.5, 12)],
)
def test_states_of_adapters_are_those_of_their_own_parameters(
    stage: int, offloaded: bool, frozen: float, adapters: int
) -> None:
    facts = registry.find_model("qwen2.5-0.5b")
    assert facts is not None
    inputs = MemoryInputs(facts, None, True, stage, 4, 1024, True, False, offloaded, rank=8)
    trained = lora_parameters(facts, 8, linear_layers(facts))
    assert states(inputs, facts.params) == facts.params * frozen + trained * adapters


def test_a_faster_change_says_what_the_plan_then_chooses() -> None:
    """After a suggested change, the compiler again chooses the settings that the spec leaves open. The text and the
    JSON output list those settings whose value changes.
    """
    text = written(model="qwen2.5-0.5b-instruct", hardware="1 x h100-80gb", batch="gbs=64 seq=2048")
    spec = spec_of(text)
    one = changes.as_typed(spec, plan(spec), {"batch.micro": 64})
    follows = {path for path in ("memory.checkpointing", "strategy") if one.plan.spec.get(path) != spec.get(path)}
    assert set(one.follows) == follows
    for setting in one.also:
        assert setting in changes.effect(one)
    assert [changes._followed("memory.checkpointing", value) for value in (False, True)] == [
        "checkpointing goes off", "checkpointing goes on",
    ]  # fmt: skip


@pytest.mark.parametrize(("price", "each"), [("2.5", 2.5), ("a100-80gb=9,h100-80gb=1.25", 1.25)])
def test_a_price_gives_the_cost(price: str, each: float, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.xp").write_text(written(more="zero3", batch="gbs=128 micro=2 seq=2048"))
    requested = ["a.xp", "--rows", "6400", "--tokens", "500"]
    table = json.loads(command.run(command.parse([*requested, "--price", price, "--format", "json"]))[0])
    assert table["cost"]["value"] == pytest.approx(table["gpu_hours"]["value"] * each, abs=0.006)
    text, _ = command.run(command.parse([*requested, "--price", price]))
    assert f"cost: {table['cost']['value']:,.2f} (" in text
    assert f"at {each:g} per GPU-hour" in text
    assert json.loads(command.run(command.parse([*requested, "--format", "json"]))[0])["cost"] is None
    assert "cost" in command.run(command.parse([*requested, "--price", price, "--compare"]))[0].splitlines()[0]


def test_less_than_an_hour_is_in_minutes_and_nothing_is_shown_as_zero(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.xp").write_text(written(more="zero3", batch="gbs=128 micro=2 seq=2048"))
    text, _ = command.run(command.parse(["a.xp", "--rows", "6400", "--tokens", "500"]))
    assert re.search(r"time: \d+\.\d \(.*\) minutes, .* GPU-minutes\n", text)
    text, _ = command.run(command.parse(["a.xp", "--rows", "640", "--tokens", "500"]))
    assert re.search(r"time: \d+\.\d \(.*\) seconds, .* GPU-minutes\n", text)
    assert " 0.0 GiB" not in text
