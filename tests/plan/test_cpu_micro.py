"""If a run on a CPU states no micro-batch, the compiler chooses the right one."""

from __future__ import annotations

import re

import pytest
from compile_support import checked, errors, put

from xpc.compiler.plan.experiment import plan
from xpc.compiler.tuning import show

ROW = '{"prompt": "2 + 2?", "completion": "4", "label": true}\n'
PAIR = '{"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}\n'
FILES = {"judged.jsonl": ROW + ROW.replace("true", "false"), "pairs.jsonl": PAIR}


@pytest.mark.parametrize(
    ("model", "data", "more", "micro"),
    [
        ("smollm2-135m-instruct", "infinity-instruct", "gbs=64 seq=1024", 8),
        ("smollm2-135m-instruct", "infinity-instruct", "gbs=6 seq=1024", 6),
        ("smollm2-135m-instruct", "infinity-instruct", "gbs=64 seq=8192", 4),
        ("qwen2.5-3b", "infinity-instruct", "gbs=64 seq=1024", 1),
        ("HuggingFaceTB/none", "infinity-instruct", "gbs=64 seq=1024", 1),
        # KTO estimates its KL term from the other rows of a micro-batch, so it needs two
        ("smollm2-135m", '"judged.jsonl"', "method kto gbs=64", 2),
        ("smollm2-135m", '"pairs.jsonl"', "method dpo gbs=64 seq=512", 8),
        # with `rpo`, trl 0.18 averages the loss over the micro-batch, so the micro-batch changes the result
        (
            "smollm2-135m",
            '"pairs.jsonl"',
            "target trl-0.18 method dpo(rpo=0.5) gbs=64 seq=512",
            1,
        ),
    ],
)
def test_a_cpu_gets_rows_that_fit_unless_their_number_is_learned_from(tmp_path, model, data, more, micro) -> None:
    text = f"xpc 1\ntrain {model} on {data} for 1 epoch with {more}\nhardware cpu\n"
    found = checked(text, put(tmp_path, FILES))
    assert not errors(found)
    assert found.spec is not None
    spec = found.spec
    assert (spec.integer("batch.micro"), spec.integer("batch.micro") * spec.integer("batch.accum")) == (
        micro, spec.integer("batch.gbs"),
    )  # fmt: skip


def test_the_plan_of_a_cpu_names_no_gpu_and_shows_small_sizes(tmp_path) -> None:
    text = 'xpc 1\ntrain qwen2.5-0.5b on "rows.jsonl" for 10 steps with lora(rank=1, targets=[q_proj]) gbs=8 seq=64\n'
    found = checked(f"{text}hardware cpu\nsave every=5\n", put(tmp_path, {"rows.jsonl": '{"text": "a b"}\n' * 8}))
    assert found.spec is not None
    lines = show.text([plan(found.spec)]).split("\n")
    assert "memory: unknown, the memory of a CPU process is not planned" in lines
    assert "time: unknown, xpc does not predict the speed of a CPU" in lines
    (saves,) = [line for line in lines if "checkpoints of" in line]
    assert re.fullmatch(r"  2 checkpoints of 0\.\d MiB, \d\.\d MiB to write", saves)
