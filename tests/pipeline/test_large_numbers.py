"""Large numbers and long texts are checked quickly: no loop runs as often as the value of a number, and no time grows
with the square of a text's length.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from case_support import ROW, spec
from compile_support import CONFIG, checked, codes, errors, only, put, shown
from cpu import TooLong, limited

from xpc.compiler.plan.divisors import divisors, factors, largest, nearest

pytestmark = pytest.mark.slow

ONLINE = "qwen2.5-3b on org/x for 3 epochs"
NUMBERS = {
    "hsdp": (spec(strategy="hsdp(shard=1B)"), "XP408", "shard = 8"),
    "tensor_parallel": (
        spec("method grpo(generations=16, rewards=[format], vllm(mode=colocate, tensor_parallel=1B))", train=ONLINE),
        "XP681", "tensor_parallel = 8",
    ),
    "generations": (
        spec("method grpo(generations=7, rewards=[format])", train=ONLINE, batch="gbs=800M micro=100M"),
        "XP660", "generations = 8",
    ),
    "steps_per_generation": (
        spec("method grpo(generations=7, steps_per_generation=1B, rewards=[format])", train=ONLINE),
        "XP660", "generations = 8",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_is_not_counted_up_to(name: str) -> None:
    text, code, better = NUMBERS[name]
    with limited():
        found = checked(text)
    assert f"`{better}`" in (only(found, code).help or ""), shown(found)


def test_a_micro_batch_is_not_counted_up_to() -> None:
    with limited():
        found = checked(spec("model(attn=sdpa)", batch="gbs=800M micro=100M packing(isolate=mask)"))
    assert "XP322" in codes(found), shown(found)


def test_prompts_of_a_large_round(tmp_path: Path) -> None:
    root = put(tmp_path, {"rows.jsonl": '{"prompt": "a"}\n' * 6})
    text = spec("method grpo(generations=8, rewards=[format])", train='qwen2.5-3b on "rows.jsonl" for 3 epochs',
                batch="gbs=800M micro=100M")  # fmt: skip
    with limited():
        found = checked(text, root)
    assert f"`generations = {800_000_000 // 5}`" in (only(found, "XP666").help or ""), shown(found)


@pytest.mark.parametrize("family", ["qwen3_moe", "qwen2"])
def test_a_config_of_many_layers_is_read_quickly(family: str, tmp_path: Path) -> None:
    more = {"num_experts": 8, "moe_intermediate_size": 32, "num_experts_per_tok": 2, "decoder_sparse_step": 3}
    config = {
        **CONFIG,
        **more,
        "model_type": family,
        "num_hidden_layers": 10**9,
        "mlp_only_layers": list(range(50_000)),
    }
    root = put(tmp_path, {"tiny/config.json": json.dumps(config), "rows.jsonl": ROW})
    with limited():
        assert checked(spec(train='"tiny" on "rows.jsonl" for 3 epochs'), root).problems is not None


@pytest.mark.parametrize(
    ("layers", "step", "listed"), [(7, 1, [0, 3]), (7, 2, [0, 1, 9]), (12, 5, [4, 4, -1]), (3, 4, [])]
)
def test_dense_layers_are_those_that_were_counted_one_by_one(layers: int, step: int, listed: list[int]) -> None:
    from xpc.compiler.registry import parameter_counts

    more = {"num_experts": 8, "moe_intermediate_size": 32, "num_experts_per_tok": 2, "decoder_sparse_step": step}
    config = {**CONFIG, **more, "model_type": "qwen3_moe", "num_hidden_layers": layers, "mlp_only_layers": listed}
    shape = parameter_counts._qwen3_moe(parameter_counts.Config(config, "qwen3_moe"))
    assert shape.dense_layers == sum(1 for n in range(layers) if n in listed or (n + 1) % step)


def rows(row: str, many: int) -> str:
    return spec("data mix {\n" + row * many + "}", train="qwen2.5-3b on mix for 3 epochs")


LONG = {
    "silences": rows("  org/x  # xpc: allow XP111 it is known\n", 1600),
    "silences of their own": rows("  # xpc: allow XP111 it is known\n  org/x\n", 1600),
    "silences above each other": rows("  # xpc: allow XP111 it is known\n" * 2500 + "  org/x\n", 1),
    "silences of nothing": rows("  org/x\n", 1) + "".join(f"# xpc: allow XP{n} known\n" for n in range(10_000, 12_500)),
    "modules of an adapter": spec("lora(targets=[" + ", ".join(f"a{n}" for n in range(9000)) + "])"),
    "modules beside one": spec("lora(modules_to_save=[" + ", ".join(f"a{n}" for n in range(9000)) + "])"),
}


@pytest.mark.parametrize("name", LONG)
def test_twice_as_long_is_not_four_times_as_much(name: str) -> None:
    """Each spec in `LONG` is checked within the limit. Before a fix, each check took more than two seconds of CPU
    time.
    """
    with limited():
        assert checked(LONG[name]).problems is not None


def test_the_limit_is_one() -> None:
    with pytest.raises(TooLong), limited(0.05):
        sum(1 for _ in iter(int, 1))


# -- divisors --------------------------------------------------------------------------------------------------------


def test_divisors_are_those_of_a_loop() -> None:
    draw = random.Random(7)
    for number in (*range(1, 400), *(draw.randrange(400, 20_000) for _ in range(40))):
        all_ = [one for one in range(1, number + 1) if number % one == 0]
        to = draw.randrange(1, 2 * number + 2)
        assert divisors(number, number) == all_
        assert largest(to, number) == max(one for one in all_ if one <= to)
        assert nearest(to, number) == min(all_[1:], key=lambda one: abs(one - to), default=None)


def test_divisors_of_large_numbers_are_found_quickly() -> None:
    with limited():
        assert factors(2**63 - 25) == [2**63 - 25]
        assert factors((2**31 - 1) * 6) == [2, 3, 2**31 - 1]
        # `factors` tries primes up to 2**16. Both prime factors of this number are larger.
        assert factors((2**31 - 1) * (2**31 - 19)) == [(2**31 - 1) * (2**31 - 19)]
        assert factors(41**2 * 43**3) == [41, 41, 43, 43, 43]
        assert nearest(7, 10**18, 10**12, 10**9) == 8
        assert largest(10**9, 2**62) == 2**29


def test_a_fraction_of_a_group_is_still_refused() -> None:
    assert "XP660" in errors(checked(spec("method grpo(generations=7, rewards=[format])", train=ONLINE)))


def test_thousands_of_unknown_tasks_are_reported_quickly() -> None:
    names = ", ".join(f"mmlu_profesional_{number}" for number in range(4000))
    with limited():
        found = checked(spec(f"eval(tasks=[{names}])"))
    assert len(errors(found)) == 4000
    assert any(one.edits for one in found.problems)
