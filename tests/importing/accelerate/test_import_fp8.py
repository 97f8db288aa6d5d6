"""axolotl, LLaMA-Factory and accelerate can train in fp8. Their fp8 settings become `precision fp8` if a bundle can use
the same fp8 recipe.
"""

from __future__ import annotations

import pytest
from import_support import HARDWARE, imported

AX = (
    "base_model: Qwen/Qwen2.5-3B\ndatasets:\n  - path: org/chat\n    type: chat_template\nsequence_len: 2048\n"
    "micro_batch_size: 2\ngradient_accumulation_steps: 4\nnum_epochs: 4\nlearning_rate: 0.0002\nbf16: auto\n"
    "output_dir: ./out\nfp8: true\n"
)
FSDP2 = "fsdp_version: 2\nfsdp_config:\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
LF = (
    "model_name_or_path: Qwen/Qwen3-4B-Instruct-2507\nstage: sft\ndo_train: true\nfinetuning_type: full\n"
    "dataset: identity\ntemplate: qwen3_nothink\ncutoff_len: 1024\noutput_dir: saves/x\nbf16: true\nfp8: true\n"
)
ACCELERATE = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: fp8\nnum_processes: 8\n"
    "fp8_config:\n  backend: {backend}\n  enable_fsdp_float8_all_gather: true\n  pad_inner_dim: true\n"
)
TRL = (
    "model_name_or_path: Qwen/Qwen2.5-3B\ndataset_name: trl-lib/Capybara\noutput_dir: out\n"
    "per_device_train_batch_size: 2\nlearning_rate: 2.0e-5\nbf16: false\n"
)


@pytest.mark.parametrize(
    ("text", "gathers"),
    [
        (AX, False),
        (AX + "fp8_enable_fsdp_float8_all_gather: true\n" + FSDP2, True),
        (LF + "fp8_backend: torchao\nfp8_enable_fsdp_float8_all_gather: false\n", False),
        (LF + "fp8_backend: auto\n", False),
    ],
)
def test_fp8_of_a_trainer_is_the_precision(text: str, gathers: bool) -> None:
    found = imported(text, *HARDWARE)
    assert found.payload["run"]["fp8"] == {"all_gather": gathers}
    assert found.payload["model"]["dtype"] in ("bfloat16", "float32")
    assert not [one for one in found.draft.messages if "fp8" in one.text]


@pytest.mark.parametrize(
    ("more", "arguments", "why"),
    [
        ("adapter: lora\nlora_r: 16\nlora_alpha: 16\nlora_target_linear: true\n", (), "adapters cannot be combined"),
        ("deepspeed: deepspeed_configs/zero2.json\n", (), "zero2 cannot be combined"),
        ("", ("--target", "trl-0.24"), "trl-0.24 cannot train in fp8"),
    ],
)
def test_fp8_that_no_bundle_has_is_a_comment(more: str, arguments: tuple[str, ...], why: str) -> None:
    found = imported(AX + more, *HARDWARE, *arguments)
    assert found.arguments["bf16"] is True
    assert found.outcomes["fp8"] == "reserved"
    assert why in found.text


def test_fp8_that_is_off_changes_nothing() -> None:
    found = imported(AX.replace("fp8: true", "fp8: false") + "fp8_enable_fsdp_float8_all_gather: true\n", *HARDWARE)
    assert found.arguments["bf16"] is True
    assert found.outcomes["fp8_enable_fsdp_float8_all_gather"] == "irrelevant"


@pytest.mark.parametrize(("backend", "name"), [("te", "Transformer Engine"), ("msamp", "MS-AMP")])
def test_other_libraries_are_refused_by_name(backend: str, name: str) -> None:
    found = imported(LF + f"fp8_backend: {backend}\n", *HARDWARE)
    assert any(f"a bundle has no {name}" in one.text for one in found.draft.messages)


@pytest.mark.parametrize(("backend", "refused"), [("AO", False), ("TE", True)])
def test_fp8_of_accelerates_file_becomes_the_precision_or_is_refused(backend: str, refused: bool, tmp_path) -> None:
    (tmp_path / "accelerate.yaml").write_text(ACCELERATE.format(backend=backend), encoding="utf-8")
    found = imported(TRL, "--accelerate", str(tmp_path / "accelerate.yaml"))
    if refused:
        assert any("a bundle has no Transformer Engine" in one.text for one in found.draft.messages)
    else:
        assert found.payload["run"]["fp8"] == {"all_gather": False}


def test_fp8_config_without_fp8_is_not_read(tmp_path) -> None:
    text = ACCELERATE.format(backend="TE").replace("mixed_precision: fp8", "mixed_precision: bf16")
    (tmp_path / "accelerate.yaml").write_text(text, encoding="utf-8")
    found = imported(TRL.replace("false", "true"), "--accelerate", str(tmp_path / "accelerate.yaml"))
    assert found.arguments["bf16"] is True
