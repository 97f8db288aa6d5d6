"""If the libraries really use another value than the bundle states, the run stops before its first step and prints both
values.

Other test files of this folder train runs in which the libraries use the stated values.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from interpreters import OTHERS
from method_runs import Warm, small
from tiers import FIRST_AND_LAST, nightly_but

from xpc.compiler.stacks import DEFAULT, STACKS

pytestmark = pytest.mark.slow
every = pytest.mark.parametrize("target", FIRST_AND_LAST)


def variants(names: str, cases: list[tuple[object, ...]]) -> pytest.MarkDecorator:
    """Run a test with every case on the default stack, and with only the first case on the oldest stack: there, the
    other cases would show nothing new. `make slow` tries every case on every stack.
    """
    pairs = [(target, *case) for case in cases for target in STACKS]
    daily = [*((DEFAULT, *case) for case in cases), (OTHERS[0], *cases[0])]
    return pytest.mark.parametrize(f"target, {names}", nightly_but(pairs, daily.__contains__))


def refused(warm: Warm, text: str, cwd: Path, target: str, world: int = 1,
            change: dict[str, dict[str, object]] | None = None, **variables: str) -> str:  # fmt: skip
    """Start a run that must stop with status 1 before its first step; return its message. `change` has new values for
    sections of the bundle's trainer_args.json.
    """
    bundle = warm.compiled(text, re.sub(r"\W", "-", cwd.name))
    plan = Path(bundle, "trainer_args.json")
    facts = json.loads(plan.read_text())
    for section, values in (change or {}).items():
        facts[section].update(values)
    plan.write_text(json.dumps(facts))
    done = warm.of(target).run(bundle, str(cwd), world=world, XPC_PREFLIGHT="passed", **variables)
    # Process 0 reports the error and exits with 1. The other processes also exit with 1, unless the launcher kills them
    # before (-9).
    first, *others = done["status"]
    assert first == 1, f"{done['out']}\n{done['err']}"
    assert {*others} <= {1, -9}
    metrics = cwd / "out" / "metrics.jsonl"
    assert not metrics.exists() or not metrics.read_text()
    return str(done["err"])


@variants("strategy", [("one",), ("ddp",)])
def test_precision_of_the_environment_stops_the_run(warm: Warm, tmp_path: Path, target: str, strategy: str) -> None:
    text = small("launch local(launcher=torchrun)", method="sft", target=target, strategy=strategy)
    output = refused(warm, text, tmp_path, target, 1 + (strategy == "ddp"), ACCELERATE_MIXED_PRECISION="bf16")
    assert "the mixed precision of accelerate is bf16, and the bundle states no" in output
    assert "the environment has ACCELERATE_MIXED_PRECISION=bf16" in output


@every
def test_compiler_of_the_environment_stops_the_run(warm: Warm, tmp_path: Path, target: str) -> None:
    text = small(method="sft", target=target)
    output = refused(warm, text, tmp_path, target, ACCELERATE_DYNAMO_BACKEND="EAGER")
    assert "the compiler (torch_compile) is eager, and the bundle states no" in output


@every
def test_target_that_no_module_has_stops_the_run(warm: Warm, tmp_path: Path, target: str) -> None:
    text = small("method dpo", "lora(targets=[q_proj, v_proj])", method="dpo", target=target)
    output = refused(warm, text, tmp_path, target, change={"lora": {"targets": ["q_proj", "w1"]}})
    assert "the target `w1` is in no module of the model, and the bundle states adapted" in output


@every
def test_whole_module_that_the_model_lacks_stops_the_run(warm: Warm, tmp_path: Path, target: str) -> None:
    text = small("lora(modules_to_save=[lm_head])", method="sft", target=target)
    output = refused(warm, text, tmp_path, target, change={"lora": {"modules_to_save": ["score_head"]}})
    assert "the module `score_head` is not in the model, and the bundle states trained" in output


@every
def test_a_new_head_is_trained_next_to_whole_modules(warm: Warm, tmp_path: Path, target: str) -> None:
    text = small("method reward", "lora(modules_to_save=[norm])", method="reward", target=target)
    assert warm.train(text, f"head-{target}", target, str(tmp_path)).events


@variants("name, stated, made", [("block_size", 24, 16), ("rank", 5, 4)])
def test_rounded_rotations_stop_the_run(
    warm: Warm, tmp_path: Path, target: str, name: str, stated: int, made: int
) -> None:
    text = small(f"oft({name}=8)", method="sft", target=target)
    output = refused(warm, text, tmp_path, target, change={"lora": {name: stated}})
    what = "rank" if name == "rank" else "block size"
    assert re.search(rf"the {what} of the adapter on \S+ is {made}, and the bundle states {stated}", output)


OTHER_MODELS = """
import json, sys, torch, transformers
name, folder = sys.argv[1:]
model = transformers.AutoModelForCausalLM.from_pretrained("tiny")
config = model.config
config.tie_word_embeddings = "Tied" in name
config.num_labels = 1
made = getattr(transformers, name.removesuffix("Tied"))(config)
made.save_pretrained(folder)
transformers.AutoTokenizer.from_pretrained("tiny").save_pretrained(folder)
print(json.dumps({"saved": folder}))
"""


WITHOUT_A_NORM = """
import json, shutil, sys
from safetensors.torch import load_file, save_file
shutil.copytree(sys.argv[1], sys.argv[2])
weights = load_file(sys.argv[1] + "/model.safetensors")
weights.pop("model.norm.weight")
save_file(weights, sys.argv[2] + "/model.safetensors", {"format": "pt"})
print(json.dumps({"saved": sys.argv[2]}))
"""
MODELS = ("Qwen2ForSequenceClassification", "Qwen2ForSequenceClassificationTied", "Qwen2Model", "Qwen2ForCausalLM")


@pytest.fixture(scope="module")
def others(warm: Warm) -> None:
    """Models that have no trained head for text, next to the tiny model: a classifier, a model with tied embeddings,
    and a model without a head.
    """
    for name in MODELS:
        assert warm.program(DEFAULT, OTHER_MODELS, name, os.path.join(warm.location, name))


CLASSIFIER = "is a checkpoint of Qwen2ForSequenceClassification, whose output head was not trained for text"
HEADLESS = "has no weights for lm_head.weight, and Qwen2ForCausalLM needs them"


@pytest.mark.usefixtures("others")
@variants(
    "method, strategy, name, message",
    [
        ("sft", "one", MODELS[2], HEADLESS),
        ("sft", "one", MODELS[0], CLASSIFIER),
        ("sft", "one", MODELS[1], CLASSIFIER),
        # under ZeRO-3, the weights of a model are loaded in another way, but its configuration is read in the same way
        ("orpo", "zero3", MODELS[2], HEADLESS),
    ],
)
def test_model_without_a_head_for_text_stops_the_run(
    warm: Warm, tmp_path: Path, target: str, method: str, strategy: str, name: str, message: str
) -> None:
    world = 1 if strategy == "one" else 2
    text = small(f"method {method}", method=method, target=target, strategy=strategy)
    assert message in refused(warm, text, tmp_path, target, world, {"model": {"path": name}})


@every
@pytest.mark.usefixtures("others")
def test_teacher_without_a_head_stops_the_run(warm: Warm, tmp_path: Path, target: str) -> None:
    text = small('method distill(teacher="teacher", max_completion=12)', method="distill", target=target)
    bundle = json.loads(Path(warm.compiled(text, "teacher-plan"), "trainer_args.json").read_text())
    teacher = {**bundle["method"]["teacher"], "path": "Qwen2Model"}
    output = refused(warm, text, tmp_path, target, change={"method": {"teacher": teacher}})
    assert "Qwen2Model has no weights for lm_head.weight" in output


@pytest.mark.usefixtures("others")
@variants("name", [(one,) for one in MODELS])
def test_reward_model_may_have_a_new_head(warm: Warm, tmp_path: Path, target: str, name: str) -> None:
    text = small("method reward", method="reward", target=target).replace('"tiny"', f'"{name}"')
    done = warm.train(text, f"{target}-reward-{name}", target, str(tmp_path))
    assert len(done.values("loss")) == 4


@every
@pytest.mark.usefixtures("others")
def test_reward_model_without_a_body_stops_the_run(warm: Warm, tmp_path: Path, target: str) -> None:
    folder = Path(warm.location, "Qwen2ForCausalLM")
    weights = warm.program(DEFAULT, WITHOUT_A_NORM, str(folder), str(tmp_path / "broken"))
    assert weights
    text = small("method reward", method="reward", target=target)
    output = refused(warm, text, tmp_path, target, change={"model": {"path": str(tmp_path / "broken")}})
    assert "has no weights for model.norm.weight" in output
