"""The sizes of axolotl's groups of processes decide the machines and hybrid sharding. The expected values are the
results of axolotl 0.19's `_get_parallel_config_kwargs`: the number of replicas, and the number of processes that share
a model.
"""

from __future__ import annotations

import pytest
from import_support import imported

FILE = """
base_model: Qwen/Qwen2.5-0.5B
datasets:
  - path: org/rows
    type: chat_template
micro_batch_size: 1
num_epochs: 1
learning_rate: 1.0e-5
flash_attention: true
"""
FSDP = "fsdp_version: 2\nfsdp_config:\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
H100 = "--hardware", "8 x h100-80gb"


@pytest.mark.parametrize(("sizes", "options", "world", "replicas", "shared"), [
    ("dp_shard_size: 16", (), (2, 8), 1, 16),
    ("dp_shard_size: 4", (), (1, 4), 1, 4),
    ("dp_shard_size: 12", (), (1, 12), 1, 12),
    ("dp_shard_size: 16", H100, (2, 8), 1, 16),
    ("dp_shard_size: 8", (*H100, "--nodes", "2"), (2, 8), 2, 8),
    ("dp_shard_size: 4", H100, (1, 8), 2, 4),
    ("dp_shard_size: 8\ndp_replicate_size: 2", (), (2, 8), 2, 8),
    ("dp_shard_size: 2\ndp_replicate_size: 4", H100, (1, 8), 4, 2),
    ("dp_replicate_size: 2", H100, (1, 8), 2, 4),
    ("dp_replicate_size: 2", (*H100, "--nodes", "2"), (2, 8), 2, 8),
    ("dp_shard_size: 2\ncontext_parallel_size: 2", H100, (1, 8), 2, 4),
    ("dp_shard_size: 4\ncontext_parallel_size: 4", (), (2, 8), 1, 16),
    ("dp_shard_size: 1\ndp_replicate_size: 1", H100, (1, 8), 1, 8),
    ("context_parallel_size: 2", H100, (1, 8), 1, 8),
])  # fmt: skip
def test_sizes_of_groups_decide_the_strategy(
    sizes: str, options: tuple[str, ...], world: tuple[int, int], replicas: int, shared: int
) -> None:
    found = imported(f"{FILE}{FSDP}{sizes}\n", *options)
    assert not found.draft.wrong, found.messages
    settings = {path: one.text for path, one in found.draft.settings.items()}
    assert (settings["nodes"], settings["hardware"]) == (str(world[0]), f"{world[1]} x h100-80gb")
    assert settings["strategy"] == ("hsdp" if replicas > 1 else "fsdp")
    assert replicas * shared == world[0] * world[1]
    assert settings.get("strategy.shard") == (str(shared) if replicas > 1 else None)


@pytest.mark.parametrize(("more", "options"), [
    (f"{FSDP}dp_shard_size: 16\n", (*H100, "--nodes", "1")),
    (f"{FSDP}dp_shard_size: 3\n", (*H100, "--nodes", "1")),
    (f"{FSDP}dp_shard_size: 2\ndp_replicate_size: 2\n", H100),
    ("dp_shard_size: 8\n", H100),
    ("dp_replicate_size: 2\n", H100),
    (f"{FSDP}tensor_parallel_size: 2\n", H100),
])  # fmt: skip
def test_sizes_that_axolotl_refuses(more: str, options: tuple[str, ...]) -> None:
    assert imported(FILE + more, *options).draft.wrong


def test_replicas_without_fsdp_are_those_of_ddp() -> None:
    found = imported(FILE + "dp_replicate_size: 8\n", *H100)
    assert not found.draft.wrong, found.messages
    assert found.draft.settings["strategy"].text == "ddp"


@pytest.mark.parametrize("key", ["forward_prefetch: true", "use_orig_params: false"])
def test_fsdp2_does_not_read_keys_of_fsdp1(key: str) -> None:
    found = imported(f"{FILE}{FSDP}  {key}\n", *H100)
    assert not found.errors
    assert "accelerate" not in found.draft.extra
    assert imported(f"{FILE}{FSDP}  {key}\n".replace("fsdp_version: 2", "fsdp: [full_shard]"), *H100).draft.extra


def test_the_target_of_an_import_is_stated() -> None:
    assert "target trl-0.24" in imported(FILE, "--target", "trl-0.24").text


@pytest.mark.parametrize("off", ["", "fsdp:\n", "fsdp: []\n", "fsdp: false\n"])
def test_fsdp_config_turns_fsdp_on_without_fsdp(off: str) -> None:
    """Source: axolotl 0.19.0, core/builders/base.py."""
    found = imported(f"{FILE}{off}{FSDP}", *H100)
    assert found.draft.settings["strategy"].text == "fsdp"
