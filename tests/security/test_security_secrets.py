"""Neither a bundle nor a cache entry nor a diagnostic contains a secret of the machine, of the user or of the spec."""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest
from case_support import PLAIN, ROW, spec
from compile_support import REPOSITORY, checked, codes, of, put, shown, xpc, xpc_in_turn

from xpc.compiler.files import file_memory
from xpc.compiler.files.secrets import TOKENS, find, is_secret, masked, suspect
from xpc.compiler.render import FORMATS, render

pytestmark = pytest.mark.slow

PLANTED = {
    "HF_TOKEN": "hf_" + "Ab1" * 12,
    "HUGGING_FACE_HUB_TOKEN": "hf_" + "Cd2" * 12,
    "WANDB_API_KEY": "0a1b2c3d4e" * 4,
    "AWS_ACCESS_KEY_ID": "AKIA" + "ABCDEFGH12345678",
    "AWS_SECRET_ACCESS_KEY": "zQ7" * 13 + "x",
    "GITHUB_TOKEN": "ghp_" + "aB3" * 12,
    "OPENAI_API_KEY": "sk-" + "aB3" * 16,
    "TRACKIO_TOKEN": "planted-trackio-token",
    "HTTPS_PROXY": "http://planted-user:planted-password@proxy.planted:3128",
    "SLURM_JOB_USER": "planted-slurm-user",
    "HOSTNAME": "planted-host-name",
    "USER": "planted-user-name",
    "LOGNAME": "planted-log-name",
    "USERNAME": "planted-windows-name",
}
SPECS = {
    "sft": spec("track wandb"),
    "hub": spec('track trackio(project="p")', save='save "out/run" hub="me/run"'),
    "fsdp": spec(strategy="fsdp"),
    "old": spec("target trl-0.18"),
    "local": spec('model(chat_template=file("chat.jinja"))', train='"tiny" on "rows.jsonl" for 3 epochs'),
    "slurm": spec("nodes 2", "launch slurm(partition=gpu)", batch="gbs=256 micro=16"),
    "k8s": spec("nodes 2", 'launch k8s(image="img", volume="runs", secret="hf")', batch="gbs=256 micro=16"),
    "sky": spec("nodes 2", "launch sky(volume=runs)", batch="gbs=256 micro=16"),
    "ray": spec("nodes 2", 'launch ray(volume="/mnt/runs")', batch="gbs=256 micro=16"),
    "sweep": spec("sweep {\n  lr = [1e-5, 2e-5]\n}"),
    "grpo": spec(
        'method grpo(generations=16, max_completion=64, rewards=[accuracy, "own.py:f"])',
        train="qwen2.5-3b on org/x for 3 epochs",
    ),
    "tasks": spec("eval(tasks=[gsm8k])"),
    "wrong": spec(batch="gbs=512 micro=11"),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder that contains all files in which tools store tokens."""
    location = tmp_path_factory.mktemp("secrets") / "planted-home"
    put(location, {
        ".cache/huggingface/token": PLANTED["HF_TOKEN"],
        ".cache/huggingface/stored_tokens": f"[me]\nhf_token = {PLANTED['HF_TOKEN']}\n",
        ".netrc": f"machine api.wandb.ai login user password {PLANTED['WANDB_API_KEY']}\n",
        ".aws/credentials": f"[default]\naws_access_key_id = {PLANTED['AWS_ACCESS_KEY_ID']}\n",
        ".config/wandb/settings": f"[default]\napi_key = {PLANTED['WANDB_API_KEY']}\n",
        ".gitconfig": "[user]\nname = planted-git-name\nemail = planted@planted\n",
        ".kube/config": "token: planted-kube-token\n",
        "planted-folder/specs/rows.jsonl": ROW,
        "planted-folder/specs/chat.jinja": PLAIN,
        "planted-folder/specs/own.py": "def f(completions, **_):\n    return [0.0 for _ in completions]\n",
        "planted-folder/specs/.env": f"HF_TOKEN={PLANTED['HF_TOKEN']}\n",
        "planted-folder/specs/tiny/config.json": json.dumps({
            "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 512,
        }),
    })  # fmt: skip
    put(location / "planted-folder" / "specs", {f"{name}.xp": text for name, text in SPECS.items()})
    return location


@pytest.fixture(scope="module")
def outputs(home: Path) -> Mapping[str, Mapping[str, bytes]]:
    """Run each command on each spec, in one process whose environment contains all secrets; return the outputs."""
    environment = {**PLANTED, "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "XPC_CACHE": "",
                   "XDG_CACHE_HOME": str(home / "xdg")}  # fmt: skip
    lines = [["check", f"{name}.xp", "--format", "sarif"] for name in SPECS]
    lines += [["check", "wrong.xp", "--format", format] for format in ("full", "json")]
    lines += [["compile", f"{name}.xp", "-o", f"../../out/{name}"] for name in SPECS]
    output: dict[str, dict[str, bytes]] = {name: {} for name in SPECS}
    for line, done in zip(lines, xpc_in_turn(lines, str(home / "planted-folder" / "specs"), environment), strict=True):
        name = line[1].removesuffix(".xp")
        assert done.returncode == (1 if name == "wrong" else 0), done.stdout + done.stderr
        output[name][" ".join(line)] = done.stdout + done.stderr
    return output


@pytest.mark.parametrize("name", SPECS)
def test_nothing_that_is_planted_comes_out(name: str, home: Path, outputs: Mapping[str, Mapping[str, bytes]]) -> None:
    seen = dict(outputs[name])
    assert len(seen) == (4 if name == "wrong" else 2)
    for where, _, names in os.walk(home / "out" / name):
        seen |= {os.path.join(where, one): (Path(where) / one).read_bytes() for one in names}
    assert len(seen) > 10 or name == "wrong"
    secrets = [
        *PLANTED.values(),
        "planted",
        str(home),
        getpass.getuser() if os.getuid() else os.path.expanduser("~root"),
    ]
    secrets += [socket.gethostname()] if len(socket.gethostname()) > 5 else []
    for what, data in seen.items():
        for secret in secrets:
            assert secret.encode() not in data, (what, secret)


def test_no_remembered_survey_has_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cached result about a data file contains a secret, neither from the environment nor from a file."""
    monkeypatch.setattr(file_memory, "SETTLED", -3600.0)
    environment = {**PLANTED, "HOME": str(home), "XPC_CACHE": "", "XDG_CACHE_HOME": str(home / "xdg")}
    assert xpc("check", "local.xp", cwd=str(home / "planted-folder" / "specs"), env=environment).returncode == 0
    entries = list((home / "xdg" / "xpc" / "data").iterdir())
    assert entries
    for entry in entries:
        data = entry.read_bytes()
        assert not [name for name, secret in PLANTED.items() if secret.encode() in data], entry


def test_every_recipe_is_without(tmp_path: Path) -> None:
    """The rule about secrets finds nothing in this repository's specs, although these contain commits, digests and
    addresses.
    """
    count = 0
    for where, _, names in os.walk(os.path.join(REPOSITORY, "specs")):
        for name in names:
            if not name.endswith((".xp", ".jinja", ".py", ".sh", ".jsonl", ".md")):
                # only the repository's own specs: `make demo` builds a model below this folder
                continue
            text = Path(where, name).read_text(encoding="utf-8")
            assert find(text) == [], name
            count += 1
    assert count > 30


KINDS = {
    "a token of the Hugging Face hub": "hf_" + "aB3" * 12,
    "an API key": "sk-ant-" + "aB3-" * 10,
    "an access key of AWS": "ASIA" + "ABCDEFGH12345678",
    "a token of GitHub": "github_pat_" + "aB3_" * 15,
    "a token of GitLab": "glpat-" + "aB3-_" * 4,
    "a token of Slack": "xoxb-" + "123-" * 5,
    "a key of Google": "AIza" + "aB3-_" * 7,
    "a private key": "-----BEGIN RSA PRIVATE KEY-----",
    "a key of Weights & Biases": "wandb_v1_" + "aB3_" * 10,
    "a password in a URL": "postgresql+psycopg://user:pass@host/db",
}
"""One fake secret of each kind."""


@pytest.mark.parametrize("kind", TOKENS)
def test_each_kind_is_found_where_it_stands(kind: str) -> None:
    secret = KINDS[kind]
    assert suspect(f"# see https://host/a\n{secret}")
    assert not suspect("# see https://host/a@b and me@host.org")
    ((start, end, what),) = find(f"a {secret} b")
    assert (start, what) == (2, kind)
    assert end == 2 + len(secret.partition("host")[0])  # a host name is not a secret
    assert masked(f"a {secret} b") == f"a {secret.replace(secret[: end - 2], '*' * (end - 2))} b"
    found = checked(spec(f'track wandb(name="{secret}")'))
    (one,) = of(found, "XP790")
    assert kind in one.message
    assert found.spec is None
    for format in FORMATS:
        assert secret[: end - 2] not in render(found.problems, format, silenced=found.silenced)
    assert len(of(checked(spec(f"# {secret}")), "XP790")) == 1


def test_a_text_that_is_no_spec_shows_none_either(tmp_path: Path) -> None:
    secret = KINDS["a token of GitHub"]
    put(tmp_path, {"a.xp": f"train }} # {secret}\n"})
    for result in xpc_in_turn([[command, "a.xp"] for command in ("check", "fmt", "compile")], cwd=str(tmp_path)):
        text = (result.stdout + result.stderr).decode()
        assert result.returncode == 1, result
        assert "*" * len(secret) in text, result
        assert secret not in text, result


@pytest.mark.parametrize(
    "text",
    [
        "3aab1f1954e9cc14eb9509a215f9e5ca08227a9b",
        "sha256:" + "0a1b2c3d4e" * 6 + "abcd",
        "hf_transfer", "hf_xet_high_performance", "task-sk-learn-something-long-and-plain-of-words",
        "https://huggingface.co/org/name@main", "s3://bucket/path:tag@x", "https://host:8080/x", "git@github.com:org/x",
        "me@host.org", "AKIAB", "ghp_short", "https://$USER:$PASS@host/", "https://user:${PASS}@host/", "sk-2",
        "http://a:b", "xoxo-hugs", "wandb_v1_small", "glpat-", "user:pass@host",
    ],
)  # fmt: skip
def test_what_is_no_secret(text: str) -> None:
    assert find(text) == []
    found = checked(spec(f"# {text}", f'data(system="{text}")'))
    assert "XP790" not in codes(found)
    assert "XP791" not in codes(found)


@pytest.mark.parametrize("part", ["a", "hf_", "a://", "sk-", "-----BEGIN ", "a://b:", "github_pat_", "AKIA", "a-.+"])
def test_no_text_takes_for_ever(part: str) -> None:
    """A template can be as large as 16 MiB, so each regular expression must take linear time. A quadratic one would
    take hours.
    """
    masked(f"hf_ {part * (500_000 // len(part))} {'a' * 100_000}")


def test_a_commit_is_a_revision_and_no_key() -> None:
    commit = "3aab1f1954e9cc14eb9509a215f9e5ca08227a9b"
    text = spec(f'model(revision="{commit}")', f'save "x" {{\n hub(revision="{commit}")\n}}', save="")
    assert not {"XP790", "XP791"} & set(codes(checked(text)))
    assert "XP791" in codes(checked(spec(f'track wandb(project="{commit}")')))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("chat.jinja", 'model(chat_template=file("chat.jinja"))'),
        ("system.txt", 'data(system=file("system.txt"))'),
        ("mine.yaml", 'eval(tasks=["mine.yaml"])'),
    ],
)
def test_a_secret_in_a_file_that_is_copied(name: str, line: str, tmp_path: Path) -> None:
    for text, wrong in ((f"task: x\n{PLAIN}{KINDS['a private key']}", True), (f"task: x\n{PLAIN}", False)):
        root = put(tmp_path, {name: text})
        found = checked(spec(line), root)
        assert ("XP790" in codes(found)) is wrong, shown(found)


def test_a_secret_in_a_base_is_reported_there(tmp_path: Path) -> None:
    root = put(tmp_path, {"base.xp": f'track wandb(name="{PLANTED["HF_TOKEN"]}")\n'})
    found = checked(spec().replace("xpc 1\n", 'xpc 1\nextends "base.xp"\n'), root)
    (one,) = of(found, "XP790")
    assert one.primary is not None
    assert one.primary.source.name == "base.xp"


def test_an_import_does_not_repeat_a_secret(tmp_path: Path) -> None:
    """If a key of an imported file has a token, the report names the key. Neither the report nor the spec contains the
    token.
    """
    body = "model_name_or_path: org/x\ndataset_name: org/y\nhub_token: {0}\nhf_token: {0}\nwandb_api_key: {1}\n"
    text = body.format(PLANTED["HF_TOKEN"], PLANTED["WANDB_API_KEY"])
    script = (
        f"export HF_TOKEN={PLANTED['HF_TOKEN']}\nexport WANDB_API_KEY={PLANTED['WANDB_API_KEY']}\n"
        f"torchrun train.py --model_name_or_path org/x --dataset_name org/y --hub_token {PLANTED['HF_TOKEN']}\n"
    )
    put(tmp_path, {"a.yaml": text, "a.sh": script, "ok.yaml": text.rsplit("hf_token", 1)[0]})
    lines = [
        ["import", file, "--report", report] for file in ("a.yaml", "a.sh", "ok.yaml") for report in ("text", "json")
    ]
    for done in xpc_in_turn(lines, str(tmp_path)):
        for secret in PLANTED.values():
            assert secret.encode() not in done.stdout + done.stderr, done.stdout + done.stderr
    assert is_secret("a.hub_token", "x")
    assert not is_secret("eos_token", "<|im_end|>")
    assert not is_secret("max_tokens", "5")


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["gbs=7", "ligr", "micro=", "launch slurmm {", 'launch { env = ["A=b c"] }', "]]"])
def test_no_finding_of_a_line_prints_the_secret_that_stands_in_it(tmp_path: Path, broken: str) -> None:
    """A finding about a name, a value or a syntax error quotes its line. If the line contains a secret, the finding
    must not show the secret, because many people can read CI logs.
    """
    token = PLANTED["HF_TOKEN"]
    line = f'track wandb(name="{token}", {token}=1) {broken} # {token}'
    put(tmp_path, {"t.xp": spec(line)})
    formats = ("full", "concise", "json", "github", "sarif")
    for done in xpc_in_turn([["check", "t.xp", "--format", one] for one in formats], str(tmp_path)):
        assert done.returncode == 1
        assert token.encode() not in done.stdout + done.stderr
        assert b"XP" in done.stdout


KEYS = {
    "a name": 'track wandb(name="0123456789abcdef0123456789abcdef01234567")',
    "a project": 'track wandb(name=a, project="0123456789abcdef0123456789abcdef01234567")',
    "a block": 'track wandb {\n  name = "0123456789abcdef0123456789abcdef01234567"\n}',
    "a variable": 'launch slurm(env=["WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567"])',
    "an own variable": 'launch slurm(env=["A=b", "MY_TOKEN=s3cret-0123456789abcdef0123456789abcdef01234567"])',
    "an option": 'launch slurm(extra_args=["--api-key=0123456789abcdef0123456789abcdef01234567"])',
}


@pytest.mark.parametrize("format", ["full", "concise", "json", "github", "sarif"])
@pytest.mark.parametrize("line", KEYS.values(), ids=KEYS)
def test_a_key_without_a_form_of_its_own_is_not_printed(line, format, tmp_path):
    put(tmp_path, {"x.xp": f"xpc 1\ntrain qwen2.5-3b on infinity-instruct\nhardware 8 x h100-80gb\n{line}\n"})
    done = xpc("check", "x.xp", "--format", format, cwd=str(tmp_path))
    assert b"0123456789abcdef0123456789abcdef01234567" not in done.stdout + done.stderr
    assert b"XP791" in done.stdout or b"XP911" in done.stdout, done.stdout


@pytest.mark.parametrize("format", ["full", "concise", "json", "github", "sarif"])
@pytest.mark.parametrize(
    "line",
    [
        'track wandb(api_key="{}")', "track wandb {{\n  api_key = {}\n}}", "api_key {}", 'extra trl(hub_token="{}")',
        "launch slurm(password={})", "track clearml(secret_key={})", 'password "{}"',
    ],
)  # fmt: skip
def test_the_value_of_an_unknown_setting_that_is_called_a_key_is_not_printed(line, format, tmp_path):
    """No rule reports the value of an unknown setting, because the setting itself is an error. The message about the
    setting must not show the value, either.
    """
    for value in ("0123456789abcdef0123456789abcdef01234567", "correcthorsebattery"):
        put(tmp_path, {"x.xp": f"xpc 1\ntrain qwen2.5-3b on infinity-instruct\n{line.format(value)}\n"})
        done = xpc("check", "x.xp", "--format", format, cwd=str(tmp_path))
        assert done.returncode == 1
        assert value.encode() not in done.stdout + done.stderr
        assert b"XP" in done.stdout
