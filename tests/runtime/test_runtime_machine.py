"""The preflight reports what is wrong with the drivers, compilers and GPUs of a machine. The tests simulate such
machines.
"""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from runtime_bundles import bundle_of, plan, source

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import compile_text
from xpc.runtime.core import machine
from xpc.runtime.core.feature import Bundle
from xpc.runtime.features.distributed import all_reduce, deepspeed, node_all_reduce


def program(folder: Path, name: str, text: str = "exit 0") -> None:
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    return pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("raised", "visible", "words"),
    [
        (
            RuntimeError("Found no NVIDIA driver.\nSee"),
            None,
            ": Found no NVIDIA driver. (",
        ),
        (
            RuntimeError("The driver is too old (12020)"),
            "0",
            ": The driver is too old (12020)",
        ),
        (
            AssertionError("Torch not compiled with CUDA enabled"),
            None,
            ": Torch not compiled with CUDA enabled (torch 2",
        ),
        (RuntimeError("No CUDA GPUs are available"), "", ": CUDA_VISIBLE_DEVICES hides them all"),
        (None, None, ""),
    ],
)
def test_why_torch_sees_no_gpu(
    monkeypatch: pytest.MonkeyPatch, raised: Exception | None, visible: str | None, words: str
) -> None:
    def init() -> None:
        if raised is not None:
            raise raised

    torch = SimpleNamespace(cuda=SimpleNamespace(init=init), __version__="2.13.0")
    # Importing the real module takes longer than all tests of this file.
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert machine.no_gpu_reason().startswith(words)
    assert bool(machine.no_gpu_reason()) == bool(words)


@pytest.mark.slow
def test_a_build_without_cuda_says_so(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.version.cuda is not None:
        pytest.skip("this build of torch has CUDA")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert machine.no_gpu_reason() == f": Torch not compiled with CUDA enabled (torch {torch.__version__})"


def test_an_older_python_is_reported_of_before_anything_is_imported(tmp_path: Path) -> None:
    started = "import sys; sys.version_info = (3, 10, 4); import xpc.runtime.core.bundle"
    done = subprocess.run([sys.executable, "-c", started], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: Python 3.11 or later is needed, and ")


@pytest.mark.parametrize(
    ("built", "gpu", "runs"),
    [
        (["sm_75", "sm_80", "sm_90"], (7, 0), False),  # a V100, and a torch that has no kernels for V100
        (["sm_70", "sm_80"], (7, 0), True),
        (["sm_80"], (8, 6), True),
        (["sm_86"], (8, 0), False),
        ([], (7, 0), True),
        (["sm_90a", "compute_90"], (9, 0), True),
    ],
)
def test_a_gpu_needs_kernels_of_its_architecture(built: list[str], gpu: tuple[int, int], runs: bool) -> None:
    assert machine.has_kernels(built, *gpu) is runs


def zero(extension: str | None) -> Bundle:
    facts = plan("tiny", [source("d.jsonl")], zero=2)
    facts["run"]["deepspeed_extension"] = extension
    return bundle_of("/b", facts)


def test_the_extension_that_the_optimizer_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepspeed, "_prebuilt", set)
    monkeypatch.setattr(deepspeed, "missing", lambda cuda: ["ninja is not on PATH (pip install ninja)"])
    assert deepspeed.DeepSpeed().check_build_tools(zero("fused_adam")) == [
        "DeepSpeed compiles its fused_adam when this run starts, and ninja is not on PATH (pip install ninja)"
    ]
    assert "its cpu_adam when" in deepspeed.DeepSpeed().check_build_tools(zero("cpu_adam"))[0]
    monkeypatch.setattr(deepspeed, "_prebuilt", lambda: {"fused_adam"})
    assert deepspeed.DeepSpeed().check_build_tools(zero("fused_adam")) == []
    assert deepspeed.DeepSpeed().check_build_tools(zero("cpu_adam")) != []
    assert deepspeed.DeepSpeed().check_build_tools(zero(None)) == []


@pytest.mark.parametrize(
    ("more", "extension"),
    [
        ("hardware 2 x a100-80gb\nstrategy zero2", "fused_adam"),
        ("hardware 2 x a100-80gb\nstrategy zero2(offload=optimizer)", "cpu_adam"),
        # this optimizer is in transformers, so no package is needed
        ("hardware 2 x a100-80gb\nstrategy zero2\noptimizer sgd(lr=1e-3)", None),
        ("hardware 2 x a100-80gb\nstrategy ddp", None),
        ("hardware 2 x cpu\nstrategy zero2\nprecision fp32", None),  # this Adam is torch's own, so nothing is compiled
    ],
)
def test_the_bundle_says_which_extension_that_is(more: str, extension: str | None) -> None:
    text = f"""xpc 1
train qwen2.5-0.5b on no-robots for 1 epoch
batch gbs=32 micro=4 seq=1024
save "out/run"
{more}
"""
    files, checked = compile_text(text.encode(), "t.xp", Workspace("."))
    assert files is not None, checked.problems
    assert json.loads(files["trainer_args.json"])["run"]["deepspeed_extension"] == extension


def test_what_a_deepspeed_was_built_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepspeed, "find_spec", lambda _: SimpleNamespace(origin=str(tmp_path / "__init__.py")))
    assert deepspeed._prebuilt() == set()
    text = "version='0.19.8'\ninstalled_ops={'cpu_adam': True, 'fused_adam': False}\n"
    (tmp_path / "git_version_info_installed.py").write_text(text)
    assert deepspeed._prebuilt() == {"cpu_adam"}
    monkeypatch.setattr(deepspeed, "find_spec", lambda _: None)
    assert deepspeed._prebuilt() == set()


@pytest.mark.slow
def test_what_compiles_an_extension(torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils import cpp_extension

    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("DS_SKIP_CUDA_CHECK", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr(deepspeed.sys, "executable", str(tmp_path / "env" / "python"))
    assert deepspeed.missing(cuda=False) == [
        "ninja is not on PATH (pip install ninja)",
        "there is no C++ compiler (c++ is not on PATH)",
    ]
    # an environment that is not activated has ninja next to its interpreter, and not on PATH
    program(tmp_path / "env", "ninja")
    assert deepspeed.missing(cuda=False)[0] == f"ninja is not on PATH (put {tmp_path / 'env'} on PATH)"
    monkeypatch.setenv("PATH", f"{tmp_path / 'env'}:{tmp_path / 'bin'}:/bin:/usr/bin")
    program(tmp_path / "bin", "c++")
    assert deepspeed.missing(cuda=False) == []
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert deepspeed.missing(cuda=False) == ["there is no C++ compiler (no-such-compiler is not on PATH)"]
    monkeypatch.delenv("CXX")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    assert "no CUDA toolkit fits" in deepspeed.missing(cuda=True)[0]
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", str(tmp_path / "cuda"))
    assert "nvcc" in deepspeed.missing(cuda=True)[0]
    program(tmp_path / "cuda" / "bin", "nvcc", "echo 'Cuda compilation tools, release 11.8, V11.8.89'")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    (reported,) = deepspeed.missing(cuda=True)
    assert "Installed CUDA version 11.8 does not match the version torch was compiled with 13.0" in reported
    monkeypatch.setattr(torch.version, "cuda", "11.7")
    assert deepspeed.missing(cuda=True) == []


def tries_gpus(bundle: Bundle) -> bool:
    return any(isinstance(feature, all_reduce.AllReduce) for feature in bundle.features)


def test_the_gpus_of_one_node_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = plan("tiny", [source("d.jsonl")])
    # the unchanged plan is for a CPU
    assert not tries_gpus(bundle_of("/b", facts))
    facts["run"].update(device="cuda", processes_per_node=8)
    bundle = bundle_of("/b", facts)
    assert tries_gpus(bundle)
    monkeypatch.setattr(all_reduce, "measure_node", lambda count: 212.0)
    assert all_reduce.AllReduce().check_gpu_links(bundle) == []
    assert capsys.readouterr().out == "[run] all-reduce over the 8 GPUs of this node: nccl 2.1e+02 GB/s\n"

    def fails(count: int) -> float:
        raise RuntimeError("invalid usage\nof something")

    monkeypatch.setattr(all_reduce, "measure_node", fails)
    assert all_reduce.AllReduce().check_gpu_links(bundle) == []
    assert "warning: not possible (invalid usage)" in capsys.readouterr().out


def test_gpus_that_hang_end_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the all-reduce does not end, a thread ends the process by `os._exit`. In this test, `os._exit` is replaced."""
    facts = plan("tiny", [source("d.jsonl")])
    facts["run"].update(device="cuda", processes_per_node=8)
    left, ended = threading.Event(), []

    def leave(status: int) -> None:
        ended.append(status)
        left.set()

    monkeypatch.setattr(all_reduce.os, "_exit", leave)
    monkeypatch.setattr(all_reduce, "PATIENCE", 0.01)
    monkeypatch.setattr(all_reduce, "measure_node", lambda count: float(left.wait(60)))
    all_reduce.AllReduce().check_gpu_links(bundle_of("/b", facts))
    assert ended == [1]
    assert "error: NCCL hangs between the 8 GPUs of this node" in capsys.readouterr().err
    facts["run"].update(nodes=2)  # with several nodes, each node reports its hang to all others
    monkeypatch.setattr(node_all_reduce, "bounded", lambda work: {})
    monkeypatch.setattr(node_all_reduce, "thread_hangs", True)
    assert "NCCL hangs between the 8 GPUs" in node_all_reduce.NodeAllReduce().check_gpu_links(bundle_of("/b", facts))[0]
