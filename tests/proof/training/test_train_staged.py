"""`launch.sh --stage DIR` downloads from a fake hub into DIR. Then the same run, in a process without a network, reads
everything from DIR.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from emitted import compiled, put
from forks import Forks
from hub_files import HubFiles
from method_runs import tensors
from patience import HUNG
from stacks import environment, interpreter, payload
from tiers import EACH_STACK
from tiny_runs import lines, spec

pytestmark = pytest.mark.slow

BODY = """\
model(config=file("tiny/config.json"))
data corpus {{
  me/rows@{rows} {{
    columns = [messages]
  }}
}}
data held {{
  me/rows[test]@{rows} {{
    columns = [messages]
  }}
}}
eval(every=2, data=held, micro=2)
lora(rank=4)
"""
CARD = b"---\nconfigs:\n- config_name: default\n  data_files:\n  - {split: train, path: train.jsonl}\n" + (
    b"  - {split: test, path: test.jsonl}\n---\n"
)


def files(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


def started(*words: str, cwd: Path, python: str, **variables: str) -> subprocess.CompletedProcess[str]:
    set_to = environment(PYTHON=python, CUDA_VISIBLE_DEVICES="", **variables)
    return subprocess.run(words, cwd=cwd, text=True, capture_output=True, timeout=HUNG, env=set_to, check=False)


@pytest.mark.parametrize("target", EACH_STACK)
def test_a_staged_run_is_the_run_with_the_hub(ground: str, tmp_path: Path, target: str) -> None:
    turns = [json.loads(line) for line in Path(ground, "messages.jsonl").read_text().splitlines()]
    rows = {"README.md": CARD, "train.jsonl": lines(turns[:48]).encode(), "test.jsonl": lines(turns[48:]).encode()}
    for name in ("online", "offline"):
        (tmp_path / name).mkdir()
    stages = ("--stage", str(tmp_path / "staged"))
    with ExitStack() as stack, HubFiles() as hub:
        model = hub.push("models", "me/tiny", {**files(os.path.join(ground, "tiny")), "pytorch_model.bin": b"pickled"})
        data = hub.push("datasets", "me/rows", rows)
        # The spec pins the commits that are now the newest. Two more pushes make newer commits, which the run must not
        # use.
        hub.push("models", "me/tiny", files(os.path.join(ground, "teacher")))
        hub.push("datasets", "me/rows", {**rows, "train.jsonl": rows["test.jsonl"]})
        text = spec(BODY.format(rows=data), data="corpus", target=target).replace('"tiny"', f"me/tiny@{model}")
        put(ground, {f"staged-{target}.xp": text})
        bundle = compiled(text, ground, str(tmp_path / "run.bundle"), f"staged-{target}.xp")
        script, home = os.path.join(bundle, "launch.sh"), {"HF_HOME": str(tmp_path / "home"), **hub.environment}
        # The libraries read the address of the hub when they are imported, so the runs that use the hub share a warm
        # interpreter of their own. The run without a network is a new process in a namespace without a network.
        warm = stack.enter_context(Forks(interpreter(target), environment(CUDA_VISIBLE_DEVICES="", **home)))
        online = started(script, cwd=tmp_path / "online", python=warm.python, **home)
        assert online.returncode == 0, online.stderr[-3000:]

        hub.broken.add(f"/me/tiny/resolve/{model}/model.safetensors")
        cut = started(script, *stages, cwd=tmp_path, python=warm.python, **home)
        assert cut.returncode == 1
        assert f"cannot fetch me/tiny@{model}" in cut.stderr
        assert not (tmp_path / "staged" / "staged.json").exists()
        hub.broken.clear()
        done = started(script, *stages, cwd=tmp_path, python=warm.python, **home)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        assert "staged is complete" in done.stdout
    there = json.loads((tmp_path / "staged" / "staged.json").read_text())
    assert set(there) == {f"me/tiny@{model}", f"me/rows[train]@{data}", f"me/rows[test]@{data}"}
    assert not any(name.endswith(".bin") for one in there.values() for name in one["files"])

    alone = ["unshare", "-rn"] if subprocess.run(["unshare", "-rn", "true"], check=False).returncode == 0 else []
    away = {"HF_HOME": str(tmp_path / "empty"), "HF_HUB_OFFLINE": "0", "XPC_STAGED": "../staged"}
    offline = started(*alone, script, cwd=tmp_path / "offline", python=interpreter(target), **away)
    assert offline.returncode == 0, offline.stdout[-3000:] + offline.stderr[-3000:]
    out = payload(bundle)["arguments"]["output_dir"]
    one, two = (tensors(str(tmp_path / name / out / "adapter_model.safetensors")) for name in ("online", "offline"))
    assert one == two
    events = [
        [
            {key: value for key, value in json.loads(line).items() if "loss" in key or key in ("step", "grad_norm")}
            for line in (tmp_path / name / out / "metrics.jsonl").read_text().splitlines()
        ]
        for name in ("online", "offline")
    ]
    assert events[0] == events[1]
    assert sum("eval_loss" in event for event in events[0]) > 1
