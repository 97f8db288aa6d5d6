"""Bundles that are written by hand train on each stack, in one CPU process and in two.

The launcher and the processes that it starts are forks of a warm interpreter.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from runtime_bundles import ROOT, command, environment, launch, plan, source, write

sys.path.append(os.path.join(ROOT, "tests", "support"))

from forks import Forks, shared
from interpreters import OTHERS
from patience import HUNG
from tiers import FIRST_AND_LAST, nightly_but

from xpc.compiler.stacks import DEFAULT, STACKS, load

pytestmark = pytest.mark.slow
TINY = os.path.join(ROOT, "tests", "support", "tiny.py")


class Stacks:
    """The warm interpreter of each stack and its tiny model, made when they are first used."""

    def __init__(self, location: Path) -> None:
        self.location = location

    def of(self, target: str) -> Forks:
        return shared(target)

    def fork(self, target: str, folder: str, cwd: str, *words: str, **settings: Any) -> dict[str, Any]:
        """Run the bundle's trainer, or another program, in a fork and without a launcher. Return the output and the
        exit status."""
        done = self.of(target).run(folder, cwd, *words, **settings)
        assert not any(done["status"]), done["out"][-2000:] + done["err"][-3000:]
        return done

    def program(self, target: str, text: str, folder: str, cwd: str, *words: str) -> str:
        """Run a program, given as text, with these arguments; return its output."""
        path = Path(cwd) / "program.py"
        path.write_text(text)
        return str(self.fork(target, folder, cwd, *words, program=str(path))["out"])

    def tiny(self, target: str) -> str:
        made = str(self.location / target)
        if not os.path.exists(made):
            self.fork(target, made, str(self.location), made, program=TINY)
        return made


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> Stacks:
    return Stacks(tmp_path_factory.mktemp("tiny"))


def bundle(tmp_path: Path, stacks: Stacks, target: str, **shape: int) -> tuple[str, str, str, dict[str, Any]]:
    location, folder = stacks.tiny(target), tmp_path / "bundle"
    folder.mkdir()
    cwd = tmp_path / "here"
    cwd.mkdir()
    facts = plan(location, [source(os.path.join(location, "messages.jsonl"))], stack=target, **shape)
    return str(folder), str(cwd), stacks.of(target).python, facts


def metrics(cwd: str) -> list[dict[str, Any]]:
    with open(os.path.join(cwd, "out", "metrics.jsonl"), encoding="utf-8") as handle:
        return [json.loads(line) for line in handle]


LEFT = """
import sys, torch
from transformers import AutoModelForCausalLM as A, AutoTokenizer as T
a, b = (A.from_pretrained(p) for p in sys.argv[1:])
n = sum(not torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters()))
t = T.from_pretrained(sys.argv[2])
ends = b.generation_config.eos_token_id  # transformers 4.57 writes a list
print(n == len(list(a.parameters())), b.dtype, b.config.use_cache, ends in (t.eos_token_id, [t.eos_token_id]),
      bool(t.chat_template))
"""
"""A program that checks a saved model: whether all weights differ from the initial ones, the dtype, the cache, the end
token, and the template."""


SHARDED = [(target, world, zero) for world, zero in ((1, 0), (2, 0), (2, 1), (2, 2), (2, 3)) for target in STACKS]


def by_day(one: tuple[str, int, int]) -> bool:
    """Whether `make test` trains this case. It trains all cases on the default stack, and the cases with ZeRO stage 0
    or 3 on the oldest stack.
    """
    return one[0] == DEFAULT or (one[0] == OTHERS[0] and one[2] in (0, 3))


@pytest.mark.parametrize(("target", "world", "zero"), nightly_but(SHARDED, by_day))
def test_it_trains(tmp_path: Path, stacks: Stacks, target: str, world: int, zero: int) -> None:
    folder, cwd, _, facts = bundle(tmp_path, stacks, target, world=world, zero=zero)
    facts["arguments"].update(save_steps=8)
    write(folder, facts)
    done = stacks.fork(target, folder, cwd, world=world)
    events = metrics(cwd)
    assert [event["step"] for event in events] == list(range(1, 9))
    assert events[-1]["loss"] < events[0]["loss"] - 1
    # 28 tokens in every row, so no rank trains on rows of another rank
    assert events[-1]["tokens"] == 8 * 8 * world * 28
    left = stacks.program(target, LEFT, folder, cwd, stacks.tiny(target), os.path.join(cwd, "out"))
    assert left.strip() == "True torch.float32 True True True"
    # the cache is off during training, but on in the saved configuration
    with open(os.path.join(cwd, "out", "checkpoint-8", "config.json"), encoding="utf-8") as handle:
        assert json.load(handle)["use_cache"] is True
    assert "mismatch" not in done["err"]
    with open(os.path.join(cwd, "out", "summary.json"), encoding="utf-8") as handle:
        summary = json.load(handle)
    assert (summary["steps"], summary["sequences"]) == (8, 64 * world)
    assert "step 8/8  loss" in done["out"]
    assert "done       8 steps" in done["out"]


def test_two_processes_see_the_same_losses_under_every_strategy(tmp_path: Path, stacks: Stacks) -> None:
    curves = []
    for zero in (0, 2, 3):
        (tmp_path / str(zero)).mkdir()
        folder, cwd, _, facts = bundle(tmp_path / str(zero), stacks, DEFAULT, world=2, zero=zero)
        facts["arguments"].update(max_steps=3, save_strategy="no")
        stacks.fork(DEFAULT, write(folder, facts), cwd, world=2)
        curves.append([event["loss"] for event in metrics(cwd)])
    assert curves[1] == pytest.approx(curves[0], abs=1e-4)
    assert curves[2] == pytest.approx(curves[0], abs=1e-4)


SAME = """
import sys
from transformers import AutoModelForCausalLM as A
first, *others = (list(A.from_pretrained(p).parameters()) for p in sys.argv[2:])
print([max(float((x - y).abs().max()) for x, y in zip(first, other)) for other in others])
"""


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_recomputing_and_a_smaller_micro_batch_train_the_same_weights(
    tmp_path: Path, stacks: Stacks, target: str
) -> None:
    """Recomputation does not change the trained weights by a single bit. A smaller micro-batch with the same global
    batch changes them only by rounding, because gradients are added in another order.
    """
    left = []
    known = load(target)
    assert known is not None
    names = [
        one for one in ("activation_checkpointing", "gradient_checkpointing") if one in known.fields("trl.SFTConfig")
    ]
    for name, recompute, micro in (("kept", False, 4), ("recomputed", True, 4), ("smaller", False, 2)):
        (tmp_path / name).mkdir()
        folder, cwd, _, facts = bundle(tmp_path / name, stacks, target)
        again = {"use_reentrant": False} if recompute else None
        facts["arguments"].update(
            {names[0]: recompute, f"{names[0]}_kwargs": again}, max_steps=3, save_strategy="no",
            per_device_train_batch_size=micro, gradient_accumulation_steps=8 // micro,
        )  # fmt: skip
        facts["run"].update(micro=micro, accumulation=8 // micro)
        stacks.fork(target, write(folder, facts), cwd)
        left.append(os.path.join(cwd, "out"))
    recomputed, smaller = json.loads(stacks.program(target, SAME, folder, cwd, folder, *left))
    assert recomputed == 0.0
    assert smaller < 1e-4


END = """
import json, sys, torch
sys.path.insert(0, sys.argv[1])
from trainer.core import model
from trainer.core.bundle import read
from trainer.core.data import build
from trainer.enabled import FEATURES, trainer_class
from trl import SFTConfig
bundle = read(sys.argv[1], FEATURES)
tokenizer = model.load_tokenizer(bundle)
rows, _ = build(bundle)
args = SFTConfig(**bundle.arguments)
trainer = trainer_class()(
    model=model.load_model(bundle, tokenizer), args=args, train_dataset=rows, processing_class=tokenizer
)
assert trainer.args is args, "the arguments object was replaced"
batch = next(iter(trainer.get_train_dataloader()))
ids, labels, mask = batch["input_ids"], batch["labels"], batch["attention_mask"].bool()
print(json.dumps({
    "same": [tokenizer.eos_token_id, tokenizer.pad_token_id], "ends": int((ids[mask] == tokenizer.eos_token_id).sum()),
    "trained": int((labels == tokenizer.eos_token_id).sum()), "padding": int((~mask).sum()),
    "padding trained": int((labels[~mask] != -100).sum()), "cache": trainer.model.config.use_cache,
}))
"""


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_the_end_of_a_turn_is_trained_although_it_pads(tmp_path: Path, stacks: Stacks, target: str) -> None:
    folder, cwd, _, facts = bundle(tmp_path, stacks, target)
    # The same token ends a turn and is used as padding.
    facts["tokenizer"]["pad_token"] = "<|im_end|>"
    turns = [[("user", "a " * i), ("assistant", "b")] for i in (1, 9, 3, 30)]
    rows = [{"messages": [{"role": role, "content": text} for role, text in row]} for row in turns]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    facts["data"]["sources"] = [source(str(tmp_path / "rows.jsonl"))]
    write(folder, facts)
    seen = json.loads(stacks.program(target, END, folder, cwd, folder).splitlines()[-1])
    assert seen["same"][0] == seen["same"][1]
    assert (seen["ends"], seen["trained"]) == (8, 8)  # four rows, each with two turns
    assert seen["padding"] > 0
    assert (seen["padding trained"], seen["cache"]) == (0, False)


TOKENS = """
import json, sys
sys.path.insert(0, sys.argv[1])
from trainer.core.bundle import read
from trainer.core.data import build
from trainer.core import model
from trainer.enabled import FEATURES, trainer_class
from trl import SFTConfig
bundle = read(sys.argv[1], FEATURES)
tokenizer = model.load_tokenizer(bundle)
rows, _ = build(bundle, tokenizer)
trainer = trainer_class()(
    model=model.load_model(bundle, tokenizer), args=SFTConfig(**bundle.arguments), train_dataset=rows,
    processing_class=tokenizer,
)
seen = []
for batch in trainer.get_train_dataloader():
    for ids, labels, mask in zip(batch["input_ids"], batch["labels"], batch["attention_mask"].bool()):
        ids, labels = ids[mask].tolist(), labels[mask].tolist()
        trained = [one for one in labels if one != -100]
        assert labels[len(labels) - len(trained):] == trained
        text = tokenizer.decode(ids)
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == ids
        seen.append([text, tokenizer.decode(trained)])
print(json.dumps([tokenizer.eos_token, seen]))
"""


def alpaca(instruction: str, more: str) -> str:
    """The prompt that Stanford's Alpaca makes of a row. The prompt is computed here a second time, to compare it with
    the runtime's prompt.
    """
    if more:
        return (
            "Below is an instruction that describes a task, paired with an input that provides further context. "
            "Write a response that appropriately completes the request.\n\n"
            f"### Instruction:\n{instruction}\n\n### Input:\n{more}\n\n### Response:\n"
        )
    return (
        "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
        f"### Instruction:\n{instruction}\n\n### Response:\n"
    )


QUESTION = [
    ("Add.", "1 2", "3"),
    ("Greet {input}.", "", "Hi"),
    ("Say it.", "{instruction}", "it"),
    ("Greet.", None, "Ho"),
]
WORDED = {
    "alpaca": ("", ("instruction", "input", "output"), alpaca),
    "named": (
        "data { format = alpaca, prompt = asked, context = about }", ("asked", "about", "output"), alpaca,
    ),
    "context": (
        "data { format = prompt_completion, prompt = question, context = passage }",
        ("question", "passage", "completion"),
        lambda requested, more: f"{requested}\n\n{more}" if more else requested,
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", FIRST_AND_LAST)
@pytest.mark.parametrize("how", WORDED)
def test_rows_with_a_context_are_trained_in_their_words(tmp_path: Path, stacks: Stacks, target: str, how: str) -> None:
    """Rows with an instruction, an input and an output: the prompt has Alpaca's words, and only the output has a
    loss.
    """
    from xpc.compiler.files.workspace import Workspace
    from xpc.compiler.pipeline import compile_text

    line, names, words = WORDED[how]
    folder, cwd, _, facts = bundle(tmp_path, stacks, target)
    rows = [dict(zip(names, row, strict=True)) for row in QUESTION]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = (
        f'xpc 1\ntrain qwen2.5-3b on "rows.jsonl" for 1 steps\nhardware cpu\nbatch {{ gbs = 4, micro = 4 }}\n{line}\n'
    )
    files, found = compile_text(text.encode(), "t.xp", Workspace(str(tmp_path)))
    assert files is not None, found.problems
    facts["data"]["sources"] = json.loads(files["trainer_args.json"])["data"]["sources"]
    facts["data"]["sources"][0].update(path=str(tmp_path / "rows.jsonl"), bundled=None)
    facts["arguments"]["max_length"] = 1024
    write(folder, facts)
    end, seen = json.loads(stacks.program(target, TOKENS, folder, cwd, folder).splitlines()[-1])
    expected = [[words(requested, more) + answer + end, answer + end] for requested, more, answer in QUESTION]
    assert sorted(seen) == sorted(expected)


WHOLE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from accelerate import FullyShardedDataParallelPlugin as Plugin
from accelerate.utils import DistributedType
from trainer.features.distributed.fsdp import use_full_state_dict
plugin = Plugin(state_dict_type="SHARDED_STATE_DICT", **eval(sys.argv[2]))
assert "SHARDED" in str(plugin.state_dict_type) and "Sharded" in type(plugin.state_dict_config).__name__
use_full_state_dict(plugin)
print(plugin.state_dict_type, type(plugin.state_dict_config).__name__, type(plugin.optim_state_dict_config).__name__)
"""


@pytest.mark.parametrize(
    ("target", "version"),
    nightly_but(
        [(name, one) for name in STACKS for one in ((1, 2) if load(name).facts.fsdp2 else (1,))],
        lambda one: one[0] in (DEFAULT, OTHERS[0]),
    ),
)
def test_the_final_save_of_sharded_fsdp_is_whole(tmp_path: Path, stacks: Stacks, target: str, version: int) -> None:
    folder, cwd, _, facts = bundle(tmp_path, stacks, target)
    write(folder, facts)
    options = f"{{'fsdp_version': {version}}}" if load(target).facts.fsdp2 else "{}"
    assert stacks.program(target, WHOLE, folder, cwd, folder, options).split() == [
        "StateDictType.FULL_STATE_DICT", "FullStateDictConfig", "FullOptimStateDictConfig",
    ]  # fmt: skip


def without_warnings(text: str) -> str:
    """The text without Python's warnings, and without the line of source code that follows each warning. In a shared
    interpreter, warnings are not hidden.
    """
    return re.sub(r"^\S+\.py:\d+: \w*Warning: .*\n(  .*\n)?", "", text, flags=re.M)


@pytest.mark.parametrize("target", FIRST_AND_LAST)
@pytest.mark.parametrize("world", [1, 2])
def test_a_failure_after_the_start_ends_in_a_line_of_each(
    tmp_path: Path, stacks: Stacks, target: str, world: int
) -> None:
    folder, cwd, python, facts = bundle(tmp_path, stacks, target, world=world)
    rows = [{"conversations": [{"from": who, "value": "?"}]} for who in ("human",) * 9 + ("alien",)]
    (tmp_path / "late.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    facts["data"]["sources"] = [source(str(tmp_path / "late.jsonl"), "conversations")]
    write(folder, facts)
    environ = {**environment(), "XPC_PREFLIGHT": "passed"}
    done = subprocess.run(command(folder, python), cwd=cwd, env=environ, capture_output=True, text=True)
    lines = without_warnings(done.stderr).splitlines()
    assert done.returncode == 1
    assert "late.jsonl, row 9: 'alien' is no known speaker" in lines[0]
    assert len(lines) == world, done.stderr
    if world > 1:
        assert lines[-1].endswith("ended with status 1; its message is above")


def test_torchrun_with_another_count_is_reported_once(tmp_path: Path, stacks: Stacks) -> None:
    folder, cwd, python, facts = bundle(tmp_path, stacks, DEFAULT, world=2)
    write(folder, facts)
    words = ["torch.distributed.run", "--standalone", "--nproc_per_node", "3"]
    start, main = (os.path.join(folder, "trainer", name) for name in ("launcher.py", "main.py"))
    done = subprocess.run([python, start, *words, main], cwd=cwd, env=environment(), capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if "OMP_NUM_THREADS" not in line]
    assert done.returncode == 1
    assert lines[0].startswith("error: the launcher started 3 process(es), and 3 x 4 sequences x 2")
    assert "Traceback" not in done.stderr
    assert not os.path.exists(os.path.join(cwd, "out"))


def test_ending_the_launcher_ends_the_run(tmp_path: Path, stacks: Stacks) -> None:
    folder, cwd, python, facts = bundle(tmp_path, stacks, DEFAULT)
    facts["arguments"].update(max_steps=3000, save_strategy="no")
    write(folder, facts)
    started = subprocess.Popen(
        command(folder, python), cwd=cwd, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and not os.path.exists(os.path.join(cwd, "out", "metrics.jsonl")):
        time.sleep(0.1)
    started.terminate()
    output = without_warnings(started.communicate(timeout=HUNG)[1])
    assert started.returncode == 75
    assert output.startswith("launch.sh: stopped as asked: the same command resumes from checkpoint-")
    size = os.path.getsize(os.path.join(cwd, "out", "metrics.jsonl"))
    time.sleep(1)
    assert os.path.getsize(os.path.join(cwd, "out", "metrics.jsonl")) == size


def test_what_cannot_be_is_refused_in_one_sentence(tmp_path: Path, stacks: Stacks) -> None:
    folder, cwd, python, facts = bundle(tmp_path, stacks, DEFAULT, world=2)
    facts["run"]["distributed_type"] = "FSDP"  # on a CPU, accelerate replaces FSDP by plain DDP
    done = launch(write(folder, facts), cwd, python)
    assert done.returncode == 1
    assert "this bundle is for FSDP, and accelerate runs plain data parallel on the CPU" in done.stderr


def test_the_preflight_lists_everything_at_once(tmp_path: Path, stacks: Stacks) -> None:
    folder, cwd, python, facts = bundle(tmp_path, stacks, DEFAULT)
    facts["data"]["sources"] = [source("missing.jsonl"), {**facts["data"]["sources"][0], "columns": ["chat"]}]
    facts["tokenizer"]["eos_token"] = "<|none|>"
    write(folder, facts)
    main = os.path.join(folder, "trainer", "main.py")
    done = subprocess.run(
        [python, main, "--preflight"], cwd=cwd, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "error: 3 things stop this run:" in done.stderr
    for finding in ("'<|none|>' is not in the vocabulary", "'missing.jsonl' was not found", "has no column 'chat'"):
        assert finding in done.stderr
