"""Some specs train without any error, but not as they state (a silent effect). The tests compile such specs without the
rules, and find the effect in a training step.

For each kind of effect, there is a spec that the compiler once accepted and that must show the effect. Legal specs must
show no effect.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import generated
import pytest
from attrs import frozen
from differential_steps import step
from emitted import put
from inspectors import Looker
from interpreters import OTHERS, interpreter

from xpc.compiler.stacks import DEFAULT, load

pytestmark = pytest.mark.slow
TEMPLATE = 'model(chat_template=file("template.jinja"))'
GPU, CPU, TWO = "1 x a100-80gb", "cpu", "2 x cpu"


@frozen
class Specimen:
    """A spec, and a text that must occur in the problem reported after its training step. For a legal spec, which has
    no problem, the text is "".
    """

    name: str
    says: str
    hardware: str
    data: str
    lines: tuple[str, ...]
    precision: str = "fp32"
    batch: str = ""
    target: str = DEFAULT
    put: tuple[tuple[str, float], ...] = ()
    """Pairs of an argument and its value. They are set after lowering, because a spec cannot state a value outside of
    an argument's range.
    """
    library: bool = False
    """Whether the library's own trainer takes the step, without the corrections of runtime/."""

    @property
    def nightly(self) -> bool:
        """Whether only `make slow` takes the step. This is so for steps on stacks other than the default one, and for
        steps of the library's own trainer, because this trainer changes only with its pinned version. The exception is
        FSDP2 on trl-0.24, whose reference model the runtime shards.
        """
        return (self.target != DEFAULT or self.library) and "reference-by-fsdp" not in self.name

    @property
    def text(self) -> str:
        head = f'xpc 1\ntrain "tiny" on "{self.data}.jsonl" for 20 steps\nhardware {self.hardware}\n'
        head += f"target {self.target}\nprecision {self.precision}\nbatch(gbs=8, micro=2{self.batch})\n"
        return head + "\n".join([*self.lines, 'save "out"']) + "\n"


def one(
    name: str, says: str, hardware: str, data: str, *lines: str, precision: str = "fp32", batch: str = "",
    target: str = DEFAULT, library: bool = False, put: tuple[tuple[str, float], ...] = (),
) -> Specimen:  # fmt: skip
    return Specimen(name, says, hardware, data, lines, precision, batch, target, put, library)


GRPO = "method grpo(generations=2, max_completion=8, rewards={rewards})"


def of_an_older_stack(target: str) -> tuple[Specimen, ...]:
    """Specimens for an older stack, on which packed documents are not separated: the attention mask ignores position
    ids.
    """
    return (
        one(f"{target}-evaluation", "has no attribute 'logits'", CPU, "text", "data(holdout=25%)", "eval(every=1)",
            "extra trl {", "  jit_mode_eval = true", "}", target=target),
        one(f"{target}-packed-flash", "packed training rows attend to each other", GPU, "text", "model(attn=flash2)",
            batch=", packing(isolate=flash)", precision="bf16", target=target),
        one(f"{target}-flattened-pairs", "packed training rows attend to each other", GPU, "preference",
            "model(attn=sdpa)", "method dpo", batch=", padding_free", target=target),
        one(f"{target}-loss-through-ddp", "object has no attribute 'model'", TWO, "unpaired", "strategy ddp",
            "method kto", "extra trl {", "  use_liger_loss = true", "}", target=target),
        one(f"{target}-legal-reference", "", "2 x a100-80gb", "prompt", "strategy zero2",
            GRPO.format(rewards="format"), "optimizer adamw", precision="bf16", target=target),
        one(f"{target}-legal-text", "", GPU, "text", target=target),
        one(f"{target}-legal-reward", "", TWO, "preference", "strategy ddp", "method reward", target=target),
    )  # fmt: skip


SPECIMENS = (
    one("packed-evaluation", "packed evaluation rows attend to each other", GPU, "text", "model(attn=sdpa)",
        "data(holdout=16)", "eval(every=1)", batch=", packing.eval=true"),
    one("packed-wrapped", "packed training rows attend to each other", GPU, "text", "model(attn=sdpa)",
        batch=", packing(isolate=mask, strategy=wrapped)"),
    one("packed-wrapped-flash", "packed training rows attend to each other", GPU, "text", "model(attn=flash2)",
        batch=", packing(isolate=flash, strategy=wrapped)", precision="bf16"),
    one("cast-policy", "base weights are bfloat16, and float32 is stated", GPU, "prompt",
        GRPO.format(rewards="format"), "extra trl {", "  use_transformers_continuous_batching = true", "}",
        precision="bf16"),
    one("rounded-adapters", "28 adapter weights are bfloat16, and float32 is stated", "1 x v100-32gb", "messages",
        "qlora", TEMPLATE, precision="fp16", library=True),
    one("rounded-adapters-8", "28 adapter weights are bfloat16, and float32 is stated", "1 x t4", "messages",
        "qlora(bits=8)", TEMPLATE, library=True),
    one("legal-adapters", "", "1 x v100-32gb", "messages", "qlora", TEMPLATE, precision="fp16"),
    one("rounded-before-references", "28 adapter weights are bfloat16, and float32 is stated", "2 x v100-32gb",
        "preference", "qlora", "strategy zero3", "method dpo(precompute)", library=True),
    one("legal-before-references", "", "2 x v100-32gb", "preference", "qlora", "strategy zero3",
        "method dpo(precompute)"),
    one("legal-dora-in-zero", "", CPU, "messages", "qlora(dora)", "strategy zero2", 'model(dtype=bf16)', TEMPLATE),
    one("legal-dora", "", "2 x a100-80gb", "messages", "qlora(dora)", "strategy fsdp", TEMPLATE, precision="bf16"),
    one("static-graph", "expect_autograd_hooks_", TWO, "text", "strategy ddp", "extra trl {",
        "  ddp_static_graph = true", "}"),
    one("column-of-a-reward", "missing 1 required positional argument: 'solution'", CPU, "prompt",
        GRPO.format(rewards="[accuracy]"), "extra trl {", "  remove_unused_columns = true", "}"),
    one("loss-of-nothing", "the loss is 0", CPU, "preference",
        "method dpo(loss=[sigmoid(weight=0), sft(weight=0)])"),
    one("evaluation-in-parts-of-0", "modulo by zero", CPU, "text", "data(holdout=25%)", "eval(every=1)",
        put=(("eval_accumulation_steps", 0),)),
    one("temperature-of-0", "the loss is nan", CPU, "preference", "method dpo(loss=discopop)",
        put=(("discopop_tau", 0.0),)),
    one("legal-packed", "", TWO, "text", "model(attn=sdpa)", "strategy ddp", batch=", packing(isolate=mask)"),
    one("legal-flash", "", GPU, "text", "model(attn=flash2)", precision="bf16", batch=", packing"),
    one("legal-bits", "", GPU, "messages", "qlora", TEMPLATE, precision="bf16"),
    one("legal-zero", "", "2 x a100-80gb", "text", "strategy zero3", precision="bf16"),
    one("legal-pairs", "", TWO, "preference", "strategy ddp", "method dpo"),
    one("legal-freeze", "", CPU, "text", "freeze(except_last=1)"),
    one("legal-copied-norm", "", CPU, "messages", "lora(modules_to_save=[norm])", "optimizer adamw(weight_decay=0.1)",
        TEMPLATE),
    one("legal-grpo", "", CPU, "prompt", GRPO.format(rewards="[accuracy, format]")),
    one("reference-by-fsdp1", "has no attribute '_module_classes_to_ignore'", "2 x a100-80gb", "preference",
        "strategy fsdp", "method dpo", precision="bf16", target="trl-0.24", library=True),
    one("legal-reference-by-fsdp", "", "2 x a100-80gb", "preference", "strategy fsdp", "method dpo", precision="bf16",
        target="trl-0.24"),
    one("legal-reference-by-fsdp-grpo", "", "2 x a100-80gb", "prompt", "strategy fsdp",
        "method grpo(generations=2, max_completion=8, beta=0.04, rewards=format)", precision="bf16", target="trl-0.24"),
    *(found for target in OTHERS if not load(target).facts.isolate_mask for found in of_an_older_stack(target)),
)  # fmt: skip


def _put(folder: str, arguments: dict[str, float]) -> None:
    path = os.path.join(folder, "trainer_args.json")
    with open(path, encoding="utf-8") as handle:
        plan = json.load(handle)
    plan["arguments"].update(arguments)
    put(folder, {"trainer_args.json": json.dumps(plan)})


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> str:
    return put(str(tmp_path_factory.mktemp("silent")), generated.FILES)


@pytest.fixture(scope="module")
def answers(location: str) -> Callable[[str, bool], dict[str, Any]]:
    """Return a function that returns the problems of each specimen of a target. The problems are computed only once."""

    @cache
    def of(target: str, nightly: bool) -> dict[str, Any]:
        interpreter(target)
        looker = Looker(target, 1)
        for specimen in SPECIMENS:
            if specimen.target == target and specimen.nightly is nightly:
                # on the CPU, the function `step` replaces FSDP if the number is odd
                number = 0 if "strategy fsdp" in specimen.lines else 1
                job = step(specimen.name, specimen.text, location, number)[1]
                _put(job["folder"], dict(specimen.put))
                looker.send({**job, "eager": True, "timeout": 600, "library": specimen.library}, most=40)
        found = {answer["id"]: answer for answer in looker.collect()}
        looker.close()
        return found

    return of


EACH = [pytest.param(one, id=one.name, marks=pytest.mark.nightly if one.nightly else ()) for one in SPECIMENS]


@pytest.mark.parametrize("specimen", EACH)
def test_a_step_tells_what_is_other_than_stated(
    specimen: Specimen, answers: Callable[[str, bool], dict[str, Any]]
) -> None:
    answer = answers(specimen.target, specimen.nightly)[specimen.name]
    raised = answer["raised"]
    output = [*answer["silent_effects"], *([raised["message"]] if raised else [])]
    if not specimen.says:
        assert output == [], answer["output"]
    else:
        assert any(re.search(specimen.says, line) for line in output), (output, answer["output"])


@pytest.mark.parametrize("summed", [False, True])
def test_a_step_that_is_a_sum_instead_of_a_mean_shows(summed: bool) -> None:
    import torch
    from silent_effect_loss import Scale

    model = torch.nn.Linear(3, 1)
    model.config = SimpleNamespace()  # type: ignore[assignment]
    trainer: Any = SimpleNamespace(
        model=model, compute_loss=lambda model, given: (model(given["x"]) ** 2).mean(),
        compute_loss_context_manager=contextlib.nullcontext,
        accelerator=SimpleNamespace(sync_gradients=True),
    )  # fmt: skip
    plan = {"arguments": {}, "method": {"name": "dpo"}, "run": {"zero_stage": 0}, "model": {"dtype": "float32"}}
    scale = Scale(SimpleNamespace(plan=plan, sharded=False), trainer)
    for number in range(2):
        given = {"x": torch.full((4, 3), 1.0 + number)}
        scale.before(given)
        loss = trainer.compute_loss(model, given) / (1 if summed else 2)
        loss.backward()
        scale.after(float(loss.detach()))
    output = scale.problems()
    assert [line.split()[2] for line in output] == (["loss", "gradient"] if summed else [])
