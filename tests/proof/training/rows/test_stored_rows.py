"""A library would read or learn some rows otherwise than the file says. The run reads such rows as they are stored, or
stops and names the row.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from emitted import put
from prepared_data import trained_on
from tiers import EACH_STACK
from tiny import conversations
from tiny_runs import lines, spec

from xpc.compiler.stacks import DEFAULT, load

if TYPE_CHECKING:
    from method_runs import Warm

pytestmark = pytest.mark.slow

ANSWERS = "method sft(assistant_only)"
DATES = [f"2024-01-{day:02d}" for day in range(1, 9)]
DATED = """\
def dated(completions, answer, **columns):
    assert all(isinstance(one, str) for one in answer), answer
    return [float(len(one[0]["content"])) for one in completions]
"""


def stopped(warm: Warm, name: str, rows: list[Any], *more: str, target: str = DEFAULT, **around: str) -> str:
    """The error message with which a run on a Parquet file of conversations stops."""
    import pyarrow
    from pyarrow.parquet import write_table

    write_table(pyarrow.Table.from_pylist([{"messages": row} for row in rows]), f"{warm.location}/{name}.parquet")
    bundle = warm.compiled(spec(*more, data=f'"{name}.parquet"', target=target, **around), f"{name}-{target}")
    cwd = os.path.join(warm.location, f"{name}-{target}.run")
    os.mkdir(cwd)
    answer = warm.of(target).run(bundle, cwd)
    assert answer["status"] == [1], answer["err"][-3000:]
    return str(answer["err"])


def learned(warm: Warm, found: dict[str, Any]) -> set[str]:
    """The learned texts of the rows, without their end tokens."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(os.path.join(warm.location, "tiny"))
    texts = (tokenizer.decode([label for label in row["labels"] if label >= 0]) for row in found["rows"])
    return {one.replace("<|im_end|>", "").strip() for one in texts}


@pytest.mark.parametrize("target", EACH_STACK)
def test_a_date_is_a_text(warm: Warm, target: str) -> None:
    """pyarrow would read the answers as timestamps. The dates are read as texts within conversations, too."""
    question = {"role": "user", "content": "When?"}
    answers = [{"prompt": "When? ", "completion": one} for one in DATES]
    turns = [{"prompt": [question], "completion": [{"role": "assistant", "content": one}]} for one in DATES]
    put(warm.location, {"dates.jsonl": lines(answers), "dates.json": json.dumps(answers), "turns.jsonl": lines(turns)})
    found = trained_on(
        warm, target, "dates", tuple(
            spec("data(chat=false)" * (name[0] == "d"), data=f'"{name}"', target=target, sizes="gbs=4 micro=2 seq=64")
            for name in ("dates.jsonl", "dates.json", "turns.jsonl")
        ),
    )  # fmt: skip
    assert [learned(warm, one) for one in found] == [{*DATES}] * 3


@pytest.mark.parametrize("target", EACH_STACK)
def test_a_number_in_a_csv_file_is_a_text(warm: Warm, target: str) -> None:
    """pandas would read `007` as 7 and `1.10` as 1.1, and TRL refuses a number as an answer."""
    answers = ["007", "1.10", "42", "1e5"]
    put(warm.location, {
        "numbers.csv": "prompt,completion\n" + "".join(f"Which is {at}? ,{one}\n" for at, one in enumerate(answers)),
        "named.csv": "ask,reply\n" + "".join(f"{at},{'true' if at % 2 else 'false'}\n" for at in range(4)),
        "words.csv": "text\n" + "".join(f"{one}\n" for one in answers),
    })  # fmt: skip
    block = 'data named {\n  "named.csv" {\n    columns = [ask, reply]\n  }\n  format = prompt_completion\n}'
    sizes = "gbs=4 micro=2 seq=64"
    found = trained_on(
        warm, target, "numbers", (
            spec(data='"numbers.csv"', target=target, sizes=sizes),
            spec(block, data="named", target=target, sizes=sizes),
            spec(data='"words.csv"', target=target, sizes=sizes),
        ),
    )  # fmt: skip
    assert [learned(warm, one) for one in found] == [{*answers}, {"true", "false"}, {*answers}]


def test_a_reward_gets_the_solution_of_a_csv_file_as_text(warm: Warm, tmp_path: Any) -> None:
    """The reward `accuracy` would return None for a solution that is a number, so the solution is read as text. Other
    columns are read as pandas reads them.
    """
    put(warm.location, {
        "solved.csv": "prompt,solution,points\n" + "".join(f"What is {at}?,0{at},{at}\n" for at in range(8)),
        "solved.py": "def judge(completions, solution, points, **columns):\n"
        "    assert all(one == f'0{many}' for one, many in zip(solution, points)), (solution, points)\n"
        "    return [float(len(one[0]['content'])) for one in completions]\n",
    })  # fmt: skip
    settings = 'method grpo(rewards="solved.py:judge", generations=4, max_completion=8)'
    warm.train(
        spec(settings, data='"solved.csv"', length="1 step", sizes="gbs=4 micro=4"), "solved", DEFAULT, str(tmp_path)
    )


def test_a_reward_gets_a_date_as_text(warm: Warm, tmp_path: Any) -> None:
    put(warm.location, {
        "dated.jsonl": lines([{"prompt": f"When was {one}?", "answer": one} for one in DATES]), "dated.py": DATED,
    })  # fmt: skip
    settings = 'method grpo(rewards="dated.py:dated", generations=4, max_completion=8)'
    warm.train(
        spec(settings, data='"dated.jsonl"', length="1 step", sizes="gbs=4 micro=4"), "dated", DEFAULT, str(tmp_path)
    )


@pytest.mark.parametrize("target", EACH_STACK)
def test_a_row_without_an_answer_is_named(warm: Warm, target: str) -> None:
    """trl alone would raise a RuntimeError that blames the chat template and names no row. The run names the row."""
    if not load(target).facts.assistant_only_loss:
        pytest.skip("the stack has no loss on the assistant's turns only")
    rows: list[Any] = conversations(12)
    rows[7], rows[9] = rows[7][:1], rows[9][:1]
    found = stopped(warm, "unanswered", rows, ANSWERS, target=target)
    assert "unanswered.parquet, row 7: the conversation has no turn of the assistant" in found
    assert "as in 1 other row(s) (the roles of its turns are user)" in found
    assert "Traceback" not in found


def test_a_row_with_an_empty_answer_is_named(warm: Warm) -> None:
    """If the template's generation marks leave out the end token, an empty answer has no token to learn, and the run
    names its row. If they enclose the end token, the row is trained on.
    """
    marks = "{% generation %}{{ m.content }}{% endgeneration %}<|im_end|>"
    put(warm.location, {
        "outside.jinja": "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}" + marks
        + "{% else %}{{ m.content }}<|im_end|>{% endif %}\n{% endfor %}",
    })  # fmt: skip
    rows: list[Any] = conversations(12)
    rows[8] = [rows[8][0], {**rows[8][1], "content": ""}]
    template = 'model(chat_template=file("outside.jinja"))'
    assert "empty.parquet, row 8: every answer is empty" in stopped(warm, "empty", rows, ANSWERS, template)
    text = spec(ANSWERS, data='"empty.parquet"', sizes="gbs=4 micro=2 seq=64")
    assert len(trained_on(warm, DEFAULT, "empty-learned", (text,))[0]["rows"]) == 12


@pytest.mark.parametrize("target", EACH_STACK)
def test_packed_rows_without_a_learned_token_stop_the_run(warm: Warm, target: str) -> None:
    """If no token of the packed rows is learned, the loss of every step would be 0. trl packs such rows without an
    error, so the run itself stops.
    """
    facts = load(target).facts
    if not (facts.assistant_only_loss and facts.isolate_mask):
        pytest.skip("the stack cannot pack such rows on a CPU")
    rows = [[{**row[0], "content": f"{'word ' * 60}{row[0]['content']}"}, row[1]] for row in conversations(12)]
    found = stopped(
        warm, "packed-away", rows, ANSWERS, target=target, sizes="gbs=4 micro=2 seq=32",
        batch=" packing(isolate=mask)",
    )  # fmt: skip
    assert "nothing is left to train on: none of 12 rows has anything to learn within seq = 32" in found
