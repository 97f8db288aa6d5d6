"""What a preview reads: the first rows of a hub dataset, the tools of prompt rows, and reward files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from emitted import put
from hub_files import HubFiles
from method_runs import Warm
from preview_samples import ROWS
from test_preview_batches import both, collated, previewed
from tiny_runs import lines, spec

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.preview import command
from xpc.compiler.preview.worker import json_lists, stored
from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow

PICKED = """
import json, sys, tempfile
sys.path.insert(0, {worker!r} + "/..")
from worker import session, stored
session.isolate()
opened = session.Session({bundle!r}, tempfile.mkdtemp(), False)
source, read = opened.bundle.data["sources"][0], stored.stream
stored.stream = lambda session, source: (seen.append(source["path"]), read(session, source))[1]
seen = []
rows = {{at: one[0] for at, one in stored.pick(opened, source, [59999, 0, 41000, 60000]).items()}}
random = stored.random_numbers(opened, source, 3, 7)
print(json.dumps({{"rows": rows, "random": random, "read": seen}}))
"""
"""A program that prints some rows of a bundle's first source, the indices of random rows, and the files that it reads
as datasets.
"""
HERE = os.path.dirname(os.path.abspath(__file__))
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}
TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool.function | tojson }}{% endfor %}{% for turn in messages %}<|im_start|>"
    "{{ turn.role }}\n{{ turn.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def of_hub(warm: Warm, name: str, scan: str, choice: str) -> Any:
    text = spec("data(format=messages)", "model(chat_template=qwen2.5)", data=f"org/rows@{COMMIT}").replace(
        "seq=64", "seq=512"
    )
    bundle, out = warm.compiled(text, name), os.path.join(warm.location, f"{name}.json")
    done = warm.of(DEFAULT).run(
        bundle, warm.location, bundle, out, scan, choice, program=os.path.join(HERE, "of_hub.py")
    )
    assert done["status"] == [0], f"{done['out'][-2000:]}\n{done['err'][-4000:]}"
    with open(out, encoding="utf-8") as handle:
        return json.load(handle)


def test_longest_rows_of_the_hub_are_those_of_its_first_rows(warm: Warm) -> None:
    found = of_hub(warm, "hub-longest", "local", "longest")
    assert found["answer"]["counts"]["rows"] == 1000
    assert {"place": "org/rows", "streaming": True, "revision": COMMIT} in found["read"]
    assert all(one["streaming"] for one in found["read"])
    assert any("the first 1,000 rows of org/rows are read from the hub" in one for one in found["progress"])


def test_tools_of_a_hub_row_are_in_its_text(warm: Warm) -> None:
    found = of_hub(warm, "hub-tools", "", "first")
    text = "".join(token[1] for token in found["answer"]["rows"][0]["sequences"][0]["tokens"])
    assert '"name": "add"' in text
    # XP595: the tool descriptions may use so much of the allowed length that the answer is truncated
    assert {one["code"] for one in found["answer"]["rows"][0]["verdicts"]} <= {"XP595"}


@pytest.mark.parametrize("method", ["grpo", "rloo"])
def test_prompts_with_tools_are_those_of_the_batches(warm: Warm, method: str) -> None:
    rows = [
        {"prompt": [{"role": "user", "content": f"What is {at}+{at}?"}], "tools": [TOOL], "solution": "$4$"}
        for at in range(ROWS)
    ]
    put(warm.location, {"tool_prompts.jsonl": lines(rows), "tools.jinja": TEMPLATE})
    more = (
        'model(chat_template=file("tools.jinja"))',
        f"method {method}(rewards=[accuracy], generations=4, max_completion=12)",
    )
    text = spec(*more, data='"tool_prompts.jsonl"', length="1 steps", sizes=f"gbs={ROWS} micro=4")
    answer, batches = both(warm, f"{method}-tools", text, DEFAULT)
    shown, real = previewed(answer), collated(batches, method)
    assert real
    assert not [one for one in real if one not in shown]
    text = "".join(token[1] for token in answer["rows"][0]["sequences"][0]["tokens"])
    assert '"name": "add"' in text


LOADS = """\
with open({marker!r}, "a") as handle:
    handle.write("loaded")


def judge(completions, **columns):
    return [0.5 for _ in completions]
"""


def test_a_reward_that_is_a_model_is_loaded_only_with_rewards(warm: Warm) -> None:
    marker = os.path.join(warm.location, "loaded")
    rows = [{"prompt": "What is 2+2?", "solution": "$4$"}] * 8
    put(warm.location, {"judged_prompts.jsonl": lines(rows), "scores.py": LOADS.format(marker=marker)})
    method = 'method grpo(rewards=["scores.py:judge"], generations=4, max_completion=12)'
    bundle = warm.compiled(spec(method, data='"judged_prompts.jsonl"', sizes="gbs=8 micro=4"), "scores")
    for words, loaded in (([], False), (["rows"], True)):
        out = os.path.join(warm.location, "scores.json")
        done = warm.of(DEFAULT).run(
            bundle, warm.location, bundle, out, "1", *words, program=os.path.join(HERE, "prepared.py")
        )
        assert done["status"] == [0], done["err"][-4000:]
        assert os.path.exists(marker) == loaded


def test_prompts_that_are_tokenized_while_the_run_trains_have_no_lengths(warm: Warm) -> None:
    rows = [{"prompt": f"What is {at}+{at}?", "solution": "$4$"} for at in range(ROWS)]
    method = "method grpo(rewards=[accuracy], generations=4, max_completion=12)"
    text = spec(method, data='"plain_prompts.jsonl"', length="1 steps", sizes=f"gbs={ROWS} micro=4")
    put(warm.location, {"plain_prompts.jsonl": lines(rows), "lengths.xp": text})
    words = [os.path.join(warm.location, "lengths.xp"), "--python", warm.of(DEFAULT).python]
    with pytest.raises(UsageError, match="their lengths are not known"):
        command.run(command.parse([*words, "--longest"]))


def test_rows_of_a_json_file_are_previewed(warm: Warm) -> None:
    """The file is a single JSON list of rows. If `datasets` streams such a file, it does not know the columns in
    advance.
    """
    rows = [{"prompt": f"What is {at}+{at}?", "completion": f" {2 * at}"} for at in range(ROWS)]
    put(warm.location, {"listed.json": json.dumps(rows)})
    answer, batches = both(warm, "listed", spec(data='"listed.json"', length="1 steps", sizes="gbs=8 micro=4"), DEFAULT)
    shown, real = previewed(answer), collated(batches, "sft")
    assert real
    assert not [one for one in real if one not in shown]


def test_a_list_that_is_not_json_is_left_to_the_library(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    for text, rows in (
        ('\ufeff [{"a": "[1,\\n]"},\n {"a":\n 2} ]\n', {1: {"a": 2}}),
        ('[{"a": 1}]', {}),
        ("[]", {}),
        ('[{"a": 1} {"a": 2}]', None),
        ('[{"a": 1}, 2]', None),
        ('[{"a": 1}, {"a": ', None),
        ('[{"a": 1}, {"a": 2}', None),
    ):
        path.write_text(text, encoding="utf-8")
        found = json_lists.chosen([str(path)], [1])
        assert rows == (None if found is None else {at: json.loads(one) for at, one in found.items()}), text


@pytest.mark.parametrize("piece", [1, 3, 64, 2**20])
def test_a_list_is_read_piece_by_piece(piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece may end anywhere: in a row, in a text, in an escape sequence, or between a row and its comma."""
    made = [{"a": 'x"]},{' * at, "é \u2028": [at, {"b": None}]} for at in range(9)]
    texts = (json.dumps(made), json.dumps(made, indent=2, ensure_ascii=False), "[ \r\n ]")
    paths = [tmp_path / f"{at}.json" for at in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8-sig")
    monkeypatch.setattr(json_lists, "PIECE", piece)
    names = [*map(str, paths)]
    assert [*map(json.loads, json_lists.rows(names))] == [*made, *made]
    assert json_lists.count(names) == 18
    assert {at: json.loads(one) for at, one in (json_lists.chosen(names, [0, 8, 9, 40]) or {}).items()} == {
        0: made[0], 8: made[8], 9: made[0],
    }  # fmt: skip


def test_the_first_rows_of_a_large_list_are_read_without_the_others(tmp_path: Path) -> None:
    """Only the pieces up to the last chosen row are read, and never more than two pieces are in memory."""
    path, sizes = tmp_path / "list.json", list[int]()
    path.write_text(json.dumps([{"a": "x" * 1000}] * 6000), encoding="utf-8")

    class Counted:
        def __init__(self, real: Any) -> None:
            self.real = real

        def read(self, many: int) -> str:
            sizes.append(many)
            return str(self.real.read(many))

    with open(path, encoding="utf-8") as handle:
        rows = json_lists._of_file(Counted(handle))
        assert [len(next(rows)) for _ in range(3)] == [1009] * 3
        assert sizes == [json_lists.PIECE]
        assert sum(1 for _ in rows) == 5997
    assert {*sizes} == {json_lists.PIECE}


def test_few_rows_of_a_large_list_are_those_of_a_file_of_lines(warm: Warm) -> None:
    """The first rows of a large list in a JSON file are read from the file itself, without the datasets library."""
    rows = [{"prompt": f"What is {at}?", "completion": f" {at}", "note": None, "more": {"a": [at] * 9}}
            for at in range(60_000)]  # fmt: skip
    put(warm.location, {"large.json": json.dumps(rows, indent=1), "large.jsonl": lines(rows)})
    shown, random, read = {}, {}, {}
    for name in ("large.json", "large.jsonl"):
        bundle = warm.compiled(spec(data=f'"{name}"', length="1 steps", sizes="gbs=8 micro=4"), name)
        text = PICKED.format(worker=os.path.dirname(stored.__file__), bundle=bundle)
        (answer,) = warm.program(DEFAULT, text)
        shown[name], random[name] = answer["rows"], answer["random"]
        read[name] = [os.path.basename(one) for one in answer["read"]]
    assert shown["large.json"] == shown["large.jsonl"]
    assert read == {"large.json": ["rows-of-a-list.jsonl"], "large.jsonl": ["large.jsonl"] * 2}
    assert random["large.json"] == random["large.jsonl"]
    assert [one["completion"] for one in shown["large.json"].values()] == [" 0", " 41000", " 59999"]


def test_the_files_of_a_model_on_the_hub_are_compared_with_its_tokenizer(warm: Warm, tmp_path: Path) -> None:
    """generation_config.json, which no preview needs, names another end token than the rows have."""
    folder = os.path.join(warm.location, "tiny")
    names = ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
    files = {name: Path(folder, name).read_bytes() for name in names if os.path.exists(os.path.join(folder, name))}
    rows = lines([{"messages": [{"role": "user", "content": f"{at}?"}, {"role": "assistant", "content": "It is."}]}
                  for at in range(4)])  # fmt: skip
    found = {}
    with HubFiles() as hub:
        for end in (0, 2):
            files["generation_config.json"] = json.dumps({"eos_token_id": end}).encode()
            commit = hub.push("models", "org/tiny", files)
            text = spec("lora(targets=[q_proj])", data='"rows.jsonl"').replace('"tiny"', f"org/tiny@{commit}")
            put(str(tmp_path), {"run.xp": text, "rows.jsonl": rows})
            environment = {**os.environ, **hub.environment, "HF_HOME": str(tmp_path / f"home{end}"), "XPC_CACHE": "off"}
            command = [sys.executable, "-m", "xpc.compiler.cli", "preview", "run.xp", "-n", "1", "--format", "json"]
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            found[end] = [one["code"] for one in json.loads(done.stdout)["rows"][0]["verdicts"]]
    assert found == {0: ["XP177"], 2: []}
