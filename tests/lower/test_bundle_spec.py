"""A bundle contains a spec.xp that states all defaults. This spec.xp compiles to the same run as the user's spec."""

import pytest
from case_support import spec
from compile_support import checked, compiled
from extra_arguments import NUMBER
from rule_cases import CASES
from tiers import every_fourth

from xpc.compiler.lower.specfile import specfile

pytestmark = pytest.mark.slow

SAME = [case for case in CASES if not case.files and "sweep {" not in case.accepted]  # test_sweep.py tests sweeps


@pytest.mark.parametrize("case", every_fourth(SAME))
def test_the_spec_of_a_bundle_compiles_to_the_same_run(case):
    files = compiled(case.accepted)
    again = compiled(files["spec.xp"])
    for name in ("trainer_args.json", "accelerate.yaml", "deepspeed.json", "requirements.txt", "launch.sh"):
        assert again.get(name) == files.get(name), name
    third = checked(again["spec.xp"]).spec
    assert third is not None
    assert specfile(third).encode().count(b"\n") == again["spec.xp"].count(b"\n")


def test_each_group_of_an_extra_has_its_own_names():
    text = spec("extra deepspeed {\n  zero_optimization.sub_group_size = 1M\n  comms_logger.enabled = true\n}")
    written = compiled(text)["spec.xp"].decode()
    assert written.count("sub_group_size") == written.count("enabled") == 1


KEPT = (
    f"extra trl {{\n  {NUMBER} = 5\n}}",
    "extra deepspeed {\n  zero_optimization {\n    sub_group_size = 1M\n  }\n}",
    'model(revision="v 1 @ #2")',
    "oft(rank=4, bits=8)",
    "loha(rank=4, alpha=16)",
    "miss(rank=16, dropout=0.1)",
    "lora(dora, rslora, lr_ratio=4)",
    "freeze(except_last=2)",
    "oft false",
    "lora false",
    "lora(false, rank=8)",
    "qlora false",
    "qlora false {\n  rank = 8\n}",
)


@pytest.mark.parametrize("text", [
    *map(spec, KEPT),
    spec("vera(rank=8, bits=8)", strategy="ddp"),
    spec("extra deepspeed { zero_optimization { offload_optimizer { ratio = 1.0 } } }", strategy="zero3(offload=cpu)"),
])  # fmt: skip
def test_the_spec_of_a_bundle_keeps(text):
    files = compiled(text)
    again = compiled(files["spec.xp"])
    for name in ("trainer_args.json", "deepspeed.json"):
        assert again.get(name) == files.get(name)


def test_every_model_and_dataset_of_the_registry_survives_the_spec_of_a_bundle():
    from xpc.compiler import registry

    models, data = list(registry.model_names()), list(registry.dataset_names())
    for number in range(0, max(len(models), len(data)), 3):
        model, source = models[number % len(models)], data[number % len(data)]
        if registry.find_dataset(source).shape in ("preference", "prompt"):
            continue
        text = spec(train=f"{registry.find_model(model).id} on {source} for 3 epochs", batch="gbs=128 micro=16 seq=64")
        if checked(text).spec is None:
            continue  # refused: this base model has no chat template, and the rows are conversations
        files = compiled(text)
        assert compiled(files["spec.xp"])["trainer_args.json"] == files["trainer_args.json"], (model, source)
