"""The preflight checks machines, which the tests simulate. Long messages of other libraries are shortened."""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_features import read
from runtime_bundles import bundle_of, of_method, plan, small_bundle, source, write

from xpc.runtime.core import arguments, first_rows, machine, model, preflight
from xpc.runtime.core.errors import RunError
from xpc.runtime.core.feature import Bundle, Feature
from xpc.runtime.core.rows import name as name_of

pytestmark = pytest.mark.slow

V100 = {"name": "v100-32gb", "memory_gib": 31.7, "capability": [7, 0], "device_names": ["V100-SXM2-32GB"]}


def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> list[str]:
    """Run the preflight checks as on a node with two idle V100s; return the findings. ``changes`` replaces facts about
    these GPUs, such as their free memory.
    """
    torch = pytest.importorskip("torch")
    bundle = small_bundle(tmp_path)
    bundle.run.update(device="cuda", gpu=V100, processes_per_node=2, world_size=2)
    facts = {"name": "Tesla V100-SXM2-32GB", "gib": 31.74, "cc": (7, 0), "count": 2, "free": 31.4, "built": ["sm_70"]}
    facts.update(changes)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: facts["count"] > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: facts["count"])
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: facts["built"])
    properties = SimpleNamespace(
        name=facts["name"], total_memory=int(facts["gib"] * 2**30), major=facts["cc"][0], minor=facts["cc"][1]
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (int(facts["free"] * 2**30), 0))
    return machine.devices(bundle)


def test_the_planned_gpus_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpus(tmp_path, monkeypatch) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"count": 0}, "2 GPU(s) are needed, and torch sees none"),
        ({"count": 1}, "2 GPUs are needed on this node, and torch sees 1"),
        ({"name": "NVIDIA A10G"}, "GPU 0 is a NVIDIA A10G, and this bundle is for v100-32gb"),
        ({"cc": (6, 1)}, "GPU 0 has compute capability 6.1, below"),
        ({"built": ["sm_80", "sm_90"]}, "has no kernels for GPU 0 (Tesla V100-SXM2-32GB, compute capability 7.0)"),
        ({"gib": 15.8}, "GPU 0 has 15.8 GiB, but the plan assumes 31.7 GiB"),
        ({"free": 12.0}, "GPU 0 has 12.0 GiB free, but the plan assumes 31.7 GiB: another process uses it"),
    ],
)
def test_other_gpus_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], words: str
) -> None:
    found = gpus(tmp_path, monkeypatch, **changes)
    assert words in found[0]
    assert len(found) == (1 if "count" in changes else 2)  # each GPU has its own finding


def test_every_kind_of_finding_is_reported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = small_bundle(tmp_path)
    bundle.arguments["output_dir"] = str(tmp_path)  # this folder also contains the bundle
    monkeypatch.setattr(machine, "devices", lambda _: ["gpu"])
    monkeypatch.setattr(preflight, "disk", lambda _: ["disk"])
    monkeypatch.setattr(preflight, "rows_and_tokens", lambda _: ["rows"])
    with pytest.raises(RunError) as caught:
        preflight.check(bundle, 0, 0)
    lines = str(caught.value).splitlines()
    assert (lines[0], lines[1], lines[3], lines[4]) == ("4 things stop this run:", "  - disk", "  - gpu", "  - rows")
    assert "contains no run of a bundle" in lines[2]
    bundle.pins = {"no-such-package": "1"}  # GPUs and rows are not checked if the installed versions are wrong
    with pytest.raises(RunError, match="3 things stop this run"):
        preflight.check(bundle, 0, 0)


def test_rows_for_training_and_evaluation_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a source is used both for training and for evaluation, a single line reports its first rows. If the evaluation
    uses another split of the source, this split has its own line."""
    file = {"id": None, "path": "d.jsonl", "config": None, "split": "train", "slice": None}
    hub = {"id": "org/d", "path": None, "config": "math", "split": "train", "slice": None}
    sources = [file, hub, dict(file), {**hub, "split": "test", "slice": "50%"}]
    bundle: Any = SimpleNamespace(sources=lambda: sources, features=())
    read_rows: list[str] = []
    monkeypatch.setattr(model, "load_tokenizer", lambda _: None)
    monkeypatch.setattr(
        first_rows, "_source", lambda _, one, __: read_rows.append(f"{name_of(one)} {one['split']}") or []
    )
    assert first_rows.rows_and_tokens(bundle) == []
    assert read_rows == ["d.jsonl train", "org/d train", "org/d test"]


def test_what_a_feature_cannot_access_is_a_finding_of_the_first_process(tmp_path: Path) -> None:
    bundle = small_bundle(tmp_path)

    class Refused(Feature):
        def check_access(self, bundle: Bundle) -> list[str]:
            return ["the hub refuses the token"]

    bundle.features = (Refused(),)
    assert "the hub refuses the token" in preflight.file_findings(bundle, rank=0, local_rank=0)
    assert "the hub refuses the token" not in preflight.file_findings(bundle, rank=1, local_rank=1)


def test_the_project_of_the_spec_reaches_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = plan("tiny", [source("d.jsonl")])
    facts["arguments"]["report_to"], facts["run"]["project"] = ["wandb"], "apples"
    bundle = read(write(str(tmp_path), facts))
    # prepare_environment changes os.environ; monkeypatch restores these variables at the end of the test
    for name in ("CUDA_VISIBLE_DEVICES", "DS_ACCELERATOR", "TOKENIZERS_PARALLELISM", "WANDB_PROJECT"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.delenv("WANDB_PROJECT")
    arguments.prepare_environment(bundle)
    assert os.environ["WANDB_PROJECT"] == "apples"
    monkeypatch.setenv("WANDB_PROJECT", "mine")  # a value that the user has set is not changed
    arguments.prepare_environment(bundle)
    assert os.environ["WANDB_PROJECT"] == "mine"


def test_only_the_named_messages_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = bundle_of(str(tmp_path), of_method(plan("tiny", [source("d.jsonl")], zero=2), "trl.DPOConfig"))
    mismatch = "Gradient accumulation steps mismatch: GradientAccumulationPlugin has %d, DeepSpeed config has 2."
    accelerate, deepspeed = logging.getLogger("accelerate.accelerator"), logging.getLogger("DeepSpeed")
    before = (list(accelerate.filters), list(deepspeed.filters), deepspeed.level, deepspeed.propagate)
    try:
        for feature in run.features:
            feature.before_imports(run, {})
        deepspeed.setLevel(logging.INFO)
        deepspeed.propagate = caplog.handler not in deepspeed.handlers
        accelerate.warning(mismatch, 1)
        accelerate.warning(mismatch, 4)  # logged, because 4 GPUs contradict the run
        deepspeed.info("cdb=None")
        deepspeed.warning("slow")
        assert [record.getMessage() for record in caplog.records] == [mismatch % 4, "slow"]
    finally:
        accelerate.filters, deepspeed.filters, deepspeed.level, deepspeed.propagate = before
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for feature in run.features:
            feature.libraries_imported(run)
        for module in ("deepspeed.runtime.engine", "trl.trainer", "torch.distributed.c10d_logger", "torch.optim"):
            warnings.warn_explicit(module, FutureWarning, "f.py", 1, module=module)
        for name in ("is_gradient_checkpointing", "gradient_checkpointing_enable", "gradient_checkpointing_disable"):
            warnings.warn_explicit(f"`{name}` is deprecated and ...", FutureWarning, "f.py", 1, module="m")
        warnings.warn_explicit("a user warning", UserWarning, "f.py", 1, module="deepspeed.runtime.engine")
    assert [str(one.message) for one in seen] == ["trl.trainer", "torch.optim", "a user warning"]
