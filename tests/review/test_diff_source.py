"""`xpc diff recipe.yaml recipe.xp` shows each line of recipe.yaml, and next to it the line of recipe.xp that was
imported from it.
"""

from __future__ import annotations

import pytest

from xpc.compiler.cli import main

SOURCE = """\
model_name_or_path: Qwen/Qwen2.5-3B
dataset_name: org/rows
learning_rate: 1.0e-5
log_level: info
bf16: true
max_length: 1024
max_steps: 10
reward_type: exact
"""


@pytest.fixture
def spec(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(SOURCE)
    assert main(["import", "r.yaml", "--partial", "--hardware", "8 x h100-80gb", "-o", "r.xp"]) == 3
    capsys.readouterr()
    path = tmp_path / "r.xp"
    # with ddp the run does not fit in its GPUs, with ZeRO-3 it does
    path.write_text(path.read_text().replace("strategy ddp", "strategy zero3"))
    return path


def shown(capsys, *more: str) -> tuple[int, str]:
    status = main(["diff", "r.yaml", "r.xp", *more])
    return status, capsys.readouterr().out


def test_each_line_is_next_to_its_setting(spec, capsys) -> None:
    status, out = shown(capsys)
    assert status == 0
    rows = {line.partition("  ")[0]: line.rpartition("  ")[2] for line in out.splitlines()}
    assert rows["3: learning_rate: 1.0e-5"] == "optimizer.lr = 1e-5"
    assert rows["4: log_level: info".replace("info", '"info"')].startswith("irrelevant")
    assert "error: the imported tool has no such key" in rows['8: reward_type: "exact"']
    assert "! strategy = zero3 (import: ddp)" in out


@pytest.mark.parametrize("options", [("--format", "json"), ("--format", "markdown"), ("--price", "2.5")])
def test_options_for_two_specs_are_refused(options: tuple[str, str], spec, capsys) -> None:
    """The options are refused, because a program that asks for JSON would otherwise read a table of text."""
    assert main(["diff", "r.yaml", "r.xp", *options]) == 2
    out, error = capsys.readouterr()
    assert (out, error) == ("", "xpc: r.yaml is not a spec, and is compared as text, without --format and --price\n")


def test_changed_model_data_and_values_are_marked(spec, capsys) -> None:
    text = spec.read_text()
    spec.write_text(text.replace("lr = 1e-5", "lr = 2e-5").replace("strategy zero3", "strategy ddp") + "seed 7\n")
    _, out = shown(capsys)
    assert "! optimizer.lr = 2e-5 (import: 1e-5)" in out
    assert "(nothing)" in out
    assert "seed = 7" in out
    spec.write_text(text.replace("Qwen/Qwen2.5-3B on org/rows", "Qwen/Qwen2.5-7B on org/other"))
    _, out = shown(capsys)
    assert "! train Qwen/Qwen2.5-7B (import: Qwen/Qwen2.5-3B)" in out
    assert "! org/other (import: org/rows)" in out


def test_the_spec_may_come_first(spec, capsys) -> None:
    status, out = shown(capsys)
    assert main(["diff", "r.xp", "r.yaml"]) == status
    assert capsys.readouterr().out == out
    assert main(["diff", "r.xp", "r.yaml", "--exit-code"]) == 1


def test_two_files_of_other_tools_are_not_compared(spec, tmp_path, capsys) -> None:
    (tmp_path / "s.yaml").write_text(SOURCE)
    capsys.readouterr()
    assert main(["diff", "r.yaml", "s.yaml"]) == 2
    assert "xpc: s.yaml is not a spec: `xpc import s.yaml -o s.xp` makes one" in capsys.readouterr().err


def test_exit_code(spec, capsys) -> None:
    assert shown(capsys, "--exit-code")[0] == 1


def test_broken_spec_is_reported(spec, capsys) -> None:
    spec.write_text("train nothing on nothing\n")
    assert shown(capsys)[0] == 1


def test_file_that_the_import_wrote_is_unchanged(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    turns = '{"messages": [{"role": "user", "content": "%d?"}, {"role": "assistant", "content": "%d!"}]}\n'
    (tmp_path / "rows.jsonl").write_text("".join(turns % (i, i) for i in range(64)))
    (tmp_path / "a.yml").write_text(
        "base_model: NousResearch/Llama-3.2-1B\nchat_template: llama3\nmicro_batch_size: 2\nnum_epochs: 1\n"
        "learning_rate: 1e-4\ndatasets:\n  - {path: rows.jsonl, type: chat_template}\n"
    )
    main(["import", "a.yml", "--hardware", "1 x h100-80gb", "-o", "a.xp"])
    capsys.readouterr()
    assert main(["diff", "a.yml", "a.xp"]) == 0
    out = capsys.readouterr().out
    assert 'model.chat_template = file("a.chat_template.jinja")' in out
    assert "! model.chat_template" not in out
    template = tmp_path / "a.chat_template.jinja"
    template.write_text(template.read_text() + "{# changed #}")
    main(["diff", "a.yml", "a.xp"])
    assert "! model.chat_template" in capsys.readouterr().out


def test_script_is_imported_again_by_the_options_of_its_import(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    run = "accelerate launch sft.py --model_name_or_path Qwen/Qwen2.5-3B --dataset_name org/rows --max_steps"
    (tmp_path / "r.sh").write_text(f"{run} 7 --learning_rate 1e-5\n{run} 9 --learning_rate $LR\n")
    chosen = ("--pick", "2", "--set", "LR=3e-6")
    assert main(["import", "r.sh", "--hardware", "8 x h100-80gb", "-o", "r.xp", *chosen]) in (0, 1)
    assert main(["diff", "r.sh", "r.xp"]) == 2
    assert main(["diff", "r.sh", "r.xp", "--exit-code", *chosen]) == 0
    capsys.readouterr()
    assert main(["diff", "r.sh", "r.xp", "--exit-code", "--pick=2", "--set=LR=4e-6"]) == 1
    assert "! optimizer.lr = 3e-6 (import: 4e-6)" in capsys.readouterr().out
    assert main(["diff", "r.xp", "r.xp", "--pick", "2"]) == 2
