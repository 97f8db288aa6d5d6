"""The quickstart's committed data is exactly what its script writes. The script writes the model folder completely or
not at all.
"""

import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

QUICKSTART = Path(__file__).parents[2] / "specs" / "quickstart"


def script(name: str) -> ModuleType:
    """Load a script of the quickstart, which is in no package, as a module."""
    spec = importlib.util.spec_from_file_location(f"quickstart_{name}", QUICKSTART / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(name: str) -> list[list[dict[str, str]]]:
    with open(QUICKSTART / name, encoding="utf-8") as lines:
        return [json.loads(line)["messages"] for line in lines]


def test_the_committed_files_are_what_the_script_makes() -> None:
    make_data = script("make_data")
    training, heldout = make_data.make()
    assert (QUICKSTART / "data.jsonl").read_bytes() == make_data.lines(training).encode()
    assert (QUICKSTART / "heldout.jsonl").read_bytes() == make_data.lines(heldout).encode()


def test_every_row_is_a_question_and_an_answer() -> None:
    assert len(rows("data.jsonl")) == 800
    assert len(rows("heldout.jsonl")) == 40
    for row in rows("data.jsonl") + rows("heldout.jsonl"):
        assert [message["role"] for message in row] == ["user", "assistant"]
        assert all(message["content"].strip() for message in row)


def test_a_heldout_number_is_in_the_training_set_in_neither_direction() -> None:
    def contents(name: str) -> set[str]:
        return {message["content"] for row in rows(name) for message in row}

    assert not contents("data.jsonl") & contents("heldout.jsonl")
    assert len(contents("data.jsonl")) == 4 * 400


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "zero"), (13, "thirteen"), (20, "twenty"), (47, "forty-seven"), (100, "one hundred"),
     (305, "three hundred five"), (990, "nine hundred ninety"), (818, "eight hundred eighteen")],
)  # fmt: skip
def test_numbers_are_written_in_words(number: int, words: str) -> None:
    assert script("make_data").in_words(number) == words


def test_every_number_has_a_name_of_its_own_and_the_rows_pair_them() -> None:
    in_words = script("make_data").in_words
    named = {in_words(number): number for number in range(1000)}
    assert len(named) == 1000
    for question, answer in rows("data.jsonl") + rows("heldout.jsonl"):
        if question["content"].startswith("Write "):
            number = int(question["content"].removeprefix("Write ").removesuffix(" in words."))
            assert named[answer["content"]] == number
        else:
            words = question["content"].removeprefix("Which number is ").removesuffix("?")
            assert named[words] == int(answer["content"])


def builder(monkeypatch: pytest.MonkeyPatch, build: Callable[[str], int]) -> ModuleType:
    module = script("build_model")
    monkeypatch.setattr(module, "build", build)
    return module


def fake(folder: str) -> int:
    """Write a model folder in which every file is an empty JSON object."""
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        Path(folder, name).write_text("{}")
    return 1


def test_a_second_build_changes_nothing_until_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def counted(folder: str) -> int:
        built.append(folder)
        return fake(folder)

    module = builder(monkeypatch, counted)
    out = str(tmp_path / "deep" / "model")
    assert [module.main([out]), module.main([out]), module.main([out, "--force"])] == [0, 0, 0]
    assert len(built) == 2
    assert os.listdir(tmp_path / "deep") == ["model"]


def test_a_build_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(folder: str) -> int:
        fake(folder)
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        builder(monkeypatch, breaks).main([str(tmp_path / "model")])
    assert os.listdir(tmp_path) == []


def test_what_is_not_ours_is_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = builder(monkeypatch, fake)
    (tmp_path / "thesis.tex").write_text("years")
    assert module.main([str(tmp_path), "--force"]) == 2
    assert module.main([str(tmp_path / "thesis.tex"), "--force"]) == 2
    assert "thesis.tex" in capsys.readouterr().err
    assert (tmp_path / "thesis.tex").read_text() == "years"


def test_a_torn_model_is_named_and_replaced_when_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = builder(monkeypatch, fake)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    assert module.main([str(tmp_path / "model")]) == 2
    assert module.main([str(tmp_path / "model"), "--force"]) == 0
    assert module.state(str(tmp_path / "model")) == "model"


@pytest.mark.slow
def test_the_model_loads_and_its_template_marks_the_answer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    assert script("build_model").main([str(tmp_path / "a")]) == 0
    assert script("build_model").main([str(tmp_path / "b")]) == 0
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "a")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "a")
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.eos_token_id == tokenizer.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert tokenizer.pad_token == "<|pad|>"
    row = rows("heldout.jsonl")[0]
    text = tokenizer.apply_chat_template(row, tokenize=False)
    assert text == (
        "<|im_start|>user\nWrite 221 in words.<|im_end|>\n<|im_start|>assistant\ntwo hundred twenty-one<|im_end|>\n"
    )
    coded = tokenizer.apply_chat_template(row, return_dict=True, return_assistant_tokens_mask=True)
    answer = [i for i, kept in zip(coded["input_ids"], coded["assistant_masks"]) if kept]
    assert tokenizer.decode(answer) == "two hundred twenty-one<|im_end|>"
    assert tokenizer.convert_ids_to_tokens(tokenizer("221")["input_ids"]) == ["2", "2", "1"]
    assert max(len(tokenizer.apply_chat_template(row, tokenize=True, return_dict=True)["input_ids"]) for row in
               rows("data.jsonl") + rows("heldout.jsonl")) <= 64  # fmt: skip


def test_the_table_counts_all_and_prints_nothing_raw() -> None:
    show = script("show")
    heldout = rows("heldout.jsonl")
    right = [row[1]["content"] for row in heldout]
    shown = show.table(heldout, ["\x1b[2J\ufffdé " + "x" * 99] * 40, [*right[:-1], "wrong"])
    assert "?[2J??" in shown
    assert shown.isascii()
    assert "\x1b" not in shown
    assert shown.endswith("right answers to 40 questions that it never saw: 0 before, 39 after")


def test_run_without_output_is_distinguished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert script("show").main([str(tmp_path)]) == 2
    assert "config.json is missing" in capsys.readouterr().err
