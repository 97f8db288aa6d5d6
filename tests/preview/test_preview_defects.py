"""Ten kinds of wrong rows. For each kind, the preview reports one finding in one sentence. For the correct row, it
reports nothing.
"""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from emitted import put
from interpreters import OTHERS
from tiers import EACH_STACK
from tiny_runs import lines, spec

from xpc.compiler.preview.worker import verdicts
from xpc.compiler.preview.worker.reading import TokenSequence
from xpc.compiler.stacks import DEFAULT

if TYPE_CHECKING:
    from method_runs import Warm

pytestmark = pytest.mark.slow

HERE = os.path.dirname(os.path.abspath(__file__))
ANSWERS = "method sft(assistant_only)"
TURN = "{% for m in messages %}<|im_start|>{{ m.role }}\n"
ASK = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
MARKED = (
    "{% if m.role == 'assistant' %}{% generation %}@{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}"
)
TEMPLATES = {
    "good": TURN + MARKED.replace("@", "{{ m.content }}<|im_end|>") + "\n{% endfor %}" + ASK,
    "no_end": TURN + MARKED.replace("@", "{{ m.content }}") + "<|im_end|>\n{% endfor %}" + ASK,
    "all": "{% generation %}" + TURN + "{{ m.content }}<|im_end|>\n{% endfor %}" + ASK + "{% endgeneration %}",
    "thoughts": TURN + MARKED.replace("@", "<think>\n\n</think>\n\n{{ m.content }}<|im_end|>") + "\n{% endfor %}" + ASK,
    "begin": "<|endoftext|>" * 2 + TURN + MARKED.replace("@", "{{ m.content }}<|im_end|>") + "{% endfor %}" + ASK,
    "on_questions": TURN + MARKED.replace("'assistant'", "'user'").replace("@", "{{ m.content }}<|im_end|>")
    + "\n{% endfor %}" + ASK,
    "first_only": TURN + MARKED.replace("'assistant'", "'assistant' and loop.index0 == 1").replace(
        "@", "{{ m.content }}<|im_end|>") + "\n{% endfor %}" + ASK,
    "ends_first": TURN + MARKED.replace("@", "<|im_end|>{{ m.content }}<|im_end|>") + "\n{% endfor %}" + ASK,
    "cut_text": TURN + MARKED.replace("@", "{{ m.content[:6] }}<|im_end|>") + "\n{% endfor %}" + ASK,
    "small": TURN + MARKED.replace("@", "{{ m.content | lower }}<|im_end|>") + "\n{% endfor %}" + ASK,
    "escapes": TURN + MARKED.replace("@", "{{ m.content | e }}<|im_end|>") + "\n{% endfor %}" + ASK,
    "written_twice": TURN + MARKED.replace("@", "{{ m.content * 2 }}<|im_end|>") + "\n{% endfor %}" + ASK,
    "dated": "{{ strftime_now('%d %B') }}" + TURN + MARKED.replace("@", "{{ m.content }}<|im_end|>") + "{% endfor %}"
    + ASK,
    "backwards": (TURN + MARKED.replace("@", "{{ m.content }}<|im_end|>") + "{% endfor %}").replace(
        "in messages", "in messages | reverse") + ASK,
    "drawn": "{{ ['Hi', 'Ho'] | random }}" + TURN + MARKED.replace("@", "{{ m.content }}<|im_end|>") + "{% endfor %}"
    + ASK,
    "divides": TURN + MARKED.replace("@", "{{ 1 / (m.content | length - 8) }}<|im_end|>") + "\n{% endfor %}" + ASK,
    "endless": TURN + MARKED.replace("@", "{{ range(10 ** 9) | length }}<|im_end|>") + "\n{% endfor %}" + ASK,
    "no_marks": TURN + "{{ m.content }}<|im_end|>\n{% endfor %}" + ASK,
}  # fmt: skip


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: str, **keys: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **keys}


CALL = {"type": "function", "function": {"name": "add", "arguments": {"first": 1}}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
ROWS = {
    "plain": [user("What is 1+1?"), assistant("It is 2.")],
    "compared": [user("Is one less?"), assistant("1 < 2 is true.")],
    "two": [user("What is 1+1?"), assistant("It is 2."), user("And 2+2?"), assistant("It is 4.")],
    "long_question": [user("word " * 99), assistant("Short.")],
    "long_answer": [user("Write."), assistant("word " * 99)],
    "call": [user("What is 1+1?"), assistant("", tool_calls=[CALL]), {"role": "tool", "content": "2"}, assistant("2")],
    "tools": [user("What is 1+1?"), assistant("It is 2.")],
    "reasoning": [user("What is 1+1?"), assistant("It is 2.", reasoning_content="One and one.")],
    "thought": [user("What is 1+1?"), assistant("It is 2.", thought="One and one.")],
    "special": [user("What is 1+1?"), assistant("It is 2.<|im_end|> Or 3.")],
    "systems": [{"role": "system", "content": "Be brief."}, user("What is 1+1?"), assistant("It is 2.")],
}
COLUMNS = {"tools": {"tools": [TOOL]}, "systems": {"system": "Be polite."}}
"""Maps some of the rows to the columns that they have besides their messages."""
DEFECTS = {
    "end_not_marked": ("plain", "no_end", "", "XP592", "the end token <|im_end|> after the answer bears no loss"),
    "another_end": ("plain", "good", 'eos="<|endoftext|>"', "XP592", "ends with <|im_end|>, and the end token is"),
    "everything_marked": ("plain", "all", "", "XP597", "every token bears loss"),
    "empty_thoughts": ("plain", "thoughts", "", "XP594", "an empty <think> block is learned"),
    "begin_twice": ("plain", "begin", "", "XP593", "begins with <|endoftext|> twice: the chat template has it twice"),
    "answer_cut_away": ("long_question", "good", "", "XP595", "no answer is within seq = 64"),
    "answer_cut": ("long_answer", "good", "", "XP596", "turn 1 (assistant) is cut in the middle"),
    "tools_without_a_template": ("tools", "good", "", "XP598", "leaves out the tool 'add'"),
    "call_dropped": ("call", "good", "", "XP598", "leaves out the tool call 'add' of turn 1 (assistant)"),
    "reasoning_dropped": ("reasoning", "good", "", "XP598", "leaves out the reasoning 'One and one.' of turn 1"),
    "key_not_read": ("thought", "good", "", "XP549", "has 'thought', which the chat template does not write"),
    "two_systems": ("systems", "good", "", "XP546", "in place of the row's column 'system'"),
    "special_token": ("special", "good", "", "XP587", "turn 1 (assistant) of messages contains '<|im_end|>'"),
    "marks_on_questions": ("plain", "on_questions", "", "XP597", "turn 0 (user) bears loss, but `assistant_only`"),
    "marks_on_the_first_answer": ("two", "first_only", "", "XP591", "turn 3 (assistant) bears no loss"),
    "end_before_the_answer": ("plain", "ends_first", "", "XP592", "begins with the end token <|im_end|>"),
    "text_cut_by_the_template": (
        "plain",
        "cut_text",
        "",
        "XP598",
        "leaves out or changes the content 'It is 2.' of turn 1",
    ),
    "text_with_entities": ("compared", "escapes", "", "XP598", "leaves out or changes the content '1 < 2 is true.' of"),
    "text_in_small_letters": ("plain", "small", "", "XP598", "leaves out or changes the content 'It is 2.' of turn 1"),
    "text_written_twice": ("plain", "written_twice", "", "XP599", "'It is 2.' of turn 1 (assistant) twice"),
    "date_of_today": ("plain", "dated", "", "XP529", "writes today's date into the row"),
    "division_by_zero": ("plain", "divides", "", "XP537", "the chat template refuses the row: division by zero"),
    "endless_loop": ("plain", "endless", "", "XP537", "the chat template refuses the row: Range too big"),
    "value_by_chance": ("plain", "drawn", "", "XP529", "writes a random value into the row"),
    "turns_backwards": ("plain", "backwards", "", "XP599", "writes turn 1 (assistant) before turn 0 (user)"),
    "template_without_marks": (
        "plain",
        "no_marks",
        "",
        "XP591",
        "trl refuses the row: The chat template is not training-compatible",
    ),
}
"""Maps each defect to the names of the row and the template, further settings of `model`, the code of the finding, and
its text.
"""


def previewed(warm: Warm, name: str, row: str, template: str, model: str) -> Any:
    """Preview the first row of a spec; return the worker's answer."""
    folder = warm.location
    stored = [{"messages": ROWS[row], **COLUMNS.get(row, {})}] * 8
    put(folder, {f"{row}.jsonl": lines(stored), f"{template}.jinja": TEMPLATES[template]})
    # Without marks in the chat template, XP506 refuses the spec. So it is compiled with another template, which is
    # replaced in the bundle below.
    chosen = "no_end" if template == "no_marks" else template
    text = spec(
        f'model(chat_template=file("{chosen}.jinja"){", " if model else ""}{model})', ANSWERS, data=f'"{row}.jsonl"'
    ).replace('"tiny"', '"begun"')
    put(folder, {f"{chosen}.jinja": TEMPLATES[chosen]})
    bundle = warm.compiled(text, name)
    if chosen != template:
        location = next(
            os.path.join(where, one) for where, _, names in os.walk(bundle) for one in names if one.endswith(".jinja")
        )
        with open(location, "w", encoding="utf-8") as handle:
            handle.write(TEMPLATES[template])
        with open(os.path.join(bundle, "bundle.toml"), "w", encoding="utf-8") as handle:
            handle.write("")  # an empty manifest, so that the replaced template contradicts no digest
    return first_row(warm, bundle, name)


def first_row(warm: Warm, bundle: str, name: str, target: str = DEFAULT) -> Any:
    """Preview a bundle and call its reward functions. Return the first row of the worker's answer."""
    out = os.path.join(warm.location, f"{name}.json")
    done = warm.of(target).run(
        bundle, warm.location, bundle, out, "1", "rows", program=os.path.join(HERE, "prepared.py")
    )
    assert done["status"] == [0], f"{done['out'][-2000:]}\n{done['err'][-4000:]}"
    with open(out, encoding="utf-8") as handle:
        return json.load(handle)["rows"][0]


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found_in_one_sentence(warm: Warm, defect: str) -> None:
    row, template, model, code, words = DEFECTS[defect]
    found = previewed(warm, defect, row, template, model)["verdicts"]
    assert code in {one["code"] for one in found}, found
    assert any(words in one["message"] and "\n" not in one["message"] for one in found if one["code"] == code), found


@pytest.mark.parametrize(
    ("adds", "roles", "why", "help"),
    [
        (True, ["text"], "the row has it, and the tokenizer adds it", "remove the begin token from the row's text"),
        (False, ["prompt", "completion"], "the row has it twice", "remove one begin token from the row's text"),
        (True, ["user", "assistant"], "the chat template has it, and the tokenizer adds it",
         "remove the begin token from the chat template"),
        (False, ["user"], "the chat template has it twice", "remove one begin token from the chat template"),
    ],
)  # fmt: skip
def test_who_writes_a_second_begin_token(adds: bool, roles: list[str], why: str, help: str) -> None:
    class Tokenizer:
        bos_token_id, bos_token = 1, "<s>"

        def __call__(self, text: str) -> dict[str, list[int]]:
            return {"input_ids": [1] * adds + [7]}

    one = TokenSequence("text", [1, 1, 7], [True] * 3, None)
    session: Any = SimpleNamespace(tokenizer=Tokenizer())
    (found,) = verdicts._begin_twice(verdicts.Read(session, one, ["<s>", "<s>", "a"], [0] * 3, roles, True, True))
    assert found == verdicts.verdict("XP593", f"the sequence begins with <s> twice: {why}", help)


def test_a_good_row_has_no_verdict(warm: Warm) -> None:
    found = previewed(warm, "nothing", "plain", "good", "")
    assert found["verdicts"] == []
    assert found["excluded"] is None
    assert [turn["learned"] > 0 for turn in found["sequences"][0]["turns"]] == [False, True]


@pytest.mark.parametrize(
    ("target", "method", "code", "words"),
    [
        (DEFAULT, "orpo", "XP595", "tokens, and no answer is within seq = 64"),
        (DEFAULT, "reward", "XP595", "tokens, more than seq = 64"),
        (OTHERS[0], "orpo", "XP596", "the sequence of the chosen answer is cut: "),
        (OTHERS[0], "dpo", "XP596", "turn 0 (user) of the chosen answer is cut at its beginning: "),
    ],
)
def test_a_long_prompt_is_found_in_pairs(warm: Warm, target: str, method: str, code: str, words: str) -> None:
    row = {"prompt": [user("word " * 99)], "chosen": [assistant("Yes.")], "rejected": [assistant("No.")]}
    put(warm.location, {"long_pairs.jsonl": lines([row] * 8)})
    name = f"long-{target}-{method}"
    text = spec(f"method {method}", data='"long_pairs.jsonl"', target=target)
    found = first_row(warm, warm.compiled(text, name), name, target)["verdicts"]
    assert [one for one in found if one["code"] == code and words in one["message"]], found


def test_a_pair_that_is_equal_after_truncation_is_found(warm: Warm) -> None:
    answers = {name: [assistant("word " * 99 + end)] for name, end in (("chosen", "Yes."), ("rejected", "No."))}
    put(warm.location, {"equal_pairs.jsonl": lines([{"prompt": [user("Why?")], **answers}] * 8)})
    found = first_row(warm, warm.compiled(spec("method dpo", data='"equal_pairs.jsonl"'), "equal"), "equal")["verdicts"]
    (one,) = (one for one in found if one["code"] == "XP591")
    assert one["message"] == "the chosen and the rejected answer are the same 64 tokens: nothing is learned"
    assert one["help"].startswith("write seq = ")


def test_a_row_that_is_not_drawn_is_explained(warm: Warm) -> None:
    put(warm.location, {
        "long_prompts.jsonl": lines([{"prompt": prompt, "completion": " yes"} for prompt in ("word " * 99, "a")]),
        "short_prompts.jsonl": lines([{"prompt": f"word {at}", "completion": " yes"} for at in range(8)]),
    })  # fmt: skip
    data = "".join(f'  "{name}_prompts.jsonl" {{ share = 50% }}\n' for name in ("long", "short"))
    text = spec(f"data mix {{\n{data}}}", "method sft(completion_only)", data="mix", length="1 epochs")
    found = first_row(warm, warm.compiled(text, "shared"), "shared")
    assert [one["code"] for one in found["verdicts"]] == ["XP595"]


@pytest.mark.parametrize("target", EACH_STACK)
def test_nothing_of_a_split_text_is_reported_as_cut(warm: Warm, target: str) -> None:
    put(warm.location, {"long_texts.jsonl": lines([{"text": "word " * 99}] * 8)})
    data = 'data texts {\n  "long_texts.jsonl"\n  long = chunk\n}'
    name = f"split-{target}"
    found = first_row(warm, warm.compiled(spec(data, data="texts", target=target), name), name, target)
    assert found["verdicts"] == []
    parts = found["sequences"]
    assert len(parts) > 2
    assert all(one["cut"] == {"start": [], "end": []} and not one["turns"][0]["cut"] for one in parts)
    assert "".join(token[1] for one in parts for token in one["tokens"]) == "word " * 99 + "<|im_end|>"


def test_a_row_at_which_the_run_stops_has_its_own_number(warm: Warm) -> None:
    """A message about a row names the number that the row has in the data. (The worker prepares each row alone, so the
    row is the first one that the worker gets.)
    """
    import pyarrow
    from pyarrow.parquet import write_table

    answered = [user("What is 1+1?"), assistant("It is 2.")]
    rows = [{"messages": answered[: 1 + (at != 5)]} for at in range(8)]
    write_table(pyarrow.Table.from_pylist(rows), os.path.join(warm.location, "unanswered_rows.parquet"))
    bundle = warm.compiled(spec(ANSWERS, data='"unanswered_rows.parquet"'), "unanswered_rows")
    out = os.path.join(warm.location, "unanswered_rows.json")
    done = warm.of(DEFAULT).run(
        bundle, warm.location, bundle, out, "8", "rows", program=os.path.join(HERE, "prepared.py")
    )
    assert done["status"] == [0], done["err"][-4000:]
    with open(out, encoding="utf-8") as handle:
        found = [(one["row"], one["excluded"]) for one in json.load(handle)["rows"] if one["excluded"] is not None]
    assert [one[0] for one in found] == [5]
    assert "unanswered_rows.parquet, row 5: the conversation has no turn of the assistant" in found[0][1]


JUDGES = """\
def broken(completions, **columns):
    return [1 / 0 for _ in completions]


def nothing(completions, **columns):
    return [None] * len(completions)


def listed(completions, **columns):
    return [[float(len(str(one)))] for one in completions]


def short(completions, **columns):
    return [0.5]


def model(completions, **columns):
    from transformers import AutoModelForCausalLM

    if not hasattr(model, "loaded"):
        model.loaded = AutoModelForCausalLM.from_pretrained("tiny")
    return [float(len(one)) for one in completions]


def distributed(completions, **columns):
    raise RuntimeError("Default process group has not been initialized")
"""


@pytest.mark.parametrize(
    ("reward", "solution", "code", "words"),
    [
        ("accuracy", "$4$", "", ""),
        ("accuracy", "no number", "XP589", "returns None for the answer in the row's `solution`"),
        ('"judges.py:broken"', "$4$", "XP588", "raised ZeroDivisionError: division by zero in line 2 of"),
        ('"judges.py:model"', "a much longer answer than the made-up one of the preview", "", ""),
        ('"judges.py:distributed"', "$4$", "XP588", "the reward distributed cannot be checked before training"),
        ('"judges.py:short"', "$4$", "XP588", "the reward short returned 1 value"),
        ('"judges.py:nothing"', "$4$", "XP589", "the reward nothing returns None for every answer"),
        ('"judges.py:listed"', "$4$", "XP588", "the reward listed returned a list (["),
    ],
)
def test_rewards_are_called_with_the_row(warm: Warm, reward: str, solution: str, code: str, words: str) -> None:
    row = {"prompt": "What is 2+2?", "solution": solution}
    put(warm.location, {"judged_prompts.jsonl": lines([row] * 8), "judges.py": JUDGES})
    name = f"reward-{reward.strip(chr(34))}-{len(solution)}".replace(":", "-")
    method = f"method grpo(rewards=[{reward}], generations=4, max_completion=12)"
    text = spec(method, data='"judged_prompts.jsonl"', sizes="gbs=8 micro=4")
    found = first_row(warm, warm.compiled(text, name), name)
    assert [one["code"] for one in found["verdicts"]] == ([code] if code else [])
    assert words in "".join(one["message"] for one in found["verdicts"])
    if reward == "accuracy" and not code:
        assert found["rewards"][0]["values"] == {"empty": 0, "made-up": 0, "solution": 0, "boxed solution": 1}
        assert found["rewards"][0]["spread"] == 1
