"""Shell scripts test conditions before the training command. The import follows the branch that the shell would take.
If the import cannot know the branch, it reports the arguments that depend on the condition.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from import_support import HARDWARE, Imported, imported

from xpc.compiler.importing.text.shell import calls

TRAIN = """\
import argparse
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-5)
parser.add_argument("--seed", type=int, default=7)
parser.add_argument("--targets", nargs="+", default=["q_proj"])
args = parser.parse_args()
trainer = SFTTrainer(model="Qwen/Qwen2.5-3B", train_dataset=load_dataset("org/rows", split="train"),
                     args=SFTConfig(output_dir="out", learning_rate=args.lr, seed=args.seed))
trainer.train()
"""


def run(folder: Path, text: str, *arguments: str) -> Imported:
    (folder / "train.py").write_text(TRAIN)
    return imported(text, *arguments, name="run.sh", root=str(folder))


def last(text: str, **sets: str) -> list[tuple[str, str]]:
    """Import a shell script. Return pairs for its last command: each word, and the name of the unknown variable in the
    word.
    """
    return [(one.text, one.open) for one in calls(text, sets)[-1].words]


@pytest.mark.parametrize("guard", [
    "[ -f rows ] || { echo no; exit 1; }",
    '[ -n "${TOKEN:-}" ] || {\n  echo "no token"\n  exit 1\n}',
    'if [ -z "${TOKEN:-}" ]; then echo no; exit 2; fi',
    'if [ -n "${TOKEN:-}" ]; then X=1; else exit 1; fi',
    'case "${MODE:-none}" in sft) X=1;; *) echo usage; exit 1;; esac',
    "check && { echo yes; X=1; }",
])  # fmt: skip
def test_script_whose_guards_hold_trains(guard: str, tmp_path: Path) -> None:
    assert "lr = 1e-6" in run(tmp_path, f"{guard}\npython train.py --lr 1e-6\n").text


def test_what_follows_exit_without_an_error_does_not_run(tmp_path: Path) -> None:
    assert [one.words[0].text for one in calls("a\nexit 0\nb\n")] == ["a"]
    assert [one.words[0].text for one in calls("[ -z '' ] && { a; exit 0; }\nb\n")] == ["a"]


def test_branch_that_exits_with_an_error_sets_nothing() -> None:
    assert last('X=1\nif [ -z "" ]; then\n  X=2\n  exit 1\nelse\n  X=3\nfi\na $X') == [("a", ""), ("3", "")]
    assert last("X=1\n[ -n '' ] && { X=2; }\na $X") == [("a", ""), ("1", "")]
    assert last("X=1\n[ ! -n '' ] && { X=2; }\na $X") == [("a", ""), ("2", "")]
    assert last("X=1\n{\n  X=2\n}\na $X") == [("a", ""), ("2", "")]


def test_backslash_at_the_end_of_a_script_is_no_word() -> None:
    assert last("a b \\") == [("a", ""), ("b", "")]


@pytest.mark.parametrize("start", ["taskset -c 0-7 python", "ionice -c 3 python", "setsid python", "$PYTHON",
                                   '"$PY" -u'])  # fmt: skip
def test_programs_before_python_start_the_training(start: str, tmp_path: Path) -> None:
    assert "lr = 1e-6" in run(tmp_path, f"{start} train.py --lr 1e-6\n").text


def test_command_keeps_its_words_if_a_condition_puts_others_before_it(tmp_path: Path) -> None:
    wrapped = 'if command -v taskset; then CMD=(taskset -c 0 "${CMD[@]}"); fi\n"${CMD[@]}"\n'
    text = f"CMD=(python train.py --lr 1e-6)\n{wrapped}"
    assert "lr = 1e-6" in run(tmp_path, text).text


@pytest.mark.parametrize("text", [
    'CMD=(python train.py --lr 1e-6)\nif [ $Z = 1 ]; then CMD+=(--seed 3); fi\n"${CMD[@]}"\n',
    'ARGS="--lr 1e-6"\nif [ $Z = 1 ]; then ARGS="$ARGS --seed 3"; fi\npython train.py $ARGS\n',
    'MORE=()\ncheck && MORE+=(--seed 3)\npython train.py --lr 1e-6 "${MORE[@]}"\n',
])  # fmt: skip
def test_words_that_an_undecided_condition_adds_are_a_warning(text: str, tmp_path: Path) -> None:
    found = run(tmp_path, text)
    assert "lr = 1e-6" in found.text
    assert "seed 7" in found.text
    assert any("cannot evaluate the condition that adds words here" in one for one in found.messages)


@pytest.mark.parametrize("test", ['[ -n "$Z" ]', '[[ "$Z" != "" ]]', '[ -n "${Z}" ] && [ -d x ]'])
def test_variable_that_the_script_never_sets_is_empty(test: str) -> None:
    script = f'CMD="a --lr 1"\nif {test}; then\n  CMD="$CMD $Z"\nfi\nCMD="$CMD --seed 3"\n$CMD\n'
    assert last(script) == [("a", ""), ("--lr", ""), ("1", ""), ("--seed", ""), ("3", "")]
    if "-d" not in test:
        assert last(script, Z="--bf16")[3:] == [("--bf16", ""), ("--seed", ""), ("3", "")]


def test_arguments_that_branches_set_differently_are_an_error(tmp_path: Path) -> None:
    text = 'if [ -f x ]; then ARGS="--lr 1e-6"; else ARGS="--lr 1e-7"; fi\npython train.py $ARGS\n'
    found = run(tmp_path, text)
    assert found.draft.wrong
    assert any("branches of a condition, which the import cannot evaluate, set $ARGS differently" in one
               for one in found.messages)  # fmt: skip
    assert "lr = 1e-7" in run(tmp_path, text, "--set", "ARGS=--lr 1e-7").text


BY_CASE = """\
case "$1" in
  small) LR=1e-6; SEED=3;;
  big | large) LR=1e-7; SEED=4;;
  *) exit 1;;
esac
"""


@pytest.mark.parametrize("text", [
    BY_CASE,
    "SIZE=${1:?size}\n" + BY_CASE.replace('"$1"', "$SIZE"),
    'if [ "$1" = small ]; then LR=1e-6; SEED=3\nelif [[ $1 == big ]] || [ $1 = large ]; then LR=1e-7; SEED=4\n'
    "else exit 1\nfi\n",
])  # fmt: skip
def test_variable_that_a_condition_compares_is_the_cause(text: str, tmp_path: Path) -> None:
    assert last(text + "f $LR x$SEED") == [
        ("f", ""), ("$LR", "$1 (small, big, large)"), ("x$SEED", "$1 (small, big, large)")
    ]  # fmt: skip
    found = run(tmp_path, text + "python train.py --lr $LR --seed $SEED\n")
    assert found.draft.wrong
    errors = [one for one in found.draft.messages if one.severity == "error"]
    assert {one.why for one in errors} == {"the script does not set $1, and a condition on it decides the value"}
    assert {one.help for one in errors} == {"`--set 1=VALUE` sets it; the script compares it with small, big, large"}
    known = run(tmp_path, text + "python train.py --lr $LR --seed $SEED\n", "--set", "1=big")
    assert not known.draft.wrong
    assert "lr = 1e-7" in known.text
    assert "seed 4" in known.text


@pytest.mark.parametrize("text", [
    "case $(hostname) in a) X=1;; *) X=2;; esac",
    'if [ "$1" = a ]; then X=1; elif [ -f b ]; then X=2; else X=3; fi',
    'if [ "$1" = a ]; then X=1; elif [ "$2" = b ]; then X=2; else X=3; fi',
    'case "v$1" in v1) X=1;; *) X=2;; esac',
])  # fmt: skip
def test_condition_on_something_else_is_not_said_to_depend_on_one_variable(text: str) -> None:
    assert last(f"{text}\nf $X") == [("f", ""), ("$X", "${X}")]


def test_program_in_a_variable_that_is_not_set_is_an_error(tmp_path: Path) -> None:
    text = "accelerate launch $1 --lr 1e-6\n"
    found = run(tmp_path, text)
    assert found.draft.wrong
    assert any('`program: "$1"`: the script does not set $1' in one for one in found.messages)
    assert "lr = 1e-6" in run(tmp_path, text, "--set", "1=train.py").text


def test_unset_variable_before_the_program_is_not_the_program(tmp_path: Path) -> None:
    found = run(tmp_path, "accelerate launch $FLAGS train.py --lr 1e-6\n")
    assert not found.draft.wrong
    assert "lr = 1e-6" in found.text
    assert any("`$FLAGS`: the script does not set this variable" in one for one in found.messages)


def test_variable_that_nothing_sets_is_a_warning_for_a_script_of_the_repository(tmp_path: Path) -> None:
    found = run(tmp_path, "python train.py --lr 1e-6 $EXTRA\n")
    assert not found.draft.wrong
    assert any("`$EXTRA`: the script does not set this variable" in one for one in found.messages)


@pytest.mark.parametrize(("text", "words"), [
    ('X="a b"\nread -r -a A <<< "$X"\nf "${A[@]}"', ["f", "a", "b"]),
    ("IFS=, read -ra A <<< 1,2\nf ${A[1]}", ["f", "2"]),
    ('read A B <<< "1 2 3"\nf $A "$B"', ["f", "1", "2 3"]),
    ('[ -n "" ] && E+=(--a)\nf "${E[@]:-}" x', ["f", "", "x"]),
    ("[ -n 1 ] && E=(--a)\nf ${E[0]}", ["f", "--a"]),
    ("true || E=(--a)\nE=(--b)\nf ${E[0]}", ["f", "--b"]),
])  # fmt: skip
def test_arrays_are_expanded(text: str, words: list[str]) -> None:
    assert [one for one, _ in last(text)] == words


def test_array_after_a_condition_does_not_join_the_next_command() -> None:
    assert last('[ -n "" ] && E+=(--a)\nf x') == [("f", ""), ("x", "")]


def test_output_of_a_command_is_one_word() -> None:
    assert last('X=$(awk "BEGIN {print int($A * 2 / ($B + 1))}")\nrun --steps ${X} --seed 1\n')[1:] == [
        ("--steps", ""), ('$(awk "BEGIN {print int($A * 2 / ($B + 1))}")', "$(...)"), ("--seed", ""), ("1", "")
    ]  # fmt: skip


def test_text_that_is_not_known_cannot_be_split() -> None:
    assert last("read -ra A <<< $(ls)\nf ${A[0]}")[1][1]


def test_byte_order_mark_is_no_part_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text("\ufeffLR = 1e-6\n", encoding="utf-8")
    text = "\ufefffrom parts import LR\n" + TRAIN.replace("args.lr", "LR")
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    assert "lr = 1e-6" in imported("python train.py\n", name="run.sh", root=str(tmp_path)).text


def test_python_alone_is_one_process_also_by_names() -> None:
    text = "export CUDA_VISIBLE_DEVICES=0,1\npython sft.py --model_name_or_path Qwen/Qwen2.5-3B --dataset_name a/b\n"
    found = imported(text, name="run.sh")
    assert found.draft.settings["hardware"].text.startswith("1 x ")
    assert any("one process uses several GPUs" in one for one in found.messages)
    found = imported(text, *HARDWARE, name="run.sh")
    assert found.draft.settings["hardware"].text.startswith("8 x ")


def test_duration_of_a_base_without_a_model_is_a_comment() -> None:
    found = imported("learning_rate: 1e-5\nnum_train_epochs: 20\n", "--method", "sft")
    assert "# train MODEL on DATA for 20 epochs" in found.text


def test_fastchat_is_no_method_but_sft() -> None:
    found = imported("python dpo.py --model_name_or_path Qwen/Qwen2.5-3B --data_path a.json\n", *HARDWARE, name="r.sh")
    assert "assistant_only" not in found.text
    assert "assistant_only" in imported("python train.py --model_name_or_path Qwen/Qwen2.5-3B --data_path a.json\n",
                                        *HARDWARE, name="r.sh").text  # fmt: skip


def test_nested_arithmetic_is_followed_to_a_fixed_depth() -> None:
    assert [one.words[0].text for one in calls("a " + "$((1+" * 3000)] == ["a"]
    assert last("((" + "1+(" * 3000 + ")" * 3000 + "))\na 1")[-1] == ("1", "")
