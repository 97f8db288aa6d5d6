"""Every xpc command on a page of the docs runs as written. Every fenced block is of a kind (spec, shell, ...) that some
test covers.

Before a command runs, file names on the page are replaced by files that the test has. ELSEWHERE lists commands that
another test runs.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import tomllib

import pytest
import yaml
from compile_support import read
from git_commands import git

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from compile_support import SEED, SENTENCE, put, xpc  # noqa: E402
from test_page_specs import SPEC_LINE, first_line  # noqa: E402

from xpc.compiler.commands import COMMANDS  # noqa: E402

DOCS = sorted(f"docs/{name}" for name in os.listdir(os.path.join(ROOT, "docs")) if name.endswith(".md"))
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "editors/vscode/README.md", "runtime/README.md", *DOCS)
GENERATED = ("docs/rules.md", "docs/reference.md")
"""Pages whose blocks come from tested sources: the specs of the rules' cases, and the examples of the settings."""
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```", re.S | re.M)

ELSEWHERE = {
    r"xpc lsp": "language_server/test_server.py",
    r"xpc lock .*--update.*|xpc compile( \S+)? --locked": "locking/test_lock.py",
    r"xpc verify \S+ --run \S+": "review/test_finished_run.py",
    r"xpc tune \S+ --(read|run) .*": "tuning/test_tune.py",
    r"xpc doctor --python PATH|xpc doctor --python ~/venv/bin/python": "commands/test_doctor.py",
    r"xpc verify \S+ --env": "review/test_verify.py",
    r"xpc preview .*": "preview/test_preview_command.py",
    r"xpc report out/\S+.*|xpc report DIR\.\.\.": "report/test_report.py",
    r"xpc verify \S+ --spec \S+": "review/test_verify.py",
    r"xpc explain \S+:lora\.targets": "explain/test_explain_spec.py",
    r"xpc verify --all": "review/test_verify_all.py",
    r"xpc (check|explain|compile|diff|verify) (wrong|german|bigger)\.\S+.*": "docs/test_tutorial_pages.py",
    r"xpc compile scan\.xp": "docs/test_sweep_page.py",
    r"xpc (check|diff) big\.xp.*": "docs/test_docs.py",
    r"xpc import run\.bundle -o run\.xp": "importing/test_import_cli.py",
    r"xpc import train\.sh --set .*": "importing/text/test_import_variables.py",
    r"xpc import \S+\.(py|ipynb).*": "importing/python/test_import_python.py",
    r"xpc import grpo\.yaml --partial .*": "importing/test_import_partial.py",
    r"xpc diff recipe\.yaml recipe\.xp": "review/test_diff_source.py",
    r"xpc rehearse .*": "preview/test_rehearsal.py",
}
"""Maps patterns of commands that need a hub, a package index, a run or files of the page to the test file that runs
such a command.
"""

LINES = {
    r"make \w+( .*)?": "Makefile",
    r"\./probe\.sh|\S*\.tune/probe\.sh": "tests/tuning/test_tune.py",
    r"pip install -r \S*requirements.txt": "tests/resolve.py",
    r"\S*launch\.sh": "tests/proof/training/test_train.py",
    r"MASTER_ADDR=\S+ MASTER_PORT=\d+ NODE_RANK=\d \S*launch\.sh": "tests/launch/test_two_nodes.py",
    r"\S*launch\.sh --preflight.*": "tests/runtime/test_runtime_preflight.py",
    r"\S*launch\.sh --prepare \S+": "tests/launch/test_prepared_launch.py",
    r"XPC_PREPARED=\S+ \S*launch\.sh": "tests/launch/test_prepared_launch.py",
    r"\S*launch\.sh --stage \S+": "tests/proof/training/test_train_staged.py",
    r"\S*/launch\.sh (--list|--all|lr=\S+)": "tests/docs/test_sweep_page.py",
    r"XPC_STAGED=\S+ (sbatch )?\S*(launch\.sh|job\.sbatch)": "tests/proof/training/test_train_staged.py",
    r"sbatch( --array=\S+)? \S*job.sbatch": "tests/launch/test_slurm_sweep.py",
    r"ray job submit .*|.*--entrypoint.*|-- python ray_job\.py": "tests/launch/test_ray_trains.py",
    r"cd editors/vscode|npm install|npx vsce package": "tests/language_server/test_editors.py",
    r"code --install-extension \S+": "editors/vscode/README.md",
    r"source venv/bin/activate": "tests/launch/test_slurm_trains.py",
    r"python3 -m venv \.venv && source \.venv/bin/activate|pip install .*": "tests/test_wheel.py",
    r"mine\.bundle/launch\.sh.*": "tests/proof/training/test_train.py",
}
"""Maps patterns of shell lines that do not run xpc to the file that runs or explains such a line."""
OUTPUTS = {
    "$ make demo": "an excerpt of what `make demo` prints, which CI runs",
    "whole process, ms": "readings of `make bench`",
    "read -> parse -> load": "a picture",
    "XP960 beyond-the-card": "an excerpt",
    "what would make it go faster": "an excerpt",
    "[run] ": "an excerpt of a run",
    "error: 2 things stop this run": "an excerpt of a run",
    "launch.sh: process 1 was ended": "an excerpt of a run",
    "micro 1 -> 2; memory": "the first line of a diff",
    "2 images changed; photos/cat.jpg is the first": "as in tests/review/test_review_images.py",
    "models/tiny/model.safetensors has sha256": "an error of a launch (tests/runtime/model/test_model_files.py)",
    "It rained for a week": "a text file",
    "trainer_args.json:94": "the line of a verification",
    "quickstart\n\nstopped on request": "the first lines of a report",
}
"""Maps the beginning of each block that shows the output of a program to a description of the block."""


def blocks(page: str) -> list[tuple[str, str]]:
    """The language and text of every fenced block of a page."""
    return [] if page in GENERATED else BLOCK.findall(read(page))


def without_notes(line: str) -> str:
    """The bare command of a shell line: without `$`, without a comment, and without remarks to the right of the
    command.
    """
    return re.split(r"\s{2,}|\s+#|\s+\|\s", line.strip().removeprefix("$ "))[0]


def commands() -> dict[str, str]:
    """Every command of xpc on the pages, in blocks and in running text, with the first page that has it."""
    found: dict[str, str] = {}
    for page in PAGES:
        lines = [line for _, block in blocks(page) for line in block.splitlines()]
        lines += re.findall(r"`(xpc [^`\n]+)`", BLOCK.sub("", read(page)))
        for line in map(without_notes, lines):
            if re.match(r"xpc \w+( |$)", line):
                found.setdefault(line.replace("FILE...", "FILE"), page)
    return found


NAMES = {
    "FILE:SETTING": "mine.xp:accum", "SPEC:SETTING": "mine.xp:accum", "main:SPEC": "main:mine.xp", "SPEC": "mine.xp",
    "FILE": "mine.xp", "SETTING": "gbs", "CODE": "XP301", "NAME": "learning_rate", "DIR": "x.bundle", "A": "x.xp",
    "B": "mine.xp", "OLD.bundle": "x.bundle", "NEW.bundle": "x.bundle", "KIND": "models", "WORD...": "qwen",
    "RECIPE": "smollm3-3b-sft-64xh100", "SHELL": "fish", "T": "trl-1.16", "COMMIT": "0" * 40,
    "Qwen/Qwen2.5-3B=COMMIT": f"Qwen/Qwen2.5-3B={'0' * 40}", "--calibration": "--calibration", "specs/*.xp": "mine.xp",
    "main:german.xp": "main:mine.xp", "german.xp": "mine.xp", "main:specs/qwen2.5-3b.xp": "main:mine.xp",
    "specs/qwen2.5-3b.xp": "mine.xp", "specs/qwen2.5-3b.xp:accum": "mine.xp:accum", "run.bundle": "x.bundle",
    "base.xp": "mine.xp", "child.xp": "x.xp", "run.xp": "x.xp", "slurm.xp": "x.xp", "spec.xp": "x.xp",
    "sweep.xp": "x.xp",
    "BUNDLE": "x.bundle", "config.yaml": "recipe.yaml", "a.xp": "x.xp", "b.xp": "mine.xp",
}  # fmt: skip
"""Maps placeholders on the pages, such as `SPEC`, to the names with which the test replaces them."""
LEFT_OUT = {
    "xpc plan --html": "xpc plan SPEC --html plan.html",
    "xpc plan --html FILE": "xpc plan SPEC --html plan.html",
    "xpc plan --calibration FILE": "xpc plan SPEC --calibration team.json",
    "xpc lock x.xp --pin me/rows=COMMIT": "xpc lock x.xp --pin Qwen/Qwen2.5-3B=COMMIT",
    "xpc compile --allow-oom": "xpc compile SPEC --allow-oom",
    "xpc new FILE": "xpc new other.xp",
    "xpc new mine.xp": "xpc new other.xp",
    "xpc new FILE --from RECIPE": "xpc new other.xp --from RECIPE",
    "xpc import config.yaml -o mine.xp": "xpc import recipe.yaml --hardware '8 x h100-80gb' -o out.xp",
    "xpc import FILE": "xpc import recipe.yaml --hardware '8 x h100-80gb'",
    "xpc import FILE -o SPEC": "xpc import recipe.yaml --hardware '8 x h100-80gb' -o out.xp",
    "xpc import FILE --hardware 8xh100-80gb": "xpc import recipe.yaml --hardware 8xh100-80gb",
    "xpc import FILE --report text": "xpc import recipe.yaml --hardware '8 x h100-80gb' --report text",
}
"""Maps commands that the pages shorten, or write with an ambiguous file name, to the complete command that the test
runs.
"""
STATUS = {"xpc check v100.xp": 1, "xpc lock": 1}
"""Maps commands of the pages whose exit status is not 0 to this status: a spec has errors, or a lock has no pins."""
TRL = """\
model_name_or_path: Qwen/Qwen2.5-0.5B
dataset_name: trl-lib/Capybara
num_train_epochs: 1
max_length: 1024
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
learning_rate: 2.0e-05
bf16: true
output_dir: out/imported
"""
ACCELERATE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config: {zero_stage: 3, zero3_init_flag: true, gradient_accumulation_steps: 4}
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""
ZERO2 = {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": "auto"}
TUNE = """\
model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_8b
  lora_attn_modules: ['q_proj', 'v_proj']
  lora_rank: 8
  lora_alpha: 16
checkpointer: {_component_: torchtune.training.FullModelHFCheckpointer, checkpoint_dir: /tmp/Meta-Llama-3.1-8B-Instruct}
dataset: {_component_: torchtune.datasets.alpaca_cleaned_dataset}
batch_size: 2
epochs: 1
optimizer: {_component_: torch.optim.AdamW, lr: 3.0e-4, fused: true}
loss: {_component_: torchtune.modules.loss.LinearCrossEntropyLoss}
dtype: bf16
"""
LAUNCH = "torchrun --nproc_per_node 8 sft.py --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name a/b --bf16\n"


@pytest.fixture(scope="module")
def location(tmp_path_factory) -> str:
    """A git repository, on its branch main, with the files that the commands on the pages name."""
    folder = tmp_path_factory.mktemp("pages")
    seed = SEED.replace("8 x v100-32gb", "8 x h100-80gb").replace("precision fp32", "precision bf16")
    texts = {
        "mine.xp": seed, "x.xp": seed.replace("528", "264"), "sentence.xp": SENTENCE,
        "v100.xp": SENTENCE.replace("528", "512 micro=11"),
        "recipe.yaml": TRL, "zero3.yaml": ACCELERATE, "ds.json": json.dumps(ZERO2), "ds-config.json": json.dumps(ZERO2),
        "train.sh": LAUNCH, "8B_lora.yaml": TUNE, "base/.keep": "",
        "team.json": json.dumps({"version": 1, "readings": []}),
    }  # fmt: skip
    put(folder, texts)
    os.symlink(os.path.join(ROOT, "specs"), folder / "specs")
    assert xpc("fmt", "mine.xp", "x.xp", cwd=str(folder)).returncode == 0
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "a"]):
        git(folder, *words)
    assert xpc("compile", "x.xp", cwd=str(folder)).returncode == 0
    return str(folder)


def ours(command: str) -> list[str]:
    """Split a page's command into words, and replace the page's file names by names of files that this test has."""
    words = shlex.split(
        LEFT_OUT.get(command, command).replace("--model_name_or_path ...", LAUNCH.partition("sft.py ")[2].strip())
    )
    return [NAMES.get(word, NAMES.get(word.removesuffix("/spec.xp"), word)) for word in words][1:]


def run_elsewhere(command: str) -> bool:
    return any(re.fullmatch(pattern, command) for pattern in ELSEWHERE)


@pytest.mark.slow
def test_every_command_of_xpc_runs(location):
    ran, wrong = 0, []
    for shown, page in commands().items():
        for command in dict.fromkeys((re.sub(r" \[[^]]*\]", "", shown), re.sub(r"\[|\]", "", shown))):
            name, *more = command.removeprefix("xpc ").split(" ")
            if name == "1" or (not more and name in COMMANDS) or run_elsewhere(command):
                continue
            words = ours(command)
            for written in ("other.xp", "out.xp", "recipe.xp"):
                if os.path.isfile(path := os.path.join(location, written)):
                    os.unlink(path)
            done = xpc(*words, cwd=location)
            if done.returncode != STATUS.get(command, STATUS.get(f"xpc {name}", 0)):
                wrong.append(f"{page}: {command}\n{words}\n{done.stdout.decode()}{done.stderr.decode()}")
            ran += 1
    assert not wrong, "\n\n".join(wrong)
    assert ran >= 50


@pytest.mark.slow
def test_what_is_run_elsewhere_is_run_there():
    for pattern, test in ELSEWHERE.items():
        text = read(os.path.join("tests", test))
        assert any(run_elsewhere(one) for one in commands()), pattern
        assert any(re.fullmatch(pattern, one) for one in commands()), f"no page has {pattern}"
        flags = re.findall(r"--[a-z]+", pattern)
        assert all(flag in text for flag in flags), (pattern, test)
    for pattern, test in LINES.items():
        assert os.path.exists(os.path.join(ROOT, test)), (pattern, test)


SHELL = re.compile(
    r"(?:\$ )?(?:python3 -m venv|xpc|echo|cat|\./|[\w.]*launch\.sh|MASTER_ADDR=|make|pip|sbatch|ray|cd|npm|npx|code"
    r"|source) ?"
)


def kind(page: str, language: str, text: str) -> str:
    """The kind of a block: `data`, `program`, `spec`, `output` or `shell`. Empty if no test covers the block."""
    match language.partition(" ")[0]:
        case "json":
            return "data" if [json.loads(line) for line in text.splitlines()] else ""
        case "yaml":
            return "data" if yaml.safe_load(text) else ""
        case "toml":
            return "data" if tomllib.loads(text) else ""
        case "python":
            return "program" if ast.parse(text).body else ""
        case "lua":
            return "program"
        case "xp":
            return "spec"
    if any(text.startswith(one) for one in OUTPUTS):
        return "output"
    if SPEC_LINE.match(first_line(text)):
        return "spec"
    if page == "docs/review.md" and text.startswith("*.bundle/** linguist-generated"):
        return "data"
    return "shell" if SHELL.match(text) else ""


def test_every_block_of_the_pages_is_of_a_kind_that_is_tried():
    untried = [(page, text) for page in PAGES for language, text in blocks(page) if not kind(page, language, text)]
    assert untried == []
    begun = [text for page in PAGES for _, text in blocks(page)]
    assert [one for one in OUTPUTS if not any(text.startswith(one) for text in begun)] == []


def test_every_line_for_a_shell_is_tried():
    untried = []
    for page in PAGES:
        for language, text in blocks(page):
            if kind(page, language, text) != "shell":
                continue
            session = "$ " in text
            for line in text.splitlines():
                if session and not line.startswith("$ "):
                    continue
                output = without_notes(line)
                if not (re.match(r"xpc \w+|echo '", output) or any(re.fullmatch(one, output) for one in LINES)):
                    untried.append((page, line))
    assert untried == []


def test_programs_that_read_a_run_read_it(tmp_path, monkeypatch, capsys):
    """Run the Python programs on the pages that read metrics.jsonl. The metrics.jsonl of this test has the line that
    docs/outputs.md shows.
    """
    (logged,) = [text for language, text in blocks("docs/outputs.md") if language == "json" and "grad_norm" in text]
    put(
        tmp_path, {"out/german/metrics.jsonl": logged + json.dumps({"step": 20, "epoch": 1.0, "eval_loss": 1.5}) + "\n"}
    )
    monkeypatch.chdir(tmp_path)
    programs = [
        text for page in PAGES for language, text in blocks(page) if "metrics.jsonl" in text and language == "python"
    ]
    assert len(programs) == 2
    for text in programs:
        known: dict[str, object] = {}
        exec(text, known)
        assert known.get("losses", [(10, 5.1155)]) == [(10, 5.1155)]
    assert capsys.readouterr().out == "1.0 1.5\n"
