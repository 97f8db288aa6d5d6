"""Hostile pull requests that change something that a spec reads (models, tokenizers, rewards, tasks, rows, sweeps,
locks), or git's own objects. They do no harm.

Each test runs every command that a reviewer uses, as in test_security_reviewed.py.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from compile_support import CONFIG, put
from git_commands import git
from test_security_reviewed import MARK, SECRET, SPEC, assert_harmless, edited, linked, reviewed, specs
from test_security_reviewed import honest as honest
from tiers import nightly_but

pytestmark = pytest.mark.slow

DEEP = 100_000
TOKEN = "zq7secret"
ONE = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'
GRPO = SPEC.replace('"rows.jsonl"', '"p.jsonl"').replace("seq=256", 'seq=256\nmethod grpo(rewards=["r.py:f"])')
TASKS = SPEC + 'eval { tasks = ["t.yaml"] }\n'
LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
LOCK = '[lock]\nformat = 1\nxpc = "0"\ntarget = "trl-1.16"\n'
NUMBERS = ", ".join(map(str, range(100)))
RATES = ", ".join(f"{n}e-6" for n in range(1, 11))
ALLOWED = ("os.fork", "os.kill", "open of /proc/", "open of {root}/../secret", "open of {above}/secret")
"""Findings of the audit hook that are allowed. diff renders a changed template in a fork. A command reads the file that
a link leads to as rows or as a configuration, but shows nothing of it.
"""


def config(**values: object) -> Callable[[Path], None]:
    return specs({"m/config.json": json.dumps({**CONFIG, **values})})


def model(name: str, text: str) -> Callable[[Path], None]:
    return specs({f"m/{name}": text})


def reward(text: str | bytes) -> Callable[[Path], None]:
    return specs({"a.xp": GRPO, "p.jsonl": '{"prompt": "a"}\n' * 8, "r.py": text})


def rows(text: str | bytes, name: str = "rows.jsonl") -> Callable[[Path], None]:
    return specs({name: text, "a.xp": SPEC.replace("rows.jsonl", name)})


def spec(text: str) -> Callable[[Path], None]:
    return specs({"a.xp": SPEC + text})


def as_folder(root: Path) -> None:
    os.remove(root / "specs" / "a.xp")
    put(root / "specs" / "a.xp", {"b.xp": SPEC})


def gitlink(root: Path) -> None:
    """Put a submodule in place of a spec."""
    os.remove(root / "specs" / "a.xp")
    git(root, "rm", "-q", "--cached", "specs/a.xp")
    git(root, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},specs/a.xp")


EVIL: dict[str, Callable[[Path], None]] = {
    "a configuration of nested lists": model("config.json", '{"a": ' + "[" * DEEP),
    "a configuration of long numbers": model("config.json", json.dumps(CONFIG).replace("300", "9" * 5000)),
    "a configuration that is infinite": config(hidden_size=float("inf"), vocab_size=float("nan")),
    "a configuration of other types": config(hidden_size=[], num_hidden_layers={}, model_type=7, vocab_size="x"),
    "a configuration of zeros": config(hidden_size=0, num_attention_heads=0, num_key_value_heads=0, vocab_size=0),
    "a configuration of negative numbers": config(hidden_size=-64, num_hidden_layers=-2, vocab_size=-300),
    "a configuration of the environment": linked("m/config.json", "/proc/self/environ"),
    "a configuration without an end": linked("m/config.json", "/dev/zero"),
    "a tokenizer of nested lists": model("tokenizer_config.json", '{"chat_template": ' + "[" * DEEP),
    "a tokenizer of a million tokens": model("tokenizer_config.json", json.dumps(
        {"added_tokens_decoder": {str(n): {"content": f"<{n}>"} for n in range(10**5)}, "eos_token": {"content": []}}
    )),
    "a tokenizer's template in UTF-16": specs({"m/chat_template.jinja": "{{ messages }}".encode("utf-16")}),
    "a tokenizer's template of brackets": model("chat_template.jinja", "{% if a %}" * DEEP + "{" * DEEP),
    "an adapter of nested lists": specs({
        "ad/adapter_config.json": '{"r": ' + "[" * DEEP, "a.xp": SPEC + 'lora(from="ad")\n',
    }),
    "an adapter of other types": specs({
        "ad/adapter_config.json": '{"r": [], "lora_alpha": {}, "target_modules": 7, "peft_type": null}',
        "a.xp": SPEC + 'lora(from="ad")\n',
    }),
    "a reward of nested brackets": reward("def f(completions, **k):\n    return " + "(" * DEEP),
    "a reward of signs": reward("def f(completions, **k):\n    return " + "-" * DEEP + "1\n"),
    "a reward of attributes": reward("def f(completions, **k):\n    return a" + ".a" * DEEP + "\n"),
    "a reward with an unknown coding": reward(b"# coding: evil\ndef f(completions, **k):\n    return [1.0]\n"),
    "a reward with NUL": reward(b"def f(completions, **k):\n    return [1.0]\n\0"),
    "a reward of many functions": reward("def f(completions, **k):\n    return [1.0]\n" * 8000),
    "tasks that double": specs({"a.xp": TASKS, "t.yaml": LAUGHS}),
    "tasks with tags of Python": specs({
        "a.xp": TASKS, "t.yaml": f'task: x\nb: !!python/object/apply:os.system ["touch {MARK}"]\nc: !function x.f\n',
    }),
    "tasks that are nested": specs({"a.xp": TASKS, "t.yaml": "[" * DEEP}),
    "tasks that include themselves": specs({"a.xp": TASKS, "t.yaml": "include: t.yaml\ntask: x\n"}),
    "tasks that include a secret": specs({"a.xp": TASKS, "t.yaml": "include: ../../secret\ntask: x\n"}),
    "rows of the environment": linked("rows.jsonl", "/proc/self/environ"),
    "rows of a folder with a link": linked(
        "more/a.jsonl", "{root}/../secret", {"a.xp": SPEC.replace("rows.jsonl", "more")}
    ),
    "rows of a million empty objects": rows("{}\n" * 10**6),
    "rows of one cell": rows("text\n\"" + "x,\n" * 10**6, "r.csv"),
    "rows of a million columns": rows("a," * 10**6 + "\n", "r.csv"),
    "rows that are no Parquet": rows(
        b"PAR1" + b"\x15\xff" * 10**5 + (2 * 10**5).to_bytes(4, "little") + b"PAR1", "r.parquet"
    ),
    "rows with half of a pair as a key": rows('{"\\ud800": 1, "messages": "\\u0000"}\n' * 1000),
    "rows that are UTF-7": rows(b"+AHsAIg-a+ACI-: 1+AH0-\n" * 10),
    "rows with a mark of the byte order": rows("\ufeff" + ONE * 8),
    "8,000 silenced findings": spec("".join(f"# xpc: allow XP{n % 999:03} because {n}\n" for n in range(8000))),
    "500 sources": specs({
        "a.xp": SPEC.replace('on "rows.jsonl"', "on d") + "data d {\n" + '  "rows.jsonl"\n' * 500 + "}\n",
    }),
    "a sweep of 1,000": spec(f"sweep {{\n  seed = [{NUMBERS}]\n  optimizer.lr = [{RATES}]\n}}\n"),
    "a base with a long path": specs({
        "a.xp": SPEC.replace("xpc 1\n", 'xpc 1\n\nextends "' + "a/" * 20_000 + 'x.xp"\n'),
    }),
    "a base with many folders above": specs({
        "a.xp": SPEC.replace("xpc 1\n", 'xpc 1\n\nextends "' + "../" * 20_000 + 'etc/x.xp"\n'),
    }),
    "a lock of 50,000 packages": specs({
        "a.xp.lock": LOCK + '[environment."requirements.txt"]\nasked = []\nresolved = [' + '"a==1",' * 50_000 + "]\n",
    }),
    "a lock of 10,000 models": specs({
        "a.xp.lock": LOCK + "".join(f'[[model]]\nid = "a/m{n}"\nrevision = "{n:040}"\n' for n in range(10_000)),
    }),
    "a lock of numbers": specs({"a.xp.lock": LOCK.replace("1", "1" * 100_000) + "[files]\nx = 1979-05-27T07:32:00Z\n"}),
    "a lock with rows of nonsense": specs({
        "a.xp.lock": f'{LOCK}[[dataset]]\nid = "a/b"\nrevision = "{"1" * 40}"\nrows = {{ train = -{"9" * 400} }}\n',
    }),
    "a folder in place of a spec": as_folder,
    "a submodule in place of a spec": gitlink,
    "a manifest with facts of nonsense": edited("a.bundle/bundle.toml", lambda text: text.replace(
        "[bundle]\n", f'[bundle]\nallow_oom = "\\u001b[2J"\nimages = {"9" * 4000}\n', 1
    )),
    "a manifest that names a spec elsewhere": edited("a.bundle/bundle.toml", lambda text: text.replace(
        'spec = "a.xp"', 'spec = "../../../secret.xp"', 1
    )),
    "a manifest with inputs elsewhere": edited("a.bundle/bundle.toml", lambda text: text.replace(
        "[inputs]\n", f'[inputs]\n"../../../../secret" = "sha256:{"1" * 64}"\n"/proc/self/environ" = "x"\n', 1
    )),
    "a preview that is a link to a secret": linked("x.preview", "{root}/../secret"),
    "a bundle's spec that reads the environment": edited("a.bundle/spec.xp", lambda text: text.replace(
        'save "out/a"', 'model { chat_template = file("/proc/self/environ") }\nsave "out/a"'
    )),
}  # fmt: skip

DAILY = {"500 sources", "a base with a long path", *list(EVIL)[::7]} - {"a sweep of 1,000"}
"""The pull requests that `make test` tries: those that once took quadratic time, and every seventh of the list. `make
slow` tries all.
"""


@pytest.mark.parametrize("what", nightly_but(EVIL, DAILY.__contains__))
def test_a_pull_request_against_what_a_spec_reads(
    what: str, honest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    root = tmp_path / "work"
    shutil.copytree(honest, root, symlinks=True)
    put(tmp_path, {"secret": SECRET, "secret.xp": SECRET})
    EVIL[what](root)
    git(root, "add", "-A", "-f", *([":!specs/a.xp"] if "submodule" in what else []))
    git(root, "commit", "-qm", "two")
    found = reviewed(root)
    allowed = tuple(one.format(root=root, above=tmp_path) for one in ALLOWED)
    assert isinstance(found["findings"], list)
    assert not [one for one in found["findings"] if not one.startswith(allowed)]
    assert_harmless(found, root)
    assert len(str(found["comment"])) < 65_536
