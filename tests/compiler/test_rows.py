"""What a check reads of local files and templates, against the runtime and the installed libraries."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from hashlib import sha256

import pytest
from compile_support import NOWHERE

from xpc.compiler import rows
from xpc.compiler.rules import modules, templates
from xpc.compiler.spec import DataSource
from xpc.grammar.diagnostic import Label
from xpc.grammar.source import Source, Span
from xpc.runtime.rows import ROLES

HERE = Label(Source("t.xp", ""), Span(0, 0))


def source(content: str | bytes, shape: str = "messages", path: str = "rows.jsonl", **more: object) -> DataSource:
    data = content if isinstance(content, bytes) else content.encode()
    return DataSource(None, path, HERE, shape=shape, content=data, **more)


def wrong(row: object, shape: str, **more: object) -> str | None:
    return rows.wrong_shape(source("", shape, **more), row)


def test_speakers_are_those_of_the_runtime():
    assert set(rows.SPEAKERS) == set(ROLES)
    assert {name for name, role in ROLES.items() if role == "assistant"} == set(rows.ANSWERS)


def test_lines_are_read_and_blank_ones_are_no_rows():
    found = rows.stored(source('{"a": 1}\n\n{"a": 2}\n'))
    assert found.whole
    assert [row["a"] for row in found.rows] == [1, 2]


def test_a_list_is_read():
    assert len(rows.stored(source('[{"a": 1}, {"a": 2}]', path="rows.json")).rows) == 2
    assert not rows.stored(source('[{"a": 1}, 2]', path="rows.json")).rows
    assert not rows.stored(source("[1, ", path="rows.json")).whole


def test_what_is_no_row_ends_the_reading():
    for bad in ("{", "7"):
        found = rows.stored(source('{"a": 1}\n' + bad + '\n{"a": 2}\n'))
        assert (len(found.rows), found.whole) == (1, False)


def test_only_the_beginning_of_a_large_file_is_read(monkeypatch):
    monkeypatch.setattr(rows, "READ", 20)
    found = rows.stored(source('{"a": 1}\n{"a": 2}\n{"a": 3}\n'))
    assert (len(found.rows), found.whole) == (2, False)


def test_other_files_hold_no_rows_to_read():
    assert not rows.stored(source("a,b\n1,2\n", path="rows.csv")).rows


def test_rows_are_counted():
    assert rows.count(source("{}\n\n{}\n{}")) == 3
    assert rows.count(source("[{}, {}]", path="rows.json")) == 2
    assert rows.count(source("{}\n", slice="50%")) is None
    assert rows.count(DataSource("org/rows", None, HERE, rows=7)) == 7


def test_which_rows_are_conversations():
    talk = json.dumps({"prompt": [{"role": "user", "content": "?"}], "completion": []})
    assert rows.conversational(source("", "messages"))
    assert rows.conversational(source("", "text")) is False
    assert rows.conversational(source(talk, "prompt_completion"))
    assert rows.conversational(source('{"prompt": "?", "completion": "!"}', "prompt_completion")) is False
    assert rows.conversational(source("prompt,completion\n", "prompt_completion", path="rows.csv")) is False
    assert rows.conversational(DataSource("org/rows", None, HERE, shape="prompt_completion")) is None
    assert rows.conversational(DataSource("tatsu-lab/alpaca", None, HERE, shape="prompt_completion")) is False


@pytest.mark.parametrize(
    ("shape", "row", "said"),
    [
        ("messages", {"messages": [{"role": "user", "content": None}]}, None),
        ("messages", {"messages": []}, "empty"),
        ("messages", {"messages": "?"}, "no list"),
        ("messages", {"messages": ["?"]}, "no message"),
        ("messages", {"messages": [{"role": "user"}]}, "a role and a content"),
        ("conversations", {"conversations": [{"from": "human", "value": "?"}]}, None),
        ("conversations", {"conversations": [{"from": "alien", "value": "?"}]}, "`alien` is no known speaker"),
        ("conversations", {"conversations": [{"value": "?"}]}, "who speaks"),
        ("text", {"text": "?"}, None),
        ("text", {"text": None}, "not text"),
        ("prompt_completion", {"prompt": "?", "completion": "!"}, None),
        ("prompt_completion", {"prompt": "?", "completion": None}, "`completion` is not text"),
        (
            "prompt_completion",
            {"prompt": [{"role": "user", "content": "?"}], "completion": []},
            "`completion` is empty",
        ),
        ("unpaired", {"prompt": "?", "completion": "!", "label": True}, None),
        ("unpaired", {"prompt": "?", "completion": "!", "label": "good"}, "true or false"),
        ("unpaired", {"prompt": None, "completion": "!", "label": True}, "`prompt` is empty"),
        ("preference", {"chosen": "!", "rejected": "?"}, None),
        ("preference", {"chosen": {"role": "assistant", "content": "!"}, "rejected": "?"}, None),
        ("preference", {"chosen": [{"from": "gpt", "value": "!"}], "rejected": []}, "`rejected` is empty"),
        ("prompt", {"prompt": "?"}, None),
        ("prompt", {"prompt": [{"role": "user"}]}, "a role and a content"),
    ],
)
def test_what_keeps_a_row_from_its_shape(shape, row, said):
    found = wrong(row, shape)
    assert (found is None) if said is None else (found is not None and said in found)


def installed(name: str) -> str:
    """The folder of an installed package, which is not imported."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"{name} is not installed")
    return found.submodule_search_locations[0]


def test_templates_are_those_that_trl_knows():
    place = installed("trl")
    with open(os.path.join(place, "chat_template_utils.py"), encoding="utf-8") as handle:
        text = handle.read()
    body = text[text.index("def get_training_chat_template") :]
    names = re.findall(r"if chat_template == (\w+)_chat_template:", body)
    files = dict(re.findall(r'^(\w+)_chat_template = \(\s*_CHAT_TEMPLATES_DIR / "([\w.]+)"', text, re.M))
    digests = set()
    for name in names:
        with open(os.path.join(place, "chat_templates", files[name]), encoding="utf-8") as handle:
            template = handle.read()
        digests.add(sha256(template.encode()).hexdigest()[:16])
        assert templates.trainable(template)
        assert templates.trainable(template.replace("\n", "\r\n"))
    assert digests == templates.TRAINABLE
    for name in ("llama3_1.jinja", "llama3_2.jinja"):
        with open(os.path.join(place, "chat_templates", name), encoding="utf-8") as handle:
            assert not templates.trainable(handle.read())


PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import tiny_models, torch
from transformers import AutoModelForCausalLM
found = {}
for family in sys.argv[2:]:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(tiny_models.config(family))
    found[family] = sorted({
        name.rpartition(".")[2] for name, part in model.named_modules()
        if isinstance(part, torch.nn.Linear | torch.nn.Embedding) or type(part).__name__ == "Conv1D"
    })
print(json.dumps(found))
"""


@pytest.mark.slow
def test_modules_are_those_of_the_models():
    installed("transformers")
    proofs = os.path.join(os.path.dirname(NOWHERE), "proof")
    done = subprocess.run([sys.executable, "-c", PROGRAM, proofs, *modules.MODULES], capture_output=True, text=True,
                          check=False, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    for family, names in json.loads(done.stdout.splitlines()[-1]).items():
        assert set(names) - {"lm_head"} == set(modules.MODULES[family]), family
