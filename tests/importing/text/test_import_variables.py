"""Scripts with variables, arrays, loops and several commands: nothing of them is executed."""

from __future__ import annotations

import pytest
from import_support import HARDWARE, Imported, imported

from xpc.compiler.cli import main
from xpc.compiler.importing.text.entries import Unreadable
from xpc.compiler.importing.text.shell import calls

RUN = "accelerate launch sft.py --model_name_or_path Qwen/Qwen2.5-3B --dataset_name a/b"


def script(text: str, *arguments: str) -> Imported:
    return imported(text, *HARDWARE, *arguments, name="train.sh")


def words(text: str, **sets: str) -> list[str]:
    """The words of the last command."""
    return [one.text for one in [one for one in calls(text, sets) if one.words][-1].words]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a ${X:-3}", ["a", "3"]),
        ("a ${X-3} ${Y:=4}", ["a", "3", "4"]),
        ("X=${1:-4}\na $X", ["a", "4"]),
        ('export X="b c"\na "$X"', ["a", "b c"]),
        ("declare -x\nX=${A:-${B:-deep}}\na $X", ["a", "deep"]),
        ('a --x 1 "$@"', ["a", "--x", "1"]),
        ("a $* ${@:2} '$@'", ["a", "$@"]),
        ("X=/m/Qwen2.5-3B\na ${X##*/}", ["a", "Qwen2.5-3B"]),
        ("N=16\na $((N / 4)) $(( $N * 2 ))", ["a", "$((N / 4))", "32"]),
        ("a $((16 / 0))", ["a", "$((16 / 0))"]),
        ("A=(\n  --x 1  # note\n  --y '2 3'\n)\nA+=(--z)\nb \"${A[@]}\"", ["b", "--x", "1", "--y", "2 3", "--z"]),
        ("a $(date +%s; ls) b", ["a", "$(date +%s; ls)", "b"]),
        ("X=${X:?set it}\na $X", ["a", "$X"]),
        ("for i in 1 2 3; do\n  a $i\ndone >log", ["done"]),
    ],
)
def test_expansion(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_option_sets_a_variable_over_the_script() -> None:
    assert words("X=1\na $X", X="2") == ["a", "2"]
    text = f"LR=1e-5\n{RUN} --learning_rate $LR --max_steps $STEPS\n"
    assert script(text).draft.wrong
    found = script(text, "--set", "LR=3e-5", "--set", "STEPS=7")
    assert (found.arguments["learning_rate"], found.arguments["max_steps"]) == (3e-5, 7)


def test_missing_variable_names_the_option() -> None:
    found = script(f"{RUN} --learning_rate $LR --output_dir out/$TAG\n")
    errors = [one for one in found.draft.messages if one.severity == "error"]
    assert [one.help for one in errors] == ["`--set LR=VALUE` sets it"]


def test_loops_become_a_sweep() -> None:
    found = script(
        f"for lr in 1e-6 2e-6; do\n  for n in 1 2; do\n    {RUN} --learning_rate $lr --num_train_epochs $n "
        "--output_dir out/$lr-$n\n  done\ndone\n"
    )
    assert "sweep {\n  lr = [1e-6, 2e-6]\n  epochs = [1, 2]\n}" in found.text
    assert not found.errors


def test_loop_over_data_is_refused() -> None:
    found = script(f"for d in a/b c/d; do\n  {RUN.replace('a/b', '$d')}\ndone\n")
    assert any("a sweep has one corpus" in one for one in found.messages)


def test_loop_without_effect_is_no_sweep() -> None:
    assert "sweep" not in script(f"for seed in 1 2; do\n  {RUN} --run_name r$seed\ndone\n").text


TWO = (
    f"{RUN} --learning_rate 1e-6\ntorchrun dpo.py --model_name_or_path Qwen/Qwen2.5-3B --dataset_name c/d --beta 0.2\n"
)


def test_several_commands_are_listed_and_picked() -> None:
    with pytest.raises(Unreadable, match=r"1 on line 1 \(sft.py\); 2 on line 2 \(dpo.py\)"):
        script(TWO)
    assert script(TWO, "--pick", "1").arguments["learning_rate"] == 1e-6
    assert script(TWO, "--pick", "2").draft.method == "dpo"
    with pytest.raises(Unreadable, match="no `--pick 3`"):
        script(TWO, "--pick", "3")


def test_all_commands_are_written(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.sh").write_text(TWO)
    assert main(["import", "t.sh", *HARDWARE, "--pick", "all", "-o", "t.xp"]) == 0
    assert "lr = 1e-6" in (tmp_path / "t-1.xp").read_text()
    assert "method dpo" in (tmp_path / "t-2.xp").read_text()
    assert main(["import", "t.sh", "--pick", "all"]) == 2
    assert main(["import", "t.sh", "--pick", "none", "-o", "u.xp"]) == 2


def test_later_value_of_an_argument_counts() -> None:
    found = script(f"{RUN} --learning_rate 1e-6 --learning_rate 2e-6\n")
    assert found.arguments["learning_rate"] == 2e-6
    assert any("given twice" in one for one in found.messages)


def test_configuration_file_may_be_a_positional_argument(tmp_path) -> None:
    (tmp_path / "c.yaml").write_text("model_name_or_path: Qwen/Qwen2.5-3B\ndataset_name: a/b\nlearning_rate: 1e-5\n")
    found = imported("accelerate launch sft.py c.yaml --max_steps 3\n", *HARDWARE, name="t.sh", root=str(tmp_path))
    assert (found.arguments["learning_rate"], found.arguments["max_steps"]) == (1e-5, 3)
    found = imported("python sft.py c.yaml\n", *HARDWARE, name="t.sh", root=str(tmp_path))
    assert found.arguments["learning_rate"] == 1e-5


def test_missing_configuration_file_is_an_error_of_its_line() -> None:
    assert any(
        "most of the run is in it" in one for one in script("accelerate launch sft.py --config no.yaml").messages
    )
