"""`xpc verify BUNDLE --run OUT` compares the summary that a run has written with the run's bundle."""

import hashlib
import json
import math
import os
import shutil

import pytest
from case_support import spec
from compile_support import put, tree, xpc

from xpc.compiler.review.finished_run import bundle_digest, same_argument
from xpc.compiler.review.installed import pins
from xpc.compiler.review.verifying import run_files
from xpc.runtime.core.checkpoint_integrity import clear, final_files

pytestmark = pytest.mark.slow

ROWS = b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n' * 40


@pytest.fixture
def location(tmp_path):
    text = spec(
        train='qwen2.5-3b on "rows.jsonl" for 2 epochs', hardware="2 x cpu", precision="fp32", batch="gbs=8 micro=2"
    )
    put(tmp_path, {"x.xp": text, "rows.jsonl": ROWS})
    assert xpc("compile", "x.xp", cwd=str(tmp_path)).returncode == 0
    return tmp_path


def noted(location):
    """The summary that a run of x.bundle would write."""
    bundle = str(location / "x.bundle")
    versions = pins(f"{bundle}/requirements.txt")
    plan = json.loads((location / "x.bundle" / "trainer_args.json").read_text())
    seen = {**plan["arguments"], "report_to": [], "eos_token": "<EOS_TOKEN>", "deepspeed": f"{bundle}/deepspeed.json"}
    return {
        "bundle": bundle_digest(bundle),
        "world": 2, "steps": 10, "sequences": 80, "tokens": 640.0, "data": {"left_out": 0},
        "versions": {**versions, "torch": f"{versions['torch']}+cpu"},
        "arguments": seen,
    }  # fmt: skip


def verified(location, **changes):
    found = noted(location)
    found["arguments"] |= changes.pop("arguments", {})
    found["versions"] |= changes.pop("versions", {})
    put(location, {"out/summary.json": json.dumps({**found, **changes})})
    done = xpc("verify", "x.bundle", "--run", "out", cwd=str(location))
    assert b"broke the compiler" not in done.stderr, done.stderr
    return done.returncode, done.stdout.decode() + done.stderr.decode()


def test_run_that_matches_its_bundle_has_no_finding(location):
    assert verified(location) == (0, "out is what x.bundle asks for: 10 steps, 80 sequences, 640 tokens\n")


def test_a_stream_has_no_counts_of_rows(tmp_path):
    words = {"train": 'qwen2.5-3b on "rows.jsonl" for 10 steps', "hardware": "2 x cpu", "precision": "fp32"}
    put(tmp_path, {"x.xp": spec("data(streaming)", batch="gbs=8 micro=2", **words), "rows.jsonl": ROWS})
    assert xpc("compile", "x.xp", cwd=str(tmp_path)).returncode == 0
    assert verified(tmp_path, data=None)[0] == 0
    assert verified(tmp_path, data=[])[0] == 1


@pytest.mark.parametrize("name", ["deepspeed", "chat_template_path"])
def test_a_file_of_the_bundle_may_be_recorded_with_its_folder(name):
    assert same_argument(name, "files/a.json", "/runs/x.bundle/files/a.json")
    assert not same_argument(name, "files/a.json", "/runs/x.bundle/files/b.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bundle": "sha256:0"}, "the run used another bundle"),
        ({"world": 1}, "1 processes, but the bundle asks for 2"),
        ({"steps": 9, "sequences": 72}, "9 steps, but the bundle asks for 10"),
        ({"sequences": 40}, "40 sequences, but 10 steps have 8 each"),
        ({"versions": {"trl": "1.15.0"}}, "trl 1.15.0, but the bundle pins 1.16.0"),
        ({"versions": {"trl": None}}, "trl was not installed, but the bundle pins 1.16.0"),
        ({"arguments": {"learning_rate": 1e-4}}, "learning_rate was 0.0001, but the bundle states "),
        ({"arguments": {"bf16": True}}, "bf16 was true, but the bundle states false"),
    ],
    ids=lambda one: str(one)[:40],
)
def test_differences_are_named(location, changes, message):
    status, out = verified(location, **changes)
    assert (status, message in out, "the run in out differs from the bundle x.bundle" in out) == (1, True, True), out


def test_excluded_rows_may_shorten_a_run(location):
    assert verified(location, steps=9, sequences=72, data={"left_out": 4})[0] == 0


def test_missing_and_older_summaries_are_refused(location):
    done = xpc("verify", "x.bundle", "--run", "nowhere", cwd=str(location))
    assert (done.returncode, b"a run writes it when it ends" in done.stderr) == (2, True)
    put(location, {"out/summary.json": "{}"})
    done = xpc("verify", "x.bundle", "--run", "out", cwd=str(location))
    assert (done.returncode, b"older bundle" in done.stderr) == (2, True)
    assert not os.path.exists(location / "out" / "xpc_run.json")


def finished(location, *more):
    """The output folder of a run that matches its bundle: metrics (with the events `more`), weights, and a summary with
    a seal (a digest of its content).
    """
    events = [{"step": 1, "loss": 2.5, "tokens": 64, "epoch": 0.2}, *more, {"step": 10, "loss": 1.5, "tokens": 640.0}]
    put(location / "out", {
        "metrics.jsonl": "".join(json.dumps(one) + "\n" for one in events), "model.safetensors": b"w" * 5000,
        "config.json": "{}", "tokenizer.json": "{}", "merged/model.safetensors": b"m" * 50, "xpc_run.json": "{}\n",
        "checkpoint-10/model.safetensors": b"c", "runs/events": b"e", "_hub_pending": "",
    })  # fmt: skip
    files = {name: list(seal) for name, seal in final_files(str(location / "out")).items()}
    facts = {**noted(location), "first_loss": 2.5, "last_loss": 1.5, "epochs": 2.0, "files": files}
    text = json.dumps(facts, indent=2)
    seal = hashlib.sha256(text.encode()).hexdigest()
    put(location / "out", {"summary.json": f'{text[:-2]},\n  "seal": "sha256:{seal}"\n}}\n'})
    return location / "out"


def of_run(location):
    done = xpc("verify", "x.bundle", "--run", "out", cwd=str(location))
    assert b"broke the compiler" not in done.stderr, done.stderr
    return done.returncode, done.stdout.decode() + done.stderr.decode()


def test_a_finished_run_with_its_digests(location):
    out = finished(location)
    assert of_run(location)[0] == 0, of_run(location)
    # summary.json has no digests of files that may change after the run
    for name in ("checkpoint-10/model.safetensors", "runs/events", "xpc_run.json"):
        (out / name).write_text("x")
    assert of_run(location)[0] == 0


def test_long_metrics_are_compared_up_to_the_limit_of_a_report(location, monkeypatch):
    """Before a fix, `xpc report` read up to 256 MiB of metrics, but `verify --run` reported a run with more than 64 MiB
    of metrics as changed.
    """
    finished(location, {"step": 2, "name": "x" * 65 * 2**20})
    assert of_run(location)[0] == 0, of_run(location)
    monkeypatch.setattr(run_files, "LARGEST_METRICS", 2**20)
    found = list(run_files.differences(str(location / "out"), json.loads((location / "out/summary.json").read_text())))
    assert found == ["metrics.jsonl cannot be read: it is larger than 1 MiB"]


FILES = ("metrics.jsonl", "model.safetensors", "config.json", "tokenizer.json", "merged/model.safetensors")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["edited", "removed", "a link", "a pipe", "longer"])
def test_a_tampered_file_of_a_run(location, name, how):
    path = finished(location) / name
    data = path.read_bytes()
    if how == "edited":
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    elif how == "longer":
        path.write_bytes(data + b"\n")
    else:
        os.remove(path)
    if how == "a link":
        put(location, {"elsewhere": data})
        os.symlink(location / "elsewhere", path)
    if how == "a pipe":
        os.mkfifo(path)
    status, out = of_run(location)
    assert (status, name in out) == (1, True), out


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"first_loss": 2.5', '"first_loss": 2.4'),
        ('"last_loss": 1.5', '"last_loss": 0.5'),
        ('"tokens": 640.0', '"tokens": 64000.0'),
        ('"epochs": 2.0', '"epochs": 3.0'),
        ('"left_out": 0', '"left_out": 1'),
        ('"steps": 10', '"steps":  10'),
    ],
    ids=lambda one: one.split(":")[0],
)
@pytest.mark.parametrize("sealed", [False, True])
def test_an_edited_summary_is_reported(location, old, new, sealed):
    path = finished(location) / "summary.json"
    text = path.read_text()
    assert old in text
    text = text.replace(old, new, 1)
    if sealed:
        # the seal, a digest of the lines above it, needs no key: after an edit, anybody can compute it anew
        above = text.rpartition(',\n  "seal"')[0]
        text = f'{above},\n  "seal": "sha256:{hashlib.sha256((above + chr(10) + "}").encode()).hexdigest()}"\n}}\n'
    path.write_text(text)
    status, out = of_run(location)
    # these numbers are in metrics.jsonl, too, so the two can be compared
    known = old.startswith(('"first_loss', '"last_loss', '"tokens'))
    assert status == (1 if known or not sealed else 0), out


STRANGE = {
    "steps": [None, "10", 10.0, [], True], "sequences": [[], None], "world": [True, {}], "versions": [[], {"trl": 1}],
    "data": [[1], "x", None], "arguments": [[], "x"], "bundle": [[1], None], "tokens": ["640", 10**400, {}],
    "files": [[], "x", {"metrics.jsonl": None}, {"a\0b": [1, "a"]}, {"a\ud800b": [1, "a"]}, {"": []}, {"a" * 5000: 1}],
    "last_loss": [math.nan, "1.5", math.inf],
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_a_value_of_another_type_is_reported(location, name):
    """If a sealed summary has a value of a wrong type, `verify` reports this and does not end with a traceback."""
    path = finished(location) / "summary.json"
    facts = json.loads(path.read_text().rpartition(',\n  "seal"')[0] + "\n}")
    for value in STRANGE[name]:
        text = json.dumps({**facts, name: value}, indent=2)
        path.write_text(f'{text[:-2]},\n  "seal": "sha256:{hashlib.sha256(text.encode()).hexdigest()}"\n}}\n')
        assert of_run(location)[0] == 1, value


ADDED = (
    "adapter_config.json", "merged/adapter_model.safetensors", "chat_template.jinja", "generation_config.json",
    "additional_chat_templates/tool_use.jinja", "modeling_x.py", "pytorch_model.bin", "tokenizer.model",
)  # fmt: skip


def test_added_files_that_loading_the_model_would_read(location):
    """With an added adapter_config.json, transformers would load another model, so `verify` reports this file."""
    out = finished(location)
    for name in ADDED:
        put(out, {name: "{}"})
        status, text = of_run(location)
        assert (status, f"{name} was added after the run" in text) == (1, True), text
        os.remove(out / name)
    os.rmdir(out / "additional_chat_templates")
    os.symlink(location, out / "additional_chat_templates")
    assert "additional_chat_templates was added" in of_run(location)[1]
    os.remove(out / "additional_chat_templates")
    put(out, {"eval/results.json": "{}", "all_results.json": "{}", "_hub/a.py": "", "_saving/a.py": "", ".a/b": ""})
    assert of_run(location)[0] == 0, of_run(location)


LEFT = {
    "merged": os.symlink, "config": os.symlink, "a/b": os.symlink, "pipe": lambda _, path: os.mkfifo(path),
    "notes.txt": os.link, "a/loss.png": os.link, "_x.py": os.link, "__init__.py": os.link, "a/nowhere": os.symlink,
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_an_entry_that_the_run_did_not_write_is_reported(location, name):
    """Every entry that the run did not write is reported. Entries without the extension of a model file, such as a link
    `merged`, were once not reported.
    """
    out = finished(location)
    shutil.rmtree(out / "merged")
    path = out / "summary.json"
    facts = json.loads(path.read_text().rpartition(',\n  "seal"')[0] + "\n}")
    del facts["files"]["merged/model.safetensors"]
    text = json.dumps(facts, indent=2)
    path.write_text(f'{text[:-2]},\n  "seal": "sha256:{hashlib.sha256(text.encode()).hexdigest()}"\n}}\n')
    assert of_run(location)[0] == 0, of_run(location)
    put(location, {"elsewhere/model.safetensors": b"m"})
    os.makedirs((out / name).parent, exist_ok=True)
    target = location / ("elsewhere" if LEFT[name] is os.symlink else "elsewhere/model.safetensors")
    LEFT[name](location / "nothing" if name.endswith("nowhere") else target, out / name)
    status, text = of_run(location)
    assert (status, f"{name} was added after the run" in text) == (1, True), text


def test_more_folders_than_are_searched(location, monkeypatch):
    put(finished(location), {"a/b/c": ""})
    monkeypatch.setattr(run_files, "MOST", 2)
    assert "more than 2 folders, and the others are not searched" in of_run(location)[1]


def test_added_weights_and_a_summary_without_digests_are_reported(location):
    out = finished(location)
    put(out, {"model-00002.safetensors": b"x"})
    assert "model-00002.safetensors was added" in of_run(location)[1]
    os.remove(out / "model-00002.safetensors")
    put(out, {"summary.json": json.dumps(noted(location))})
    status, text = of_run(location)
    assert (status, "no digests" in text) == (1, True), text


def test_leftovers_of_a_killed_save_are_deleted(tmp_path):
    """safetensors first writes weights to `.tmpXXXXXX` in the same folder. A run that is killed with `kill -9` during a
    save leaves this file there; the next start deletes it.
    """
    put(tmp_path, {".tmpAb12Cd": b"w", "merged/.tmpAb12Cd": b"w", ".tmpfile-of-mine": b"", "model.safetensors": b""})
    clear(str(tmp_path))
    assert sorted(tree(tmp_path)) == [".tmpfile-of-mine", "merged/", "model.safetensors"]
