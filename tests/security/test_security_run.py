"""The bundle, a template, the weights, the rows or the working directory of a run may come from a stranger. The run
executes no code from any of these.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from case_support import PLAIN, ROW, spec
from compile_support import compiled, put
from interpreters import interpreter
from patience import HUNG
from run_features import read
from runtime_bundles import bundle_of as planned
from runtime_bundles import plan, source
from tiers import FIRST_AND_LAST

from xpc.compiler.files.bundle import write
from xpc.runtime import evaluate
from xpc.runtime.core import arguments, bundle_integrity, errors, rows
from xpc.runtime.core.bundle import manifest_digests
from xpc.runtime.core.errors import RunError
from xpc.runtime.core.feature import Bundle
from xpc.runtime.features.launch import verified_files
from xpc.runtime.features.method import rewards
from xpc.runtime.features.rows import chat as chat_rows
from xpc.runtime.features.rows import prompts as paired_rows

pytestmark = pytest.mark.slow

REWARD = "def f(completions, **_):\n    return [0.0 for _ in completions]\n"
ONLINE = spec(
    'method grpo(generations=16, max_completion=64, rewards=["own.py:f"])',
    'model(chat_template=file("chat.jinja"))',
    train="qwen2.5-3b on org/x for 3 epochs",
)
TASK = "task: mine\ndataset_path: json\nprocess_docs: !function helpers.f\n"


@pytest.fixture
def made(tmp_path: Path) -> Bundle:
    """A compiled bundle with a template and a reward function."""
    put(tmp_path / "in", {"own.py": REWARD, "chat.jinja": PLAIN})
    write(compiled(ONLINE, str(tmp_path / "in")), str(tmp_path / "b"))
    return read(str(tmp_path / "b"))


def edit(bundle: Bundle, name: str, more: str = "\n") -> None:
    with open(os.path.join(bundle.folder, name), "a", encoding="utf-8") as handle:
        handle.write(more)


# -- integrity -------------------------------------------------------------------------------------------------------


def test_a_bundle_as_it_was_compiled(made: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert bundle_integrity.problems(made) == []
    assert bundle_integrity.changed_files(made.folder, manifest_digests(made.folder)) == []
    assert capsys.readouterr().out == ""
    (one,) = rewards.functions(made)
    assert one([1, 2]) == [0.0, 0.0]


@pytest.mark.parametrize(
    "name", ["trainer_args.json", "accelerate.yaml", "deepspeed.json", "launch.sh", "trainer/core/run.py", "spec.xp"]
)
def test_file_changed_by_hand_is_reported_and_runs(name: str, made: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    edit(made, name)
    assert bundle_integrity.problems(made) == []
    assert capsys.readouterr().out == f"[run] changed since the bundle was compiled: {name}\n"
    os.remove(os.path.join(made.folder, name))
    assert bundle_integrity.changed_files(made.folder, manifest_digests(made.folder)) == [name]


def test_foreign_module_is_reported(made: Bundle) -> None:
    names = ("trainer/torch.py", "trainer/core/own.py", "trainer/__pycache__/run.cpython-311.pyc", "notes.txt")
    put(made.folder, dict.fromkeys(names, ""))
    found = bundle_integrity.changed_files(made.folder, manifest_digests(made.folder))
    assert found == ["trainer/core/own.py (new)", "trainer/torch.py (new)"]


def test_folder_in_place_of_the_hub_is_reported(
    made: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, {"cwd/org/x/data.jsonl": ROW})
    monkeypatch.chdir(tmp_path / "cwd")
    assert bundle_integrity.problems(made) == []
    assert (
        capsys.readouterr().out
        == "[run] the libraries load the local folder org/x, not org/x of the Hugging Face Hub\n"
    )


def test_a_template_that_was_changed_is_not_rendered(made: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    name = made.tokenizer["chat_template"]
    assert verified_files.verified(made, name) == PLAIN.encode()
    edit(made, name)
    (one,) = bundle_integrity.problems(made)
    assert "is not the file that this bundle was compiled with" in one
    assert "changed since" not in capsys.readouterr().out  # the error says it
    with pytest.raises(RunError, match="sha256 differs"):
        verified_files.verified(made, name)


def test_a_reward_file_that_was_changed_is_not_executed(made: Bundle, tmp_path: Path) -> None:
    edit(made, made.plan["method"]["rewards"][0]["file"], f"open({str(tmp_path / 'pwned')!r}, 'w').close()\n")
    with pytest.raises(RunError, match="is not the file that this bundle was compiled with"):
        rewards.functions(made)
    assert not (tmp_path / "pwned").exists()


def test_a_reward_file_out_of_the_bundle_is_not_executed(made: Bundle, tmp_path: Path) -> None:
    put(tmp_path, {"own.py": REWARD})
    made.plan["method"]["rewards"][0]["file"] = "../own.py"
    with pytest.raises(RunError, match="not inside the bundle"):
        rewards.functions(made)
    made.plan["method"]["rewards"][0].update(file="files/none.py")
    with pytest.raises(RunError, match="cannot read"):
        rewards.functions(made)


@pytest.mark.parametrize("how", ["task", "helper", "new", "bytecode", "none"])
def test_the_code_of_a_task_is_that_of_the_bundle(how: str, tmp_path: Path) -> None:
    put(tmp_path / "in", {"mine.yaml": TASK, "helpers.py": REWARD})
    write(compiled(spec('eval(tasks=["mine.yaml"])'), str(tmp_path / "in")), str(tmp_path / "b"))
    bundle = read(str(tmp_path / "b"))
    reported = json.loads((tmp_path / "b" / "evaluation.json").read_text())
    folder = os.path.dirname(reported["tasks"][0]["file"])
    if how in ("task", "helper"):
        edit(bundle, f"{folder}/{'mine.yaml' if how == 'task' else 'helpers.py'}")
    elif how != "none":
        put(bundle.folder, {f"{folder}/{'json.py' if how == 'new' else '__pycache__/helpers.cpython-311.pyc'}": ""})
    if how == "none":
        evaluate.verified_folder(bundle, folder)
        return
    with pytest.raises(RunError, match=r"sha256 differs|compiled with|compiled code that cannot be checked"):
        evaluate.verified_folder(bundle, folder)


@pytest.mark.parametrize("text", ["", "[", "files = 7", "[files]\na = 1", "\x00", "[" * 100_000])
def test_a_manifest_that_is_none(text: str, made: Bundle) -> None:
    with open(os.path.join(made.folder, "bundle.toml"), "w", encoding="utf-8") as handle:
        handle.write(text)
    bundle_integrity.problems(made)


def test_another_bundles_folder_is_not_gone_on_from(made: Bundle, tmp_path: Path) -> None:
    """The marker in an output folder has the values of one bundle. So a run does not resume from a folder of another
    bundle, and never opens its pickles.
    """
    from xpc.runtime.core import output_folder

    made.arguments["output_dir"] = str(tmp_path / "out")
    put(tmp_path / "out", {"checkpoint-1/rng_state.pth": b"cos\nsystem\n(S'true'\ntR."})
    with pytest.raises(RunError, match="contains no run of a bundle"):
        output_folder.begin(made)
    put(tmp_path / "out", {output_folder.MARKER: json.dumps({"bundle": "sha256:" + "0" * 64}) + "\n"})
    with pytest.raises(RunError, match=f'contains a run of another bundle.* `train "{tmp_path}/out"` continues'):
        output_folder.begin(made)


# -- the folder in which a run starts --------------------------------------------------------------------------------


def test_modules_of_the_folder_that_a_run_starts_in_are_not_imported(made: Bundle, tmp_path: Path) -> None:
    evil = f"open({str(tmp_path / 'pwned')!r}, 'w').close()\n"
    names = ("json", "os", "torch", "transformers", "trl", "accelerate", "sitecustomize", "usercustomize", "trainer",
             "signal", "hashlib", "logging", "psutil")  # fmt: skip
    put(tmp_path / "cwd", {f"{name}.py": evil for name in names})
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for words in (("main.py", "wrong"), ("launcher.py",), ("evaluate.py", "wrong"), ("launcher.py", "accelerate")):
        done = subprocess.run(
            [sys.executable, os.path.join(made.folder, "trainer", words[0]), *words[1:]],
            cwd=tmp_path / "cwd", env=clean, capture_output=True, text=True, timeout=HUNG, check=False,
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        assert not (tmp_path / "pwned").exists(), words


# -- rows ------------------------------------------------------------------------------------------------------------


def test_rows_that_are_large_or_strange_stay_data() -> None:
    big = "x" * 10_000_000 + "\0"
    turns = [{"role": "user", "content": big}, {"role": "\x1b[2J", "content": "{{ 7*7 }} $(id) __import__('os')"}]
    made = chat_rows.to_row(source("d.jsonl"), {"messages": turns}, 0)
    assert [one["content"] for one in made["messages"]] == [one["content"] for one in turns]
    assert chat_rows.to_row(source("d.jsonl", "text"), {"text": big}, 0) == {"text": big}
    with pytest.raises(RunError) as caught:
        paired_rows.to_row(source("d.jsonl", "unpaired"), {"prompt": "a", "completion": "b", "label": big}, 0)
    assert len(errors.shown(str(caught.value))) < 3000
    with pytest.raises(RunError) as caught:
        rows.to_row(source("d.jsonl", "conversations"), {"conversations": [{"from": "\x1b[2J" * 99, "value": ""}]}, 0)
    assert "\x1b" not in errors.shown(str(caught.value))


# -- models ----------------------------------------------------------------------------------------------------------


def bundle_of(folder: Path, **model: Any) -> Bundle:
    facts = plan("tiny", [source("d.jsonl")])
    facts["model"].update(model)
    return planned(str(folder), facts)


def test_what_is_pinned_is_what_is_loaded(tmp_path: Path) -> None:

    commit = "3aab1f1954e9cc14eb9509a215f9e5ca08227a9b"
    requested = {"id": "org/x", "path": None, "revision": commit, "trust_remote_code": True}
    assert bundle_of(tmp_path, **requested).loading() == {"revision": commit, "trust_remote_code": True}
    assert bundle_of(tmp_path).loading() == {"revision": "main", "trust_remote_code": False}
    files = compiled(spec("model(trust_remote_code)", train=f"org/x@{commit} on infinity-instruct for 3 epochs"))
    reported = json.loads(files["trainer_args.json"])["model"]
    assert (reported["revision"], reported["trust_remote_code"], reported["pickle"]) == (commit, True, False)


def test_no_service_converts_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "DS_ACCELERATOR", "TOKENIZERS_PARALLELISM", "TRL_EXPERIMENTAL_SILENCE",
                 "DISABLE_SAFETENSORS_CONVERSION"):  # fmt: skip
        monkeypatch.setenv(name, os.environ.get(name, ""))
    arguments.prepare_environment(bundle_of(tmp_path))
    assert os.environ["DISABLE_SAFETENSORS_CONVERSION"] == "true"


@pytest.mark.slow
def test_pickled_weights_are_refused_without_the_setting(tmp_path: Path) -> None:
    """Weights in a pickle are refused, unless the spec has the setting `pickle`. Even then, only tensors are read, and
    a program in the pickle is not run.
    """
    torch = pytest.importorskip("torch")
    import tiny
    from safetensors.torch import load_file

    from xpc.runtime.core.model import load_model, load_tokenizer

    folder = tmp_path / "tiny"
    tiny.build(str(folder))
    bundle = bundle_of(tmp_path, path=str(folder))
    tokenizer = load_tokenizer(bundle)
    load_model(bundle, tokenizer)
    weights = load_file(str(folder / "model.safetensors"))
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(RunError, match=r"no weights in safetensors; `model \{ pickle \}`"):
        load_model(bundle, tokenizer)
    allowed = bundle_of(tmp_path, path=str(folder), pickle=True)
    load_model(allowed, tokenizer)

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, (f"touch {tmp_path / 'pwned'}",)

    torch.save({**weights, "evil": Evil()}, folder / "pytorch_model.bin")
    for one in (bundle, allowed):
        with pytest.raises(Exception, match=r"safetensors|weights_only|Weights only|Unsupported|pickle"):
            load_model(one, tokenizer)
    # transformers loads rng_state.pth of a checkpoint by `torch.load`.
    torch.save(Evil(), tmp_path / "rng_state.pth")
    with pytest.raises(Exception, match=r"[Ww]eights"):
        torch.load(tmp_path / "rng_state.pth")
    assert not (tmp_path / "pwned").exists()


# -- templates -------------------------------------------------------------------------------------------------------

ESCAPES = (
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.popen('touch pwned').read() }}",
    "{{ lipsum.__globals__['os'].system('touch pwned') }}",
    "{{ self.__init__.__globals__ }}",
    "{{ messages.append(1) }}",
    "{{ messages.__class__.__base__.__subclasses__() }}",
    "{{ (messages|map(attribute='__class__')|list)[0].__mro__ }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__globals__ }}",
    "{{ strftime_now.__code__ }}",
    "{{ ''.format.__self__.__class__ }}",
    "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "{{ '%s'|format(messages).__class__ }}",
    "{{ (''|attr('__class__')) }}",
    "{% import 'os' as os %}{{ os }}",
    "{% include '/etc/passwd' %}",
    "{% extends '/etc/passwd' %}",
    "{% for i in range(10**9) %}{% endfor %}",
)
"""Known ways to escape from the sandbox of a template, and a template whose loop has no limit."""
RENDER = """
import json, os, sys
from transformers.utils.chat_template_utils import _compile_jinja_template
out = []
for text in json.loads(sys.stdin.read()):
    try:
        found = _compile_jinja_template(text).render(messages=[{"role": "user", "content": "hi"}])
    except Exception as error:
        found = f"error: {type(error).__name__}"
    out.append(found)
print(json.dumps(out))
"""


@pytest.mark.slow
@pytest.mark.parametrize("stack", FIRST_AND_LAST)
def test_templates_are_rendered_in_a_sandbox(stack: str, tmp_path: Path) -> None:
    """A template tries to escape from its sandbox. With each stack's transformers, the result is an error or an empty
    text, and nothing is executed.
    """
    done = subprocess.run(
        [interpreter(stack), "-c", RENDER], input=json.dumps([PLAIN, *ESCAPES]),
        cwd=tmp_path, capture_output=True, text=True, timeout=HUNG, check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    plain, *found = json.loads(done.stdout.strip().splitlines()[-1])
    assert plain == "hi"
    for text, answer in zip(ESCAPES, found, strict=True):
        assert answer.startswith("error: ") or not answer.strip(), (text, answer)
    assert found[-1] == "error: OverflowError"
    assert os.listdir(tmp_path) == []


def test_the_compiler_renders_no_template(tmp_path: Path) -> None:
    """The compiler never renders a template, and does not even import jinja2. It computes the template's digest,
    searches it for generation marks, and copies it.
    """
    put(tmp_path, {"a.xp": spec('model(chat_template=file("a.jinja"))'), "a.jinja": "{% for i in range(10**9) %}",
                   "rows.jsonl": ROW})  # fmt: skip
    script = (
        "import sys; from xpc.compiler.cli import main; status = main(['compile', 'a.xp', '-o', 'b']); "
        "sys.exit(3 if 'jinja2' in sys.modules else status)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, timeout=HUNG, check=False)
    assert done.returncode == 0, done.stderr
