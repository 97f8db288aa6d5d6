"""Under an audit hook, check, compile, explain and import run no foreign code, open no connection, and use only files
in their folder.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from audited import MARK
from case_support import ROW, spec
from compile_support import CONFIG, REPOSITORY, put
from patience import HUNG
from test_hostile import PAYLOADS, SLOTS, quoted

# slow: for each hostile text, the commands run in a new process with an audit hook
pytestmark = pytest.mark.slow

HERE = os.path.dirname(os.path.abspath(__file__))
RUN = f"$(touch {MARK}) `touch {MARK}`"
PYTHON = (
    f"import os\nos.system('touch {MARK}')\n\n\ndef reward(completions, **_):\n    return [0.0 for _ in completions]\n"
)
TEMPLATE = f"{{{{ cycler.__init__.__globals__.os.popen('touch {MARK}').read() }}}}"


def audited(folder: Path, commands: list[list[str]]) -> dict[str, object]:
    """Run the commands in `folder` under the audit hook; return the recorded events."""
    listed = folder.parent / f"{folder.name}.json"
    listed.write_text(json.dumps(commands), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, os.path.join(HERE, "audited.py"), str(folder), str(listed)],
        capture_output=True, text=True, timeout=HUNG, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    reported: dict[str, object] = json.loads(done.stdout)
    return reported


def clean(folder: Path, reported: dict[str, object]) -> None:
    assert reported["findings"] == []
    assert not [one for one in folder.rglob("*") if MARK in one.name and "bundle" not in str(one)]


def test_the_hook_sees_what_is_forbidden(tmp_path: Path) -> None:
    """The other tests of this file can fail: when something forbidden happens, the hook reports it."""
    script = (
        "import json, os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from audited import MARK, Watch\n"
        "import pickle, socket, subprocess\n"
        "watch = Watch(sys.argv[2]); sys.addaudithook(watch); watch.on = True\n"
        "subprocess.run(['true']); os.system('true'); socket.socket().close()\n"
        "exec(compile('1', '/elsewhere/x.py', 'exec')); eval(repr(MARK))\n"
        "open('/etc/passwd', 'rb').close()\n"
        "pickle.loads(b'cos\\nsystem\\n.')\n"
        "os.mkdir(sys.argv[2] + '-beside')\n"
        "watch.on = False; print(json.dumps([one.split()[0] for one in watch.findings]))\n"
    )
    (tmp_path / "in").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", script, HERE, str(tmp_path / "in")], capture_output=True, text=True, check=True
    )
    found = set(json.loads(done.stdout))
    assert {"subprocess.Popen", "os.system", "socket.__new__", "compile", "exec", "open", "os.mkdir"} <= found
    assert "pickle.find_class" in found


def test_no_recipe_or_example_does_anything_forbidden(tmp_path: Path) -> None:
    folder = tmp_path / "specs"
    shutil.copytree(os.path.join(REPOSITORY, "specs"), folder)
    for one in glob.glob(os.path.join(REPOSITORY, "tests", "grammar", "examples", "*")):
        shutil.copy(one, folder)
    names = sorted(str(one.relative_to(folder)) for one in folder.rglob("*.xp"))
    assert len(names) > 30
    commands = [["check", one] for one in names]
    commands += [["compile", one, "-o", f"bundles/{one.replace('/', '-')}"] for one in names]
    commands += [["explain", f"{names[0]}:gbs"], ["explain", "XP301"], ["explain", "trust_remote_code"]]
    reported = audited(folder, commands)
    clean(folder, reported)
    assert reported["statuses"].count(0) > 50  # type: ignore[attr-defined]
    bundle = min(os.listdir(folder / "bundles"))
    again = audited(folder, [["import", f"bundles/{bundle}", "-o", "back.xp"]])
    clean(folder, again)
    assert again["statuses"] == [0]


@pytest.mark.parametrize("slot", SLOTS)
def test_payloads_in_every_slot_do_nothing_forbidden(slot: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    texts = [SLOTS[slot](quoted(one.replace("pwned", MARK))) for one in PAYLOADS]
    put(folder, {f"{number}.xp": text for number, text in enumerate(texts)})
    names = [f"{number}.xp" for number in range(len(texts))]
    # `compile` does all that `check` does, so a single `check` of some of the texts is enough
    reported = audited(folder, [["check", *names[::8]], *(["compile", one, "-o", f"{one}.bundle"] for one in names)])
    assert reported["findings"] == []


def test_files_that_a_spec_names_are_never_run(tmp_path: Path) -> None:
    """A spec can name templates, reward functions, tasks with Python files next to them, a model folder with code, and
    pickled data. None of these files is executed.
    """
    folder = tmp_path / "in"
    put(folder, {
        "template.xp": spec('model(chat_template=file("evil.jinja"))'),
        "evil.jinja": TEMPLATE,
        "reward.xp": spec('method grpo(generations=16, max_completion=64, rewards=["evil.py:reward"])',
                          train="qwen2.5-3b on org/x for 3 epochs", batch="gbs=128 micro=16"),
        "evil.py": PYTHON,
        "tasks.xp": spec('eval(tasks=["task.yaml"])'),
        "task.yaml": "task: mine\ndataset_path: json\nprocess_docs: !function helpers.process\n"
                     f"doc_to_text: !!python/object/apply:os.system ['touch {MARK}']\n",
        "helpers.py": PYTHON,
        "model.xp": spec(train='"tiny" on "rows.jsonl" for 3 epochs'),
        "tiny/config.json": json.dumps({**CONFIG, "auto_map": {"AutoConfig": "evil.Config"}}),
        "tiny/evil.py": PYTHON,
        "tiny/chat_template.jinja": TEMPLATE,
        "tiny/model.safetensors": b"w" * 4000,
        "tiny/pytorch_model.bin": b"cos\nsystem\n(S'touch " + MARK.encode() + b"'\ntR.",
        "rows.jsonl": ROW,
        "sitecustomize.py": PYTHON,
        "json.py": PYTHON,
        "xpc.py": PYTHON,
        "base.xp": "xpc 1\nextends \"evil.py\"\n" + spec().split("\n", 1)[1],
    })  # fmt: skip
    names = ("template", "reward", "tasks", "model", "base")
    reported = audited(folder, [["compile", f"{one}.xp", "-o", f"{one}.bundle"] for one in names])
    assert reported["findings"] == []
    assert reported["statuses"] == [0, 0, 0, 0, 1]


PUBLISHED = {
    "tag.yaml": f"model_name_or_path: !!python/object/apply:os.system ['touch {MARK}']\n",
    "new.yaml": f"model_name_or_path: !!python/object/new:subprocess.Popen [['touch', '{MARK}']]\n",
    "name.yaml": "model_name_or_path: !!python/name:os.system\n",
    "module.yaml": "model_name_or_path: !!python/module:evil\n",
    "own.yaml": "model_name_or_path: !evil {a: 1}\n",
    "merge.yaml": "<<: !!python/object/apply:os.getcwd []\n",
    "key.yaml": "? !!python/object/apply:os.getcwd []\n: 1\n",
    "bomb.yaml": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{c}: &{c} [{','.join(['*' + p] * 9)}]\n" for p, c in zip("abcdefghi", "bcdefghij", strict=True)),
    "loop.yaml": "a: &a [*a]\n",
    "merges.yaml": "a: &a {x: 1}\n"
    + "".join(f"{c}: &{c}\n  <<: [{','.join(['*' + p] * 9)}]\n" for p, c in zip("abcdefghi", "bcdefghij", strict=True)),
    "deep.yaml": "a: " + "[" * 20_000 + "\n",
    "flow.yaml": "a: " + "{a: " * 20_000 + "\n",
    "twice.yaml": "a: 1\na: 2\n",
    "nul.yaml": "model_name_or_path: a\x00b\n",
    "run.yaml": f"model_name_or_path: org/x\ndataset_name: org/y\noutput_dir: '{RUN}'\nrun_name: '{RUN}'\n",
    "jinja.yaml": f'model_name_or_path: org/x\ndataset_name: org/y\nchat_template: "{TEMPLATE}"\n',
    "path.yaml": "model_name_or_path: ../../../etc/passwd\ndataset_name: /etc/passwd\ndeepspeed: /etc/passwd\n",
    "accelerate.yaml": f"distributed_type: FSDP\ncompute_environment: LOCAL_MACHINE\nmain_training_function: '{RUN}'\n",
    "zero.json": json.dumps({"zero_optimization": {"stage": 3, "offload_param": {"nvme_path": RUN}}}),
    "deep.json": '{"zero_optimization": ' + "[" * 50_000,
    "wide.json": "{" + ",".join(f'"k{one}": 1' for one in range(30_000)) + "}",
    "axolotl.yaml": f"base_model: org/x\ndatasets:\n  - path: '{RUN}'\n    type: '{RUN}'\nplugins: [evil.Plugin]\n",
    "factory.yaml": f"model_name_or_path: org/x\nstage: sft\nfinetuning_type: full\ndataset_dir: /etc\n"
    f"dataset: '{RUN}'\n",
    "run.sh": f"""#!/bin/bash
export MODEL=$(touch {MARK}) ; `touch {MARK}`
touch {MARK} && eval "touch {MARK}"
source /etc/profile
: <<EOF
$(touch {MARK})
EOF
torchrun --nproc_per_node $(touch {MARK}; echo 8) train.py --model_name_or_path "$MODEL" --output_dir `touch {MARK}` \\
  --dataset_name "${{X:-$(touch {MARK})}}" --config <(touch {MARK}) --deepspeed /dev/zero >(touch {MARK})
""",
    "config.sh": "torchrun train.py --config /dev/zero --model_name_or_path org/x --dataset_name org/y\n",
    "quote.sh": "torchrun train.py --model_name_or_path 'org/x\n",
    "many.sh": "torchrun train.py\n" * 3000,
    "doubled.sh": "A=xxxxxxxxxxxxxxxx\n" + "A=$A$A\n" * 40 + "torchrun train.py --model_name_or_path $A\n",
    "long.sh": "A=" + "x" * 100_000 + "\ntorchrun train.py --model_name_or_path " + "$A" * 50_000 + "\n",
    "digits.yaml": f'model_name_or_path: org/x\nlearning_rate: "{"1" * 200_000}x"\n',
    "defaults.sh": "torchrun train.py --model_name_or_path " + "${a:-" * 30_000 + "\n",
    "keys.json": "{" + ",".join(f'"k{one}": 1' for one in range(6_000)) + "}",
    "keys.yaml": "".join(f"k{one}: 1\n" for one in range(6_000)),
}
"""Files that claim to be configurations of other tools."""


def test_published_files_that_are_hostile(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    put(folder, {**PUBLISHED, "evil.py": PYTHON})
    kinds = ("trl", "llamafactory", "command")
    commands = [["import", one, "-o", f"{one}.xp", "--report", "json"] for one in PUBLISHED]
    small = [one for one in PUBLISHED if len(PUBLISHED[one]) < 50_000]
    commands += [["import", one, "--from", kind] for one in small for kind in kinds]
    commands += [["import", "--command", f"torchrun $(touch {MARK}) train.py --model_name_or_path `touch {MARK}`"]]
    reported = audited(folder, commands)
    assert reported["findings"] == []
    assert set(reported["statuses"]) <= {0, 1, 2}  # type: ignore[call-overload]
    clean(folder, reported)
    written = [one for one in os.listdir(folder) if one not in (*PUBLISHED, "evil.py")]
    assert all(one.endswith((".xp", ".jinja")) for one in written), written
