"""The runtime checks four things without the training libraries: the metrics file, the installed versions, the disk,
and its own arguments.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from math import isnan
from pathlib import Path
from types import SimpleNamespace

import pytest
from runtime_bundles import ROOT, environment, plan, small_bundle, source, write

from xpc.runtime.core import preflight
from xpc.runtime.core import run as program


@pytest.mark.slow
def test_the_metrics_file_is_cut_back_to_the_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from xpc.runtime.core.metrics_file import trim

    path = tmp_path / "metrics.jsonl"
    events = [{"step": step, "loss": 1.0, "seconds": step * 2.0, "tokens": step * 100.0} for step in (1, 2, 3, 4)]
    path.write_text("".join(json.dumps(event) + "\n" for event in events) + '{"step": 5, "lo')
    trim(str(path), 2)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2]
    trim(str(tmp_path / "none"), 2)
    assert (tmp_path / "none").read_text() == ""


def test_the_best_evaluation_is_reported_where_its_weights_are_saved(tmp_path: Path) -> None:
    from xpc.runtime.features.evaluation.during_training import Evaluation

    last_evaluation = Evaluation().last_evaluation

    bundle, path = small_bundle(tmp_path), str(tmp_path / "metrics.jsonl")
    events = [{"step": 2, "eval_loss": 4.0}, {"step": 4, "eval_loss": 5.0}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    state = SimpleNamespace(best_global_step=2, best_metric=4.0, best_model_checkpoint="out/checkpoint-2")
    assert last_evaluation(bundle, path, state) == ({"step": 4, "eval_loss": 5.0}, "eval loss  5.0000\n")
    bundle.arguments.update(load_best_model_at_end=True, metric_for_best_model="loss")
    found, line = last_evaluation(bundle, path, state)
    assert found == {"step": 4, "eval_loss": 5.0, "best_step": 2, "best": 4.0}
    assert line.endswith("best       eval_loss 4.0000 at step 2: its weights are saved\n")
    (tmp_path / "metrics.jsonl").write_text("")
    assert last_evaluation(bundle, path, state) == (None, "")


def test_a_metric_of_an_evaluation_is_never_none() -> None:
    """trl 1.16 reports None if every reward is None, and transformers would compare None with the best metric."""
    from xpc.runtime.features.evaluation.during_training import EvaluatingTrainer

    class Evaluated:
        def evaluate(self, *given: object) -> dict[str, float | None]:
            return {"eval_loss": 0.5, "eval_reward": None}

    found = type("Trainer", (EvaluatingTrainer, Evaluated), {"__init__": lambda self: None})().evaluate()
    assert found["eval_loss"] == 0.5
    assert isnan(found["eval_reward"])


def test_an_evaluation_set_without_a_row_left_stops_the_run(tmp_path: Path) -> None:
    from xpc.runtime.core.errors import RunError
    from xpc.runtime.features.evaluation.during_training import Evaluation

    bundle, made = small_bundle(tmp_path), Evaluation().trainer_made
    made(bundle, SimpleNamespace(eval_dataset={"near": [1], "far": iter(())}), None)
    with pytest.raises(RunError, match="nothing is left to evaluate in far"):
        made(bundle, SimpleNamespace(eval_dataset={"near": [1], "far": []}), None)
    with pytest.raises(RunError, match="nothing is left to evaluate:"):
        made(bundle, SimpleNamespace(eval_dataset=[]), None)


def test_versions_are_held_against_the_pins(tmp_path: Path) -> None:
    from importlib.metadata import version

    real = version("attrs")
    found = preflight.versions(small_bundle(tmp_path, f"attrs=={real}\npytest==0.1\nno-such-package==3\n"))
    assert len(found) == 2
    assert "pytest" in found[0]
    assert found[1].startswith("no-such-package 3 is not installed")


def test_too_small_a_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk is too small for checkpoints, or the hub's cache for the model; files of an earlier download count."""
    bundle = small_bundle(tmp_path)
    assert preflight.disk(bundle) == []
    bundle.run["disk"] = {"model": 2**30, "checkpoint": 2**60, "checkpoints": 2, "download": 0}
    assert "(2 checkpoints at once" in preflight.disk(bundle)[0]
    bundle.model["id"], blobs = "org/large", tmp_path / "hub/models--org--large/blobs"
    bundle.run["disk"] = {"model": 0, "checkpoint": 0, "checkpoints": 0, "download": 2**60}
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert "1073741824.00 GiB will be written to" in preflight.disk(bundle)[0]
    blobs.mkdir(parents=True)
    (blobs / "a").write_bytes(b"-" * 1024)
    before = preflight._size(str(blobs.parent))
    (blobs / "model.safetensors").symlink_to(blobs / "a")  # the hub's snapshots are links to blobs
    assert before == 1024 > preflight._size(str(blobs.parent)) - before
    bundle.run["disk"]["download"] = shutil.disk_usage(tmp_path).total + 1024
    assert preflight.disk(bundle)[0].endswith("(the model of the hub); set HF_HUB_CACHE")
    bundle.run["disk"]["download"] = 1024 + 2**20
    assert preflight.disk(bundle) == []
    bundle.run["disk"]["download"] = 2**60
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert preflight.disk(bundle) == []


@pytest.mark.parametrize(
    ("needed", "limit", "warned"), [(2**30, "max", False), (2**50, "max", True), (2**30, "5", True)]
)
def test_too_little_memory_is_warned_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], needed: int, limit: str,
    warned: bool,
) -> None:  # fmt: skip
    """The machine's RAM or a container's limit is below the bytes that the plan has computed."""
    bundle = small_bundle(tmp_path)
    bundle.run["host_memory"] = needed
    (tmp_path / "limit").write_text(f"{limit}\n")
    monkeypatch.setattr(preflight, "CONTAINER", str(tmp_path / "limit"))
    preflight.memory(bundle)
    assert ("warning: the run needs" in capsys.readouterr().out) == warned


def test_other_arguments_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(str(tmp_path), ["--max_steps=1"]) == 2
    assert "only --preflight" in capsys.readouterr().out


@pytest.mark.slow
def test_the_wrong_world_stops_before_anything_is_imported(tmp_path: Path) -> None:
    write(str(tmp_path), plan("tiny", [source("d.jsonl")], world=2))
    main = os.path.join(str(tmp_path), "trainer", "main.py")
    code = f"import runpy, sys; sys.argv = [{main!r}]\ntry: runpy.run_path({main!r}, run_name='__main__')\n"
    code += "except SystemExit as e: assert e.code == 1\nassert 'torch' not in sys.modules and 'xpc' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False, cwd=str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("error: the launcher started 1 process(es)")


def test_the_runtime_never_imports_the_compiler() -> None:
    for path in Path(ROOT, "runtime").rglob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert not [line for line in lines if "xpc." in line and "import" in line], path


@pytest.mark.slow
def test_everything_that_the_runtime_imports_is_pinned() -> None:
    import ast

    from xpc.compiler import stacks

    # Every bundle requires these packages.
    always = {"torch", "transformers", "trl", "accelerate", "datasets"}
    # These two packages are required on every target, but only if a spec uses them.
    known = always | {"deepspeed", "liger-kernel"}
    # Each of these packages is required only if a spec uses it, and not on every target.
    optional = {"huggingface-hub", "kernels", "peft", "math-verify", "latex2sympy2-extended", "lm-eval", "PIL"}
    optional |= {"wandb", "mlflow", "swanlab", "clearml", "torchao", "bitsandbytes"}
    for target in stacks.names():
        loaded = stacks.load(target)
        assert loaded is not None
        assert always <= set(loaded.requirements()), target
        assert known <= set(loaded.requirements("zero", "liger")), target
    seen = set()
    for path in Path(ROOT, "runtime").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                seen |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                seen.add(node.module.partition(".")[0])
    foreign = {name.replace("_", "-") for name in seen - set(sys.stdlib_module_names)}
    # These packages come with others: jinja2 with torch, psutil with accelerate, tokenizers and safetensors with
    # transformers, and numpy, pyarrow and tqdm with datasets.
    required = {"jinja2", "psutil", "numpy", "pyarrow", "tokenizers", "safetensors", "tqdm"}
    assert foreign <= known | optional | required
