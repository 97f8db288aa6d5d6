"""Every setting has an example that contains it and is legal; docs/reference.md and `xpc explain SETTING` show it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xpc.compiler.explain.examples import example
from xpc.compiler.explain.texts import explain
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.schema import BY_PATH, TABLE, Setting
from xpc.compiler.pipeline import check_text
from xpc.compiler.suggest.tables import examples
from xpc.grammar.diagnostic import ERROR

ROWS = [row for row in TABLE if example(row)]
PREFERENCES = "qwen2.5-0.5b-instruct on ultrafeedback-binarized"
PROMPTS = "qwen2.5-0.5b-instruct on deepmath-103k"
OF_SHAPE = {"preference": PREFERENCES, "unpaired": PREFERENCES, "prompt": PROMPTS}
TRAINS = {
    **{f"method {name}": OF_SHAPE[one.shapes[0]] for name, one in METHODS.items() if one.shapes[0] in OF_SHAPE},
    "lora(parameters": "qwen3-30b-a3b on infinity-instruct",
    "within=": "org/model on infinity-instruct",
    "max_pixels=": 'qwen2.5-vl-3b-instruct on "pictured.jsonl"',
}
"""Maps a text in an example to the model and the data of the spec in which the example is tested. The first text that
the example contains counts. If it contains none of them, the rows are conversations.
"""
FILES = {
    "eval.jsonl": json.dumps({"messages": [{"role": who, "content": "a"} for who in ("user", "assistant")]}) + "\n",
    "pictured.jsonl": json.dumps(
        {"messages": [{"role": who, "content": "a"} for who in ("user", "assistant")], "images": ["a.png"]}
    ) + "\n",
    "books.txt": "Once.\n\nTwice.\n",
    "tools.py": 'def search(query: str) -> str:\n    """Search.\n\n    Args:\n        query: a text\n    """\n',
    "env.py": "class Maze:\n    def reset(self, **row): ...\n    def get_reward(self): return 1.0\n",
    "env.sh": "module load cuda\n",
    "config.json": json.dumps(
        {"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 512,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048}
    ),
    "out/first/adapter_config.json": json.dumps(
        {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 8, "lora_alpha": 16, "lora_dropout": 0.0,
         "target_modules": ["q_proj", "v_proj"], "base_model_name_or_path": "Qwen/Qwen2.5-0.5B-Instruct"}
    ),
    "out/first/adapter_model.safetensors": "",
}  # fmt: skip


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.path)
def test_an_example_is_legal_and_writes_its_setting(row: Setting, location: Path) -> None:
    text = f"{example(row)}\n"
    if not text.startswith("train "):
        model = "a/b" if row.path == "model.config" else "qwen2.5-0.5b-instruct"
        trains = next((one for word, one in TRAINS.items() if word in text), f"{model} on infinity-instruct")
        text = f"train {trains}\n{text}"
    checked = check_text(text.encode(), "t.xp", Workspace(str(location), allow_oom=True))
    wrong = [f"{one.code} {one.message}" for one in checked.problems if one.severity == ERROR]
    assert not wrong, f"give {row.path} an `example`, or a line in compiler/suggest/examples.toml: {wrong}"
    assert checked.spec is not None
    assert checked.members if row.path == "sweep" else checked.spec.written(row.path)


def test_no_example_is_of_a_setting_that_is_missing() -> None:
    assert set(examples()) <= set(BY_PATH)
    assert len(ROWS) > len(TABLE) - 5


def test_explain_shows_it() -> None:
    assert "  example  schedule cosine(warmup=3%)\n" in explain("schedule.warmup")
