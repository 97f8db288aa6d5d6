"""The argument names in a TRL file show for which versions of TRL it may have been written. If an argument has
different defaults in these versions, the import warns. `--trl VERSION` says which version's defaults to use.
"""

from __future__ import annotations

import pytest
from import_support import HARDWARE, HEAD, imported

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.importing.trl import versions

GRPO = HEAD + "reward_funcs: [accuracy]\nnum_generations: 8\n"


@pytest.mark.parametrize(
    ("method", "names", "first", "last"),
    [
        ("grpo", ("vllm_device",), "0.14", "0.15"),
        ("grpo", ("max_prompt_length",), "0.14", "0.27"),
        ("grpo", ("vllm_mode", "max_prompt_length"), "0.18", "0.27"),
        ("grpo", ("steps_per_generation", "importance_sampling_level"), "0.20", "1.16"),
        ("grpo", ("multi_objective_aggregation",), "0.27", "1.16"),
        ("grpo", ("bf16", "learning_rate", "use_liger_kernel"), "0.14", "1.16"),
        ("sft", ("max_seq_length",), "0.9", "0.19"),
        ("sft", ("max_seq_length", "dataset_batch_size"), "0.9", "0.17"),
        ("dpo", ("is_encoder_decoder",), "0.9", "0.14"),
        ("dpo", ("use_weighting", "rpo_alpha"), "0.12", "0.28"),
        ("kto", ("desirable_weight", "max_completion_length"), "0.9", "0.26"),
        ("sft", ("evaluation_strategy",), "0.9", "0.12"),
    ],
)
def test_names_date_a_file(method: str, names: tuple[str, ...], first: str, last: str) -> None:
    from xpc.compiler.importing.text.entries import Entry

    found = versions.possible(method, {name: Entry(name, True, "a.yaml", 1) for name in names})
    assert (found[0], found[-1]) == (first, last)


def warned(found: object) -> str:
    return next((one for one in found.messages if "several versions of TRL" in one), "")


def test_open_date_is_reported_with_the_value_that_is_taken() -> None:
    found = imported(GRPO + "max_prompt_length: 512\n", *HARDWARE)
    assert "beta = 0.04 (trl 0.14 to 0.18), 0.0 (trl 0.19 to 0.27)" in warned(found)
    assert "loss_type = grpo (trl 0.14 to 0.15), bnpo (trl 0.16 to 0.21), dapo (trl 0.22 to 0.27)" in warned(found)
    assert "The spec has the defaults of trl 0.18" in warned(found)
    assert "# beta: not set" in found.text
    assert found.arguments["beta"] == 0.04


def test_stated_values_are_not_listed() -> None:
    found = imported(GRPO + "max_prompt_length: 512\nbeta: 0.1\nloss_type: grpo\n", *HARDWARE)
    assert "temperature =" in warned(found)
    assert "beta =" not in warned(found)
    assert "loss_type =" not in warned(found)


@pytest.mark.parametrize(
    ("version", "beta", "loss", "temperature"),
    [("0.14", 0.04, "grpo", 0.9), ("0.16.0", 0.04, "bnpo", 0.9), ("0.18", 0.04, "bnpo", 1.0),
     ("0.20", 0.0, "bnpo", 1.0), ("0.22", 0.0, "dapo", 1.0), ("trl-1.16", 0.0, "dapo", 1.0)],
)  # fmt: skip
@pytest.mark.parametrize("target", ["trl-1.16", None])
def test_option_decides(version: str, beta: float, loss: str, temperature: float, target: str | None) -> None:
    more = ("--target", target) if target else ()
    found = imported(GRPO, *HARDWARE, "--trl", version, *more)
    assert not warned(found)
    got = found.arguments
    assert (got["beta"], got["loss_type"], got["temperature"]) == (beta, loss, temperature)


def test_first_grpo_accumulated_eight_micro_batches_of_one() -> None:
    found = imported(GRPO, *HARDWARE, "--trl", "0.14")
    assert (found.arguments["per_device_train_batch_size"], found.arguments["gradient_accumulation_steps"]) == (1, 8)


def test_dpo_without_lengths_had_those_of_its_trainer() -> None:
    found = imported(HEAD + "beta: 0.1\n", *HARDWARE, "--method", "dpo", "--trl", "0.12")
    assert found.arguments["max_length"] == 512
    assert found.arguments["learning_rate"] == 1e-6
    assert (
        imported(HEAD + "beta: 0.1\n", *HARDWARE, "--method", "dpo", "--trl", "0.11").arguments["learning_rate"] == 5e-5
    )


def test_precision_moved_with_0_19() -> None:
    assert imported(HEAD, *HARDWARE, "--trl", "0.18").arguments["bf16"] is False
    assert imported(HEAD, *HARDWARE, "--trl", "0.19").arguments["bf16"] is True


def test_dated_file_without_moved_defaults_says_nothing() -> None:
    whole = ("beta: 0.1\nmax_length: 1024\nmax_prompt_length: 512\nlearning_rate: 1e-6\nbf16: true\n"
             "average_tokens_across_devices: true\ntruncation_mode: keep_end\n")  # fmt: skip
    assert not warned(imported(HEAD + whole, *HARDWARE, "--method", "dpo"))


def test_unknown_version_is_refused() -> None:
    with pytest.raises(UsageError, match=r"the versions are 0\.9"):
        imported(GRPO, *HARDWARE, "--trl", "0.5")


@pytest.mark.parametrize(("method", "trl", "kept"), [
    ("orpo", "0.24", True), ("kto", "0.18", True), ("dpo", "0.18", True),
    ("dpo", "1.16", False), ("sft", "0.24", False),
])  # fmt: skip
def test_argument_that_is_a_setting_of_other_methods_only(method: str, trl: str, kept: bool) -> None:
    found = imported(HEAD + "max_completion_length: 200\n", *HARDWARE, "--method", method, "--trl", trl)
    assert found.draft.wrong is not kept, found.messages
    assert not kept or found.arguments["max_completion_length"] == 200


def test_loss_of_routers_is_no_default_of_a_dense_model() -> None:
    dense, experts = HEAD + "bf16: true\n", HEAD.replace("Qwen/Qwen2.5-3B", "Qwen/Qwen3-30B-A3B") + "bf16: true\n"
    assert "router_aux_loss_coef" not in imported(dense, "--trl", "1.8", *HARDWARE).text
    assert "router_aux_loss_coef = 0.001" in imported(experts, "--trl", "1.8", *HARDWARE).text
