"""`xpc check` reads local files and templates exactly as the runtime and the installed libraries do."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import subprocess
from hashlib import sha256
from pathlib import Path

import interpreters
import pytest
from case_support import spec
from compile_support import NOWHERE, checked, errors, put
from tiers import FIRST_AND_LAST

from xpc.compiler import stacks
from xpc.compiler.data import reader as stored
from xpc.compiler.data import row_shapes as shaped
from xpc.compiler.data import rows, structure
from xpc.compiler.registry import chat_templates
from xpc.compiler.registry.family_modules import family_modules
from xpc.compiler.review.differences.template_environment import Generation
from xpc.compiler.rules.core import modules
from xpc.compiler.rules.core import replaced_templates as templates
from xpc.compiler.spec.resources import DataSource
from xpc.compiler.spec.survey import Survey, Tally
from xpc.grammar.diagnostic import Label
from xpc.grammar.source import Source, Span
from xpc.runtime.core.errors import RunError
from xpc.runtime.features.rows import message_fields, prompts

HERE = Label(Source("t.xp", ""), Span(0, 0))


def source(content: str | bytes, shape: str = "messages", path: str = "rows.jsonl", **more: object) -> DataSource:
    data = content if isinstance(content, bytes) else content.encode()
    return DataSource(None, path, HERE, shape=shape, content=data, **more)


def wrong(row: object, shape: str, **more: object) -> str | None:
    """Return the reason why the runtime refuses the row in the format `shape`, or None if the runtime accepts the
    row.
    """
    named = source("", shape, **more)
    return shaped.checker(shape, rows._with_prompt(named), named.context or "")(row)


def read(content: str | bytes, path: str = "rows.jsonl") -> tuple[list[stored.Row], stored.Broken | None]:
    found = list(stored.read(content if isinstance(content, bytes) else content.encode(), path))
    broken = found.pop() if found and isinstance(found[-1], stored.Broken) else None
    return found, broken


READABLE = [
    ("rows.jsonl", '{"a": 1}\n\n{"a": 2}\n', [{"a": 1}, {"a": 2}]),
    ("rows.jsonl", '\ufeff{"a": 1}\r\n{"a": 2}', [{"a": 1}, {"a": 2}]),
    ("rows.jsonl", '{"a":\n 1}\n{"a": 2} {"a": 3}\n', [{"a": 1}, {"a": 2}, {"a": 3}]),
    ("rows.jsonl", '{"a": "x\u2028y"}\n', [{"a": "x\u2028y"}]),
    ("rows.jsonl", '{"a": "\\ud83d\\ude00"}\n', [{"a": "\U0001f600"}]),
    ("rows.json", '[{"a": 1}, {"a": 2}]', [{"a": 1}, {"a": 2}]),
    ("rows.json", ' [\n{"a": 1}\n,{"a": 2}\n]\n', [{"a": 1}, {"a": 2}]),
    ("rows.csv", "\ufeffa,b\n1,\nx\n", [{"a": "1", "b": None}, {"a": "x", "b": None}]),
    ("rows.csv", 'a,b\n"1\n2",NA\n', [{"a": "1\n2", "b": None}]),
    ("rows.txt", "one\n\ntwo", [{"text": "one"}, {"text": ""}, {"text": "two"}]),
]


@pytest.mark.parametrize(("path", "content", "rows"), READABLE)
def test_files_are_read_as_the_library_reads_them(path, content, rows):
    assert read(content, path) == (rows, None)


UNREADABLE = [
    ("rows.jsonl", b'{"a": 1}\n{"a": "x\n{"a": 2}\n', 1, 2),
    ("rows.jsonl", b'{"a": 1}\n\n7\n', 1, 3),
    ("rows.jsonl", b'{"a": 1}\n[2]\n', 1, 2),
    ("rows.jsonl", b'{"a": 1}\n{"a": "\\ud800"}\n', 1, 2),
    ("rows.jsonl", b'{"a": 1}\n{"a": "caf\xe9"}\n{"a": 2}\n', 1, 2),
    ("rows.jsonl", '{"a": "x"}\n'.encode("utf-16"), 0, 1),
    ("rows.jsonl", b"[" * 100_000, 0, 1),
    ("rows.jsonl", b'{"a": 1}\n{"a": 1, "a": 2}\n', 1, 2),
    ("rows.jsonl", b'{"a": [{"b": 1}]}\n{"a": [{"b": 1, "b": 2}]}\n', 1, 2),
    ("rows.json", b'[{"a": 1}, 2]', 1, 1),
    ("rows.json", b'[{"a": 1}\n{"a": 2}]', 1, 2),
    ("rows.json", b'[{"a": 1},\n', 1, 2),
    ("rows.json", b'\n[{"a": 1},\n', 1, 3),
    ("rows.json", b'[{"a": 1}, {"a": "\xe9"}]', 0, 1),
    ("rows.csv", b"a,b\n1,2\n1,2,3\n", 1, 3),
    ("rows.csv", b'a,b\n1,2\n"1,2\n', 1, 3),
    ("rows.csv", b"a,b\n1,2\n\xe9,2\n", 1, 3),
    ("rows.txt", b"a\n\xe9\n", 1, 2),
]


@pytest.mark.parametrize(("path", "content", "row", "line"), UNREADABLE)
def test_what_is_no_row_ends_the_reading(path, content, row, line):
    found, broken = read(content, path)
    assert broken is not None
    assert (broken.row, broken.line) == (row, line)
    assert len(found) == row


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "content", "rows"),
    [*READABLE, *((path, content, None) for path, content, *_ in UNREADABLE)],
)
def test_the_library_reads_the_same(path, content, rows, tmp_path):
    datasets = pytest.importorskip("datasets")
    location = tmp_path / path
    location.write_bytes(content if isinstance(content, bytes) else content.encode())
    kind = {"jsonl": "json", "txt": "text"}.get(path.rpartition(".")[2], path.rpartition(".")[2])
    try:
        found = datasets.load_dataset(
            kind, data_files=[str(location)], split="train", cache_dir=str(tmp_path / "cache")
        )
    except Exception:  # datasets raises exceptions of several classes
        assert rows is None
    else:
        assert rows is not None
        assert list(found) == rows


def test_path_that_is_not_a_file_of_rows_is_reported(tmp_path):
    """A path to something that is not a data file is refused with the reason: a link to a missing file, a pipe, or an
    incomplete Parquet file.
    """
    (tmp_path / "gone.jsonl").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "head.parquet").write_bytes(b"PAR1 and no foot")
    (tmp_path / "foot.parquet").write_bytes(b"PAR1" + bytes(99) + b"\x63\0\0\0PAR1")
    (tmp_path / "long.parquet").write_bytes(b"PAR1" + bytes(99) + b"\x7f\0\0\0PAR1")
    (tmp_path / "empty.parquet").write_bytes(b"")
    for name, why in (
        ("gone.jsonl", "is a link to a missing file"),
        ("pipe.jsonl", "is not a regular file"),
        ("head.parquet", "is not a complete Parquet file"),
        ("empty.parquet", "is not a complete Parquet file"),
        ("foot.parquet", "is not a complete Parquet file: its footer cannot be read"),
        ("long.parquet", "is not a complete Parquet file: its footer would have 127 bytes, more than the file"),
    ):
        found = checked(f'train qwen2.5-0.5b on "{name}"\n', str(tmp_path))
        assert [why in one.message for one in found.problems if one.severity == "error"] == [True], name


def of(content: str | bytes, shape: str = "messages", path: str = "rows.jsonl", **more: object) -> Survey:
    found = rows.survey(source(content, shape, path, **more))
    assert found is not None
    return found


def talk(*turns: tuple[str, object]) -> str:
    return json.dumps({"messages": [{"role": role, "content": content} for role, content in turns]}) + "\n"


def test_a_row_is_found_wherever_it_stands():
    good = talk(("user", "2?"), ("assistant", "4"))
    found = of(good * 9000 + talk(("human", "2?"), ("assistant", "4")) + good + '{"messages": []}\n')
    assert (found.rows, found.roles["human"], found.wrong) == (
        9003,
        Tally(1, 9000),
        (9002, "`messages` is empty"),
    )


def test_rows_are_tallied_by_kind():
    found = of(
        talk(("user", "2?"), ("assistant", "4"))
        + talk(("user", None), ("assistant", "4"))
        + talk(("user", "3?"), ("assistant", [{"type": "text", "text": " "}]))
        + talk(("user", "5?"))
        + talk(("user", "2?"), ("assistant", "4"))
        + talk(("user", [{"type": "image"}, {"type": "text", "text": "?"}]), ("assistant", "a cat"))
    )
    assert {kind: (one.count, one.first) for kind, one in found.tallies.items()} == {
        "empty_prompt": (1, 1), "empty_answer": (1, 2), "unanswered": (1, 3), "repeated": (1, 4), "images": (1, 5),
        "last_question": (1, 3),
    }  # fmt: skip


@pytest.mark.parametrize("turn", [{"from": ["x"], "value": 1}, {"role": {}, "content": {}}, 7, {"role": "user"}, []])
@pytest.mark.parametrize("shape", ["messages", "conversations", "preference", "unpaired", "prompt", "text"])
def test_no_row_breaks_the_reading(shape, turn):
    names = rows.columns(source("", shape))
    for value in (turn, [turn], [[turn]]):
        found = of(json.dumps(dict.fromkeys(names, value)) + "\n", shape)
        assert found.rows == 1
        assert found.wrong is not None or turn == []


def test_rows_of_other_shapes_are_tallied():
    pair = '{"chosen": "x", "rejected": "x"}\n{"chosen": "", "rejected": "y"}\n'
    assert set(of(pair, "preference").tallies) == {"same", "empty_answer"}
    named = of('{"q": " ", "good": "x", "bad": "y"}\n', "preference", columns=("q", "good", "bad"))
    assert set(named.tallies) == {"empty_prompt"}
    judged = '{"prompt": "?", "completion": "!", "label": true}\n{"prompt": "2?", "completion": " ", "label": 0}\n'
    assert of(judged, "unpaired").labels == (1, 1)
    assert set(of(judged, "unpaired").tallies) == {"empty_answer"}
    assert of("prompt,completion,label\n?,!,True\n?,.,false\n", "unpaired", "rows.csv").labels == (1, 1)
    assert set(of('{"prompt": ""}\n', "prompt").tallies) == {"empty_prompt", "no_solution"}
    assert set(of("a\n\na\n", "text", "rows.txt").tallies) == {"empty_answer", "repeated"}
    assert of('{"prompt": "a b c", "completion": "d"}\n' * 2, "prompt_completion").words == {3: 2}


@pytest.mark.parametrize("head", ["a, b", " a,b", '"a","b"', '"a, x",b', "a,b\r", "\ufeffa,b"])
def test_the_columns_of_a_csv_file_are_those_of_its_rows(head):
    text = f"{head}\n1,2\n"
    assert rows.first_columns("rows.csv", text.encode()) == list(next(stored.read(text.encode(), "rows.csv")))


def test_a_column_of_numbers_in_a_csv_file_is_text():
    """A cell of a CSV file is a text even if it looks like a number. The run also reads cells as texts
    (`test_stored_rows.py`).
    """
    assert of("prompt,completion\n?,4\n!,5\n", "prompt_completion", "rows.csv").wrong is None
    assert "no_solution" not in of("prompt,solution\n?,42\n", "prompt", "rows.csv").tallies
    assert of("prompt,completion\n?,\n", "prompt_completion", "rows.csv").wrong == (0, "`completion` is empty")


@pytest.mark.parametrize("head", ["prompt,completion,prompt", "prompt,completion,id,id"])
def test_a_csv_header_with_a_name_twice_is_refused(head):
    """pandas would rename the second column, and the run would silently read the first one."""
    cells = ",".join("abcd"[: head.count(",") + 1])
    broken = of(f"{head}\n{cells}\n", "prompt_completion", "rows.csv").broken
    assert broken is not None
    assert broken.why == f"the header has a column `{head.rpartition(',')[2]}` twice"
    assert of("prompt,completion,,\na,b,c,d\n", "prompt_completion", "rows.csv").broken is None


@pytest.mark.slow
def test_rows_are_counted():
    assert rows.count(source("{}\n\n{}\n{}")) == 3
    assert rows.count(source("[{}, {}]", path="rows.json")) == 2
    assert rows.count(source("[" + '{"text": "x"},' * 100_000 + "{}]", path="rows.json")) == 100_001
    assert rows.count(source('prompt,completion\na,"b\nc"\nd,e\n', "prompt_completion", path="rows.csv")) == 2
    assert rows.count(source('{}\n{"a', path="rows.jsonl")) is None
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
    ("shape", "row", "output"),
    [
        ("messages", {"messages": [{"role": "user", "content": None}]}, None),
        ("messages", {"messages": []}, "empty"),
        ("messages", {"mesages": [], "id": 1}, "the row has no `messages`; its keys are `mesages`, `id`"),
        ("messages", {"messages": "?"}, "not a list"),
        ("messages", {"messages": ["?"]}, "not a message"),
        ("messages", {"messages": [{"role": "user", "text": "?"}]}, "and a content, and this one has `role`, `text`"),
        ("messages", {"messages": [{"role": "user", "content": 5}]}, "not a text: 5"),
        ("conversations", {"conversations": [{"from": "human", "value": True}]}, "not a text: true"),
        ("conversations", {"conversations": [{"from": "human", "value": "?"}]}, None),
        ("conversations", {"conversations": [{"from": "alien", "value": "?"}]}, "`alien` is no known speaker"),
        ("conversations", {"conversations": [{"value": "?"}]}, "its speaker"),
        ("text", {"text": "?"}, None),
        ("text", {"text": None}, "`text` is empty"),
        ("prompt_completion", {"prompt": "?", "completion": "!"}, None),
        ("prompt_completion", {"prompt": "?", "completion": None}, "`completion` is empty"),
        ("prompt_completion", {"prompt": "?", "completion": 4}, "`completion` is not text"),
        (
            "prompt_completion",
            {"prompt": [{"role": "user", "content": "?"}], "completion": []},
            "`completion` is empty",
        ),
        ("unpaired", {"prompt": "?", "completion": "!", "label": True}, None),
        (
            "unpaired",
            {"prompt": "?", "completion": "!", "label": "up"},
            '`label` is "up", and a label is true or false',
        ),
        ("unpaired", {"prompt": "?", "completion": "!", "label": 2}, "true or false"),
        ("unpaired", {"prompt": None, "completion": "!", "label": True}, "`prompt` is empty"),
        ("preference", {"chosen": "!", "rejected": "?"}, None),
        ("preference", {"chosen": {"role": "assistant", "content": "!"}, "rejected": "?"}, "the same turn"),
        ("preference", {"chosen": [{"from": "gpt", "value": "!"}], "rejected": []}, "`rejected` is empty"),
        ("prompt", {"prompt": "?"}, None),
        ("prompt", {"prompt": [{"role": "user"}]}, "a role and a content"),
    ],
)
def test_what_keeps_a_row_from_its_shape(shape, row, output):
    found = wrong(row, shape)
    assert (found is None) if output is None else (found is not None and output in found)


def test_a_preference_pair_is_refused_if_the_runtime_refuses_it():
    ask, answer = {"role": "user", "content": "1?"}, {"role": "assistant", "content": "!"}
    other, system = {**ask, "content": "2?"}, {"role": "system", "content": "."}
    questions = ("1?", "", None, ask, [ask], [other], [system, ask])
    answers = ("!", answer, ask, [answer], [ask], [ask, answer], [other, answer], [system, ask, answer])
    for prompt, chosen, rejected in itertools.product(questions, answers, answers):
        row = {"prompt": prompt, "chosen": chosen, "rejected": rejected}
        try:
            prompts.to_row({"shape": "preference", "columns": None, "path": "rows.jsonl", "id": None}, row, 0)
            trained = True
        except RunError:
            trained = False
        assert (wrong(row, "preference", found=tuple(row)) is None) == trained, row


def installed(name: str) -> str:
    """Return the folder of an installed package without importing the package."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"{name} is not installed")
    return found.submodule_search_locations[0]


def test_templates_are_those_that_trl_knows():
    location = installed("trl")
    with open(os.path.join(location, "chat_template_utils.py"), encoding="utf-8") as handle:
        text = handle.read()
    body = text[text.index("def get_training_chat_template") :]
    names = re.findall(r"if chat_template == (\w+)_chat_template:", body)
    files = dict(re.findall(r'^(\w+)_chat_template = \(\s*_CHAT_TEMPLATES_DIR / "([\w.]+)"', text, re.M))
    digests = set()
    for name in names:
        with open(os.path.join(location, "chat_templates", files[name]), encoding="utf-8") as handle:
            template = handle.read()
        digests.add(sha256(template.encode()).hexdigest()[:16])
        assert templates.trainable(template, replaces=True)
        assert templates.trainable(template.replace("\n", "\r\n"), replaces=True)
        assert not templates.trainable(template, replaces=False)
    assert digests == templates.replaced()
    for name in ("llama3_1.jinja", "llama3_2.jinja"):
        with open(os.path.join(location, "chat_templates", name), encoding="utf-8") as handle:
            assert not templates.trainable(handle.read(), replaces=True)


@pytest.mark.parametrize("target", interpreters.installed())
def test_only_a_stack_with_training_templates_adds_marks(target):
    code = "import importlib.util as u; print(u.find_spec('trl').origin)"
    done = subprocess.run([interpreters.interpreter(target), "-c", code], capture_output=True, text=True, check=True)
    location = os.path.join(os.path.dirname(done.stdout.strip()), "trainer", "sft_trainer.py")
    with open(location, encoding="utf-8") as handle:
        assert ("get_training_chat_template(" in handle.read()) is stacks.load(target).facts.marks_templates


@pytest.mark.parametrize(
    ("model", "replaces", "found"),
    [("qwen2.5-0.5b-instruct", True, True), ("qwen2.5-0.5b-instruct", False, False),
     ("llama-3-8b-instruct", False, False), ("llama-3.1-8b-instruct", True, False),
     ("smollm2-135m-instruct", True, False), ("smollm3-3b", False, True), ("phi-4", False, True)],
)  # fmt: skip
def test_marks_in_the_template_of_a_registered_model(model, replaces, found):
    assert templates.trainable_model(model, replaces) is found


PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import tiny_models, torch
from transformers import AutoModelForCausalLM
found = {}
for family in sys.argv[2:]:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(tiny_models.config(family))
    names = {
        name.rpartition(".")[2] for name, part in model.named_modules()
        if isinstance(part, torch.nn.Linear | torch.nn.Embedding) or type(part).__name__ == "Conv1D"
    }
    layers = [name.split(".") for name, _ in model.named_parameters()]
    inside = {part for name in layers if any(map(str.isdigit, name)) for part in name}
    numbers = [(name, list(map(str.isdigit, name))) for name in layers]
    holders = {tuple(name[: digits.index(True)]) for name, digits in numbers if any(digits)}
    layers = [name.split(".")[:-1] for name, _ in model.named_parameters(remove_duplicate=False)]
    outside = {part for name in layers if not any(map(str.isdigit, name)) for part in name}
    found[family] = sorted(names), sorted(inside), sorted(holders), sorted(outside)
print(json.dumps(found))
"""


def modules_of(stack, folder, families):
    """The output of `PROGRAM` for model families, in the warm interpreter of a stack."""
    from forks import printed

    proofs = os.path.join(os.path.dirname(NOWHERE), "proof")
    return json.loads(printed(stack, folder, PROGRAM, proofs, *families).splitlines()[-1])


@pytest.mark.slow
def test_modules_are_those_of_the_models(tmp_path):
    installed("transformers")
    for family, (names, inside, holders, outside) in modules_of(stacks.DEFAULT, tmp_path, family_modules()).items():
        assert set(names) - {"lm_head"} == set(family_modules()[family].names), family
        assert modules.layer_modules(family) == modules.all_layer_modules() & set(inside), family
        assert [tuple(one) for one in holders] == [tuple(family_modules()[family].containers)], family
        outer = {*modules.outer_modules(family)} - {*family_modules()[family].projections}
        assert set(outside) - {"lm_head"} == outer, family


@pytest.mark.parametrize(
    ("model", "freeze"),
    [
        ("opt-125m", "except_modules=[decoder]"),
        ("pythia-70m", "except_modules=[gpt_neox]"),
        ("pythia-70m", "layer_modules=[attention]"),
        ("falcon-7b", "layer_modules=[self_attention]"),
    ],
)
def test_a_module_that_holds_others_is_known_by_the_name_of_its_family(model, freeze):
    found = checked(f"xpc 1\ntrain {model} on alpaca for 1 epochs\nhardware cpu\nfreeze({freeze}, except_last=2)\n")
    assert errors(found) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRST_AND_LAST)
def test_output_heads_are_those_of_the_stack(name, tmp_path):
    known = stacks.load(name).facts.output_heads
    for family, (_, _, _, outside) in modules_of(name, tmp_path, ("llama", "gpt_neox")).items():
        assert set(outside) - {*modules.outer_modules(family)} == {known.get(family, "lm_head")}, family


@pytest.mark.parametrize("mark", [0, False, "0", "false", "False", ""])
def test_a_turn_may_say_in_text_that_it_is_not_learned(mark: object) -> None:
    turn = {"role": "assistant", "content": "5", "weight": mark}
    assert structure.structure([("assistant", turn, "5")]) == {"untrained", "nothing_trained"}
    answered = ("assistant", {"role": "assistant", "content": "4"}, "4")
    assert structure.structure([("assistant", turn, "5"), answered]) == {"untrained"}
    assert message_fields.untrained(turn)


@pytest.mark.parametrize("mark", [1, True, "1", "true", None])
def test_a_turn_may_say_in_text_that_it_is_learned(mark: object) -> None:
    turn = {"role": "assistant", "content": "4", "weight": mark}
    assert structure.structure([("assistant", turn, "4")]) == set()
    assert not message_fields.untrained(turn)


def test_the_prompt_of_a_pair_may_be_null() -> None:
    rows_ = [{"prompt": None, "chosen": "q a", "rejected": "q b"}, {"prompt": "", "chosen": "a", "rejected": "b"}]
    pairs = source("\n".join(map(json.dumps, rows_)), "preference", found=("prompt", "chosen", "rejected"))
    found = rows.survey(pairs)
    assert found is not None
    assert found.wrong is None
    assert (found.tallies["empty_prompt"].count, found.tallies["empty_prompt"].first) == (1, 1)


def test_one_turn_as_an_answer_is_a_conversation() -> None:
    row = {"prompt": [{"role": "user", "content": "q"}]} | {
        name: {"role": "assistant", "content": name} for name in ("chosen", "rejected")
    }
    assert rows.conversational(source(json.dumps(row), "preference", found=tuple(row))) is True


@pytest.mark.parametrize("template", ["llama3", "llama3.1", "vicuna"])
def test_a_template_needs_no_begin_token(template: str) -> None:
    import jinja2

    text = chat_templates.text(template).decode()
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    made = jinja2.Environment(extensions=[Generation]).from_string(text)
    begun = made.render(messages=messages, bos_token="<s>", eos_token="</s>")
    assert begun == "<s>" + made.render(messages=messages, eos_token="</s>")


@pytest.mark.parametrize(("template", "end"), [
    ("llama3", "<|eot_id|>"), ('file("own.jinja")', "<turn|>"),
])  # fmt: skip
def test_the_end_of_a_role_or_a_video_is_not_the_end_of_a_turn(template: str, end: str, tmp_path: Path) -> None:
    files = {
        "tiny/config.json": json.dumps({"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
            "max_position_embeddings": 512, "tie_word_embeddings": True, "torch_dtype": "float32"}),
        "tiny/tokenizer_config.json": '{"eos_token": "<eos>"}',
        "own.jinja": "{% for one in messages %}<|turn>{{ one.role }}\n{{ one.content }}<turn|>\n{% endfor %}<|video|>",
    }  # fmt: skip
    found = checked(
        spec(f"chat_template = {template}", train='"tiny" on infinity-instruct for 3 epochs'), put(tmp_path, files)
    )
    (one,) = [one for one in found.problems if one.code == "XP513"]
    assert end in str(one.help)


@pytest.mark.parametrize(("row", "shape", "format"), [
    ({"conversations": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}, "conversations",
     "format=messages, columns=[conversations, tools]"),
    ({"messages": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}, "messages",
     "format=conversations, columns=[messages, tools]"),
])  # fmt: skip
def test_turns_of_another_format_are_named_with_their_columns(
    row: dict[str, object], shape: str, format: str, tmp_path: Path
) -> None:
    location = put(tmp_path, {"rows.jsonl": json.dumps({**row, "tools": []})})
    train = 'qwen2.5-3b-instruct on "rows.jsonl" for 1 epochs'
    (one,) = [one for one in checked(spec("", train=train), location).problems if one.code == "XP554"]
    assert f"data({format})" in str(one.help)
    assert errors(checked(spec(f"data({format})", train=train), location)) == []


def test_calls_are_a_list() -> None:
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": "[]"}]
    assert wrong({"messages": turns}, "messages") == "the `tool_calls` of a message are not a list"


@pytest.mark.parametrize(("chosen", "rejected", "right"), [
    ("a", "b", True),
    ([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
     [{"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}], True),
    ([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
     [{"role": "user", "content": "p"}, {"role": "assistant", "content": "b"}], False),
    ([{"role": "assistant", "content": "a"}], [{"role": "assistant", "content": "b"}], False),
])  # fmt: skip
def test_answers_without_a_prompt_begin_with_it(chosen: object, rejected: object, right: bool) -> None:
    assert (wrong({"chosen": chosen, "rejected": rejected}, "preference") is None) == right


def test_rows_with_other_tools_or_another_system_prompt_are_not_repeated() -> None:
    turns = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}
    some = [turns, {**turns, "system": "s"}, {**turns, "tools": [{"name": "f"}]}, {**turns, "system": "s"}]
    found = rows.survey(source("\n".join(map(json.dumps, some))))
    assert found is not None
    assert (found.tallies["repeated"].count, found.tallies["repeated"].first) == (1, 3)
