"""The first specs that newcomers wrote (first_specs.toml). The first check suggests edits; after these edits, a second
check finds no error.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from compile_support import CONFIG, checked, errors, put

TRIALS = tomllib.loads(Path(__file__).with_name("first_specs.toml").read_text())
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
REWARDS = """
def contains(prompts, completions, expected, **others):
    return [float(one in text) for text, one in zip(completions, expected)]


def exact(completions, **others):
    return [1.0 for _ in completions]


def strict(completions, expected):
    return [1.0 for _ in completions]
"""


def rows(make, count=40):
    return "".join(json.dumps(make(number)) + "\n" for number in range(count))


def talk(kind):
    return lambda n: {
        "messages": [{"role": "user", "content": f"{kind} {n}?"}, {"role": "assistant", "content": f"{kind}: {n}"}]
    }


def dialog(n):
    return {"dialog": [{"from": "human", "value": f"Double {n}"}, {"from": "gpt", "value": str(2 * n)}], "id": n}


def model(folder, eos, template=None):
    output = {"eos_token": eos, **({"chat_template": template} if template else {})}
    tokens = [{"content": one} for one in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")]
    return {
        f"{folder}/config.json": json.dumps(CONFIG),
        f"{folder}/tokenizer_config.json": json.dumps(output),
        f"{folder}/tokenizer.json": json.dumps({"added_tokens": tokens}),
    }


FILES = {
    **model("chat", "<|im_end|>", CHATML),
    **model("base", "<|endoftext|>"),
    "rows.jsonl": rows(talk("sum")),
    "held.jsonl": rows(talk("product")),
    "more.jsonl": rows(talk("root")),
    "dialogs.jsonl": rows(dialog, 32),
    "dialogs-val.jsonl": rows(lambda n: dialog(n + 32), 8),
    "faq.jsonl": rows(lambda n: {"question": f"Double {n}", "answer": str(2 * n)}),
    "prefs.jsonl": rows(lambda n: {"question": f"Double {n}", "good": str(2 * n), "bad": str(n)}),
    "tasks.jsonl": rows(lambda n: {"task": f"Double {n}", "expected": str(2 * n)}),
    "alpaca.jsonl": rows(lambda n: {"instruction": f"Double {n}", "input": "", "output": str(2 * n)}),
    "texts.jsonl": rows(lambda n: {"text": f"Twice {n} is {2 * n}. " * 20}),
    "rewards/exact.py": REWARDS,
    "feedback.csv": "prompt,answer,thumbs_up\n" + "".join(f"Double {n}?,It is {2 * n}.,{n % 2}\n" for n in range(40)),
    "books/first.txt": "".join(f"Chapter {n}. It rained.\n" for n in range(40)),
    "books/second.txt": "".join(f"Chapter {n}. It snowed.\n" for n in range(40)),
    "better.jsonl": rows(lambda n: {"prompt": f"Double {n}", "chosen": f" {2 * n}", "rejected": f" {2 * n + 1}"}),
    "ours.jinja": "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ eos_token }}{% endfor %}",
}


@pytest.mark.parametrize("name", TRIALS)
def test_the_second_check_is_clean(name, tmp_path):
    spec = TRIALS[name]["spec"].lstrip()
    folder = put(tmp_path, FILES)
    found = checked(spec, folder).problems
    reported = "\n".join([one.help or "" for one in found] + [edit.text for one in found for edit in one.edits])
    for wrong, right, *output in TRIALS[name]["fix"]:
        assert spec.count(wrong) == 1, wrong
        assert (output[0] if output else right) in reported, (right, reported)
        spec = spec.replace(wrong, right)
    after = checked(spec, folder)
    assert errors(after) == [], (spec, after.problems)
