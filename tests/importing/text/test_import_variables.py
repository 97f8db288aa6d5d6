"""The import reads shell scripts with variables, arrays, loops and several commands. It runs none of their commands."""

from __future__ import annotations

import pytest
from import_support import HARDWARE, Imported, imported

from xpc.compiler.cli import main
from xpc.compiler.importing.text.entries import Unreadable
from xpc.compiler.importing.text.shell import calls

pytestmark = pytest.mark.slow

RUN = "accelerate launch sft.py --model_name_or_path Qwen/Qwen2.5-3B --dataset_name a/b"


def script(text: str, *arguments: str) -> Imported:
    return imported(text, *HARDWARE, *arguments, name="train.sh")


def words(text: str, **sets: str) -> list[str]:
    """Import a shell script; return the words of its last command."""
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
        ("N=16\na $((N / 4)) $(( $N * 2 ))", ["a", "4", "32"]),
        ("a $((16 / 0))", ["a", "$((16 / 0))"]),
        ("A=(\n  --x 1  # note\n  --y '2 3'\n)\nA+=(--z)\nb \"${A[@]}\"", ["b", "--x", "1", "--y", "2 3", "--z"]),
        ("a $(date +%s; ls) b", ["a", "$(date +%s; ls)", "b"]),
        ('D=a/b\na $(cd "$D/.." && pwd)/c', ["a", "a/c"]),
        ("P=$((RANDOM % (9 - 1) + 1))\na $P b", ["a", "$RANDOM", "b"]),
        ("X=${X:?set it}\na $X", ["a", "$X"]),
        ("for i in 1 2 3; do\n  a $i\ndone >log", ["a", "1"]),
        ("for i in {2..4}; do\n  a $i\ndone", ["a", "2"]),
        (
            "a {8..2..3} x{b,c}y '{1..2}' {\"a\",1} ${B:-{1,2}",
            ["a", "8", "5", "2", "xby", "xcy", "{1..2}", "{a,1}", "{1,2"],
        ),
        ("# what f does\nf() {\n  a $1\n}\n# the run\nf b\n", ["a", "b"]),
    ],
)
def test_parameters_are_expanded(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('M=qwen\nif [ "$M" == "qwen" ]; then\n  LR=1\nelse\n  LR=2\nfi\na $LR', ["a", "1"]),
        ('M=llama\nif [[ "$M" == qwen* ]]; then\n  LR=1\nelse\n  LR=2\nfi\na $LR', ["a", "2"]),
        ("N=8\nif [ $N -gt 4 ] && [ $N -le 8 ]; then X=big; elif [ $N -gt 8 ]; then X=huge; fi\na $X", ["a", "big"]),
        ('case "b" in\n  a|c) X=1 ;;\n  b) X=2 ;;\n  *) X=3 ;;\nesac\na $X', ["a", "2"]),
        ("X=1\nif [ $# -lt 1 ]; then\n  echo usage\n  exit 1\nfi\na $X", ["a", "1"]),
        ('if [ -z "$X" ]; then X=5; fi\na $X', ["a", "5"]),
        ('[ -z "$X" ] && X=5\nY=2\n[ "$Y" = 2 ] && Y=3 || Y=4\na $Y', ["a", "3"]),
        ("run() {\n  local lr=$1\n  a --lr $lr ${2:-none}\n}\nrun 1e-5 x", ["a", "--lr", "1e-5", "x"]),
        ("function run {\n  a $1\n}\nrun 7", ["a", "7"]),
        ('while [[ $# -gt 0 ]]; do\n  case $1 in\n    --m) X="$2"; shift 2 ;;\n  esac\ndone\na ${X:-d}', ["a", "d"]),
        ("D=out/big.json\na $(basename $D .json) $(dirname $D) ${D%.json} ${D/out/in} ${D##*.}",
         ["a", "big", "out", "out/big", "in/big.json", "json"]),
        ("G=0,1,2\na $(echo $G | tr ',' '\\n' | wc -l) $(( (8 / 2) - 1 ))", ["a", "3", "3"]),
        ('A=(x y)\ni=1\na ${#A[@]} ${A[$i]} "${A[0]}"', ["a", "2", "y", "x"]),
        ('declare -A L=([q]=1e-5 [l]="2e-5")\nk=l\na ${L[$k]}', ["a", "2e-5"]),
        ("cat > c.yaml <<EOF\nit's: $X\nEOF\na c.yaml", ["a", "c.yaml"]),
        ('CMD="a --m $M --n 2"\n$CMD', ["a", "--m", "$M", "--n", "2"]),
        ('S="$(dirname "$(realpath "$0")")"\na "$S/x.py"', ["a", "./x.py"]),
        ('if [[ "$Y" == "" ]]; then S=1; else S=2; fi\na $S', ["a", "1"]),
        ('if [ -z "$Y" ]; then exit 1; else S=2; fi\na $S', ["a", "2"]),
        ('if c; then S=1; elif [ -z "$Y" ]; then S=2; fi\na $S', ["a", "$S"]),
        ('S=1\n[ "$Y" != "" ] || S=2\na $S', ["a", "2"]),
        ('S="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"\na "$S/x.py"', ["a", "../x.py"]),
        ("X=1\nX+=2\na $X", ["a", "12"]),
        ("M=org/Qwen2.5-3B\na $(echo $M | cut -d/ -f2) $(echo $M | cut -d '/' -f 1)", ["a", "Qwen2.5-3B", "org"]),
        ("M=org/big\na $(echo \"$M\" | sed 's/\\//-/g') $(echo $M | tr '/' '_')", ["a", "org-big", "org_big"]),
        ("M=org/big\na $(echo $M | awk -F/ '{print $NF}') $(echo 'x y' | awk '{print $2}')", ["a", "big", "y"]),
        ("G=0,1,2\na $(echo $G | tr -cd ',' | wc -c | awk '{print $1+1}')", ["a", "3"]),
        ("G=0,1,2\na $(( $(echo $G | grep -o , | wc -l) + 1 )) $(echo $G | awk -F, '{print NF}')", ["a", "3", "3"]),
        ("M=$(find \"$H/models--Qwen--Qwen3-4B/snapshots\" -type d | head -1)\na $M", ["a", "Qwen/Qwen3-4B"]),
        ("a $(echo x | tr a-z A-Z) b", ["a", "$(echo x | tr a-z A-Z)", "b"]),
        ("N=2\nif (( N > 1 )); then a ddp; else a one; fi", ["a", "ddp"]),
        ("N=1\nif ((N>1)) || (( $N == 4 )); then a ddp; else a one; fi", ["a", "one"]),
        ("N=2\nX=1\n(( N == 2 )) && X=5\na $X", ["a", "5"]),
        ('N=2\nX=1\n[ "$N" = 2 ] && [ "$X" = 1 ] && X=5\na $X', ["a", "5"]),
        ('N=2\nX=1\n[ "$N" = 2 ] && [ "$X" = 3 ] && X=5\na $X', ["a", "1"]),
        ('N=2\nX=1\n[ "$N" = 3 ] || (( X == 1 )) && X=5\na $X', ["a", "5"]),
        ('N=2\nX=1\ntest "$N" = 2 && test "$X" = 3 && X=5\na $X', ["a", "1"]),
        ('N=2\nX=1\n[[ $N = 2 ]] && [ "$X" = 3 ] && X=5\na $X', ["a", "1"]),
        ("N=2\nX=1\n[ $N = 2 ] && [[ $X = 3 ]] && X=5\na $X", ["a", "1"]),
        ("N=2\nX=1\n(( N == 2 )) && (( X == 3 )) && X=5\na $X", ["a", "1"]),
        ("N=4\n((N *= 2))\n((N++))\na $N", ["a", "9"]),
        ("N=3\nfor ((i = 1; i <= N; i++)); do\n  a $i\ndone", ["a", "1"]),
        ("( (a 1; a 2) && a 3 )", ["a", "3", ")"]),
    ],
)  # fmt: skip
def test_conditions_and_functions_are_followed(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "X=1\nif nvidia-smi; then X=2; else X=3; fi\na $X",
        "X=1\nif [ -f here ]; then X=2; fi\na $X",
        "X=1\nX=$(cat file)\na $X",
        "X=1\nif (( $(nproc) > 8 )); then X=2; fi\na $X",
        "N=$1\nX=1\nif ((N > 1)); then X=2; fi\na $X",
        "for ((i = 0; i < $1; i++)); do :; done\na $i",
        "for f in *.json $LIST; do :; done\nX=$(date)\na $X",
        'case "$1" in\n  a) X=1 ;;\n  *) X=2 ;;\nesac\na $X',
    ],
)
def test_value_that_the_text_does_not_decide_is_not_taken(text: str) -> None:
    last = [one for one in calls(text) if one.words][-1].words
    assert last[1].open


def test_branch_that_ends_the_script_leaves_the_other() -> None:
    found = calls("if check; then\n  X=2\n  exit 1\nelse\n  X=3\nfi\na $X\nexit 0\nb never")
    assert [one.text for one in found[-1].words] == ["a", "3"]


def test_commands_of_branches_that_do_not_run_are_left_out() -> None:
    text = (
        f'MODE=dpo\nif [ "$MODE" = sft ]; then\n  {RUN} --learning_rate 1e-4\nelse\n  {RUN} --learning_rate 2e-6\nfi\n'
    )
    assert "lr = 2e-6" in script(text).text


def test_a_counting_loop_is_a_sweep() -> None:
    found = script(f"for ((seed = 1; seed < 4; seed++)); do\n  {RUN} --learning_rate 1e-5 --seed $seed\ndone\n")
    assert "seed [1, 2, 3]" in found.text or "seed = [1, 2, 3]" in found.text, found.text


def test_configuration_that_the_script_writes_itself(tmp_path) -> None:
    text = f"LR=3e-6\ncat > c.yaml <<EOF\nlearning_rate: $LR\nEOF\n{RUN} --config c.yaml\n"
    assert "lr = 3e-6" in script(text).text


def test_folder_of_cd_and_sourced_variables_are_followed(tmp_path, monkeypatch) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "env.sh").write_text("export LR=4e-6\n")
    (tmp_path / "train" / "c.yaml").write_text("learning_rate: 1e-4\nnum_train_epochs: 2\n")
    text = f"source env.sh\ncd train\n{RUN} --config c.yaml --learning_rate $LR $EXTRA_ARGS\n"
    found = imported(text, *HARDWARE, name="train.sh", root=str(tmp_path))
    assert "lr = 4e-6" in found.text
    assert "for 2 epochs" in found.text
    assert any("assumes that it is empty" in one for one in found.messages)


def test_commands_in_a_container_or_a_nested_text_are_read() -> None:
    inner = f'CMD="{RUN} --learning_rate 5e-6"\ndocker run --rm --gpus all img bash -c "$CMD"\n'
    assert "lr = 5e-6" in script(inner).text
    assert "lr = 5e-6" in script(inner.replace("sft.py", "-m pkg.sft")).text
    assert "lr = 6e-6" in script(f"docker run --rm -v a:b img {RUN} --learning_rate 6e-6\n").text


def test_argument_of_the_script_from_the_command_that_starts_it(tmp_path) -> None:
    text = (
        "# Usage: sbatch run.sh Qwen/Qwen2.5-3B 2e-6\n" + RUN.replace("Qwen/Qwen2.5-3B", "$1") + " --learning_rate $2\n"
    )
    assert "does not set $1" in str(script(text).messages)
    found = imported(text, *HARDWARE, "--partial", name="run.sh")
    assert "train Qwen/Qwen2.5-3B on a/b" in found.text
    assert any("documented command" in one for one in found.messages)


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


def test_command_that_is_put_together_in_a_variable_is_one_command() -> None:
    text = f'CMD="{RUN}"\nCMD+=" --learning_rate 3e-6"\necho "$CMD"\neval "$CMD"\n'
    assert script(text).arguments["learning_rate"] == 3e-6


def test_loops_become_a_sweep() -> None:
    found = script(
        f"for lr in 1e-6 2e-6; do\n  for n in 1 2; do\n    {RUN} --learning_rate $lr --num_train_epochs $n "
        "--output_dir out/$lr-$n\n  done\ndone\n"
    )
    assert "sweep {\n  lr = [1e-6, 2e-6]\n  epochs = [1, 2]\n}" in found.text
    assert not found.errors


def test_loop_over_data_is_refused() -> None:
    found = script(f"for d in a/b c/d; do\n  {RUN.replace('a/b', '$d')}\ndone\n")
    assert any("all runs of a sweep have the same data" in one for one in found.messages)


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


def test_command_in_a_word_of_a_program_is_the_training() -> None:
    found = script(f'python ../wait_for_gpus.py --interval 30 "{RUN} --learning_rate 7e-6"\n')
    assert not found.draft.wrong, found.messages
    assert "lr = 7e-6" in found.text


def test_commands_without_a_file_have_the_name_of_their_verb() -> None:
    with pytest.raises(Unreadable, match=r"1 on line 1 \(trl sft\); 2 on line 2 \(trl dpo\)"):
        script("trl sft --dataset_name a/b --model_name_or_path a\ntrl dpo --dataset_name a/c --model_name_or_path a\n")


def test_set_of_a_name_that_nothing_reads_is_a_warning(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.sh").write_text(f"LR=1e-5\n{RUN} --learning_rate $LR --config c.yaml\n")
    (tmp_path / "c.yaml").write_text("warmup_steps: ${WARM}\n")
    for name, unread in (("LR", False), ("WARM", False), ("RL", True), ("1", False)):
        main(["import", "t.sh", *HARDWARE, "--set", f"{name}=3"])
        assert (f"`--set {name}` has no effect" in capsys.readouterr().err) is unread


def test_version_of_the_option_leaves_no_doubt_about_the_mean(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.sh").write_text(f"{RUN}\n")
    main(["import", "t.sh", *HARDWARE, "--trl", "0.18"])
    shown = capsys.readouterr()
    assert "mean = local_tokens" in shown.out
    assert "average_tokens_across_devices" not in shown.err


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
    assert any("it occurs twice" in one for one in found.messages)


def test_configuration_file_may_be_a_positional_argument(tmp_path) -> None:
    (tmp_path / "c.yaml").write_text("model_name_or_path: Qwen/Qwen2.5-3B\ndataset_name: a/b\nlearning_rate: 1e-5\n")
    found = imported("accelerate launch sft.py c.yaml --max_steps 3\n", *HARDWARE, name="t.sh", root=str(tmp_path))
    assert (found.arguments["learning_rate"], found.arguments["max_steps"]) == (1e-5, 3)
    found = imported("python sft.py c.yaml\n", *HARDWARE, name="t.sh", root=str(tmp_path))
    assert found.arguments["learning_rate"] == 1e-5


def test_missing_configuration_file_is_an_error_of_its_line() -> None:
    assert any(
        "which has most settings of the run" in one
        for one in script("accelerate launch sft.py --config no.yaml").messages
    )


NAMES = "".join(f"v{n}=1\n" for n in range(6000))


@pytest.mark.parametrize(
    "script",
    [
        NAMES + "if [ $Q ]; then x=1; fi\n" * 3000,
        NAMES + "foo && x=1\n" * 3000,
        "X=" + "a" * 200_000 + "\ny=${X##*b}\n",
    ],
    ids=["conditions", "links", "cuts"],
)
def test_a_script_that_would_take_minutes_is_refused(script: str) -> None:
    with pytest.raises(Unreadable, match="expanding its variables takes more than"):
        calls(script)


def test_lines_after_a_here_document_keep_their_numbers() -> None:
    script = "f() {\n  cat <<EOF | tee x.txt\none\ntwo\nEOF\n  python a.py --x 1\n}\nf\npython b.py --y 2\n"
    lines = [(one.words[1].text, one.words[0].line) for one in calls(script) if one.words[0].text == "python"]
    assert lines == [("a.py", 6), ("b.py", 9)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a $(seq 1 0 5)", ["a", "$(seq 1 0 5)"]),
        (f"X=abc\na ${{X:{'9' * 5000}}}", ["a", "abc"]),
        (f"A=(1)\na ${{A[{'9' * 5000}]}}", ["a", f"${{A[{'9' * 5000}]}}"]),
        ("f() {\na ${\u00b2}\n}\nf 1", ["a", "${\u00b2}"]),
        (f"X=1\nif [ {'9' * 5000} -eq 1 ]; then X=2; fi\na $X", ["a", "$X"]),
        (f"a $(seq 1 {'9' * 5000})", None),
        ("a " + 'x$(" ' * 2000, None),
    ],
    ids=["seq", "substring", "index", "argument", "condition", "sequence", "brackets"],
)
def test_numbers_and_brackets_that_no_shell_reads(text: str, expected: list[str] | None) -> None:
    found = words(text)
    assert expected is None or found == expected


@pytest.mark.parametrize(
    "text",
    [
        'a "' + "$(" * 16_000 + '"',
        "a " + '"${" ' * 16_000,
        "if [ $Q ]; then x=1\n" * 8_000 + "fi\n" * 8_000,
        "X=" + "a" * 100_000 + "\nY=${X//a/$X}\n",
    ],
    ids=["brackets", "quotes", "conditions", "replacement"],
)
def test_hostile_scripts_are_refused_at_once(text: str) -> None:
    """Before a fix, each of these scripts made the import take a minute, or ten gigabytes of memory."""
    with pytest.raises(Unreadable, match=r"takes more than|levels deep"):
        calls(text)


def test_a_loop_that_changes_no_setting_of_the_spec_is_a_warning() -> None:
    found = script(f"for size in 1 2; do\n  {RUN} --output_dir out-$size\ndone\n")
    assert any("`$size`: the loop starts 2 runs" in one for one in found.messages), found.messages
    other = script(f"for f in a b; do\n  rm $f\ndone\n{RUN} --output_dir out\n")
    assert not any("the loop starts" in one for one in other.messages)
