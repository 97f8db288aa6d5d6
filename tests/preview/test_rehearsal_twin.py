"""A rehearsal runs a small copy (twin) of a spec. The twin has all settings that a CPU can run, and a list of the
settings that it leaves out.
"""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path
from typing import Any

import pytest
from case_support import spec as written
from compile_support import REPOSITORY, checked, errors, put, shown

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.preview.rehearsal import command, rows, small_run, steps
from xpc.compiler.preview.rehearsal.local_hub import Hub
from xpc.compiler.preview.rehearsal.twin import Twin, twin_of, without
from xpc.compiler.spec.resources import DataSource

SPECS = os.path.join(REPOSITORY, "specs")


def twin(text: str, folder: str = SPECS) -> Twin:
    found = checked(text, folder)
    assert found.spec is not None, found.problems
    return twin_of(found.spec, lambda source: source.path is not None)


def replaced(made: Twin) -> dict[str, tuple[str, str]]:
    return {one.setting: (one.was, one.now) for one in made.replaced}


def test_zero_stays_and_gpus_become_two_processes() -> None:
    made = twin(written("memory liger", strategy="zero3(offload=optimizer)"))
    text = made.text
    assert "hardware 2 x cpu" in text
    assert "strategy zero3" in text
    assert "precision fp32" in text
    assert set(replaced(made)) >= {"strategy.offload", "precision", "memory.liger"}


def test_zero_stays_on_one_gpu() -> None:
    made = twin(written(strategy="zero2(offload=optimizer)", hardware="1 x h100-80gb"))
    assert "strategy zero2" in made.text
    assert "strategy" not in replaced(made)


def test_fsdp_becomes_ddp_and_says_so() -> None:
    made = twin(written(strategy="fsdp"))
    assert replaced(made)["strategy"] == ("fsdp", "ddp")
    assert "precision bf16" in made.text


def test_fp8_becomes_bf16_and_says_so() -> None:
    made = twin(written("model(compile)", strategy="ddp", precision="fp8"))
    assert replaced(made)["precision"] == ("fp8", "bf16")
    assert "precision bf16" in made.text


def test_steps_of_a_schedule_become_shares() -> None:
    made = twin(written("schedule cosine(warmup=40)", train="qwen2.5-3b on infinity-instruct for 400 steps"))
    assert "warmup = 10%" in made.text


def test_a_number_of_held_out_rows_becomes_a_share() -> None:
    assert replaced(twin(written("data(holdout=512)")))["data.holdout"] == ("512", "25%")


def test_the_ratio_of_alpha_to_rank_stays() -> None:
    made = twin(written("lora(rank=64, alpha=16)"))
    assert "rank = 8" in made.text
    assert "alpha = 2" in made.text


def test_a_teacher_is_a_folder_and_a_method_stays() -> None:
    train = "qwen2.5-0.5b on deepmath-103k for 500 steps"
    made = twin(written("method distill(teacher=qwen2.5-1.5b)", train=train))
    assert 'teacher = "teacher"' in made.text
    assert without(made, "method", "refused on a CPU") is None


def test_a_tracker_and_an_engine_are_left_out() -> None:
    made = twin(written('track wandb(name="x")', "launch slurm(partition=gpu)"))
    assert "track none" in made.text
    assert "partition" not in made.text
    assert replaced(made)["launch"] == ("slurm", "local")


def source(**more: Any) -> DataSource:
    found = checked(written(), SPECS).spec
    assert found is not None
    return DataSource("org/set", None, found.model.label, **more)


@pytest.mark.parametrize(
    ("shape", "columns"),
    [
        ("messages", ("turns",)), ("conversations", ("talk",)), ("prompt_completion", ("ask", "answer")),
        ("text", ("body",)), ("unpaired", ("q", "a", "good")), ("prompt", ("problem",)),
        ("preference", ("yes", "no")), ("preference", ("q", "yes", "no")),
        ("preference", ("q", "yes", "no", "chat_template_kwargs")),
    ],
)  # fmt: skip
def test_made_rows_have_the_columns_of_the_source(shape: str, columns: tuple[str, ...], tmp_path: Path) -> None:
    target = str(tmp_path / "data" / "0.jsonl")
    texts = rows.write_made(source(shape=shape, columns=columns), target, {"solution": "4"})
    made = [json.loads(line) for line in Path(target).read_text().splitlines()]
    assert len(made) == rows.MADE
    assert all(made[0][name] not in ("", None, []) for name in columns if name != "chat_template_kwargs")
    assert {*made[0]} <= {*columns, "solution", "prompt"}
    assert texts


@pytest.mark.parametrize(
    ("data", "method"),
    [
        ("metamath\ncodeforces-cots", ""),
        ("intel-orca-dpo-pairs", "method orpo"),
        ("hh-rlhf", "method reward"),
        ("deepscaler", "method grpo(rewards=accuracy, generations=4)"),
    ],
)
def test_made_rows_are_those_of_a_registered_dataset(data: str, method: str, tmp_path: Path) -> None:
    mixture = f"data mix {{\n{data}\n}}"
    batch = "gbs=16 micro=2" + " seq=64" * ("grpo" not in method)
    text = written(mixture, method, train="qwen2.5-3b-instruct on mix for 1 epochs", batch=batch)
    made = twin(text)
    for one in made.rows:
        rows.write_made(one.source, str(tmp_path / one.path), rows.other_columns(made.spec))
    again = checked(made.text.replace('"model"', "qwen2.5-3b-instruct"), str(tmp_path))
    assert not errors(again), shown(again)
    assert replaced(made).get("batch.seq", ("64", "256")) == ("64", "256")


def test_columns_that_a_reward_reads_are_made() -> None:
    content = b"def f(completions, test_cases, **kwargs):\n    return [0.0 for _ in completions]\n"
    assert rows._parameters(content, "f") == ["test_cases"]
    assert rows._parameters(b"(" * 5000, "f") == []


def test_the_first_rows_of_a_file_are_copied(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text("{}\n" * 1000)
    rows.copy_head(str(tmp_path / "m.jsonl"), str(tmp_path / "twin" / "0.jsonl"))
    assert len((tmp_path / "twin" / "0.jsonl").read_text().splitlines()) == rows.TAKEN + 1


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.jsonl")
    with pytest.raises(UsageError, match="is not a file"):
        rows.copy_head(str(tmp_path / "m.jsonl"), str(tmp_path / "twin" / "0.jsonl"))


@pytest.mark.parametrize("name", ["m.parquet", "folder/m.jsonl"])
def test_a_device_is_not_copied(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.symlink("/dev/zero", tmp_path / name)
    with pytest.raises(UsageError, match="is not a file"):
        rows.copy_head(str(tmp_path / name.partition("/")[0]), str(tmp_path / "twin" / "0"))


def test_a_loss_that_is_no_number_is_found(tmp_path: Path) -> None:
    put(str(tmp_path), {"out/metrics.jsonl": '{"step": 1, "loss": "nan", "grad_norm": 1.0, "lr": 0.1}\n'})
    small = twin(written()).spec
    found = steps.Rehearsal(
        str(tmp_path), twin(written()), small, {}, "", {}, Hub(), print, steps=[steps.Step("load, train", steps.DONE)]
    )
    found.trained(str(tmp_path / "twin.bundle"))
    assert [one.message for one in found.findings] == ["the loss is not a number"]


@pytest.mark.parametrize(("own", "codes"), [(True, ["XP175", "XP591"]), (False, ["XP591"])])
def test_findings_about_a_substitute_for_the_tokenizer_are_not_reported(
    own: bool, codes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = checked(written(hardware="1 x h100-80gb"), SPECS).spec
    assert compiled is not None
    found = steps.Rehearsal(str(tmp_path), twin(written()), compiled, {}, "python", {}, Hub(), str, own_tokenizer=own)
    verdicts = [{"code": one, "severity": "warning", "message": "a fault"} for one in ("XP175", "XP591")]
    row = {"row": 0, "source": "train.jsonl", "excluded": None, "verdicts": verdicts}
    monkeypatch.setattr(steps, "ask", lambda *_: {"rows": [row]})
    found.rows()
    assert [one.code for one in found.findings] == codes


def test_a_folder_that_cannot_be_written_is_found(tmp_path: Path) -> None:
    put(str(tmp_path), {"file": ""})
    spec = checked(written().replace("out/run", "file/out"), SPECS).spec
    assert spec is not None
    found = steps.Rehearsal(str(tmp_path), twin(written()), spec, {}, "", {}, Hub(), print)
    small_run._place_of_results(spec, str(tmp_path), found)
    assert [one.message for one in found.findings] == ["`file/out` cannot be written: you may not write to file"]


def test_the_workers_import_nothing_of_the_compiler() -> None:
    folder = os.path.join(os.path.dirname(command.__file__), "worker")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py"):
            tree = ast.parse(Path(folder, name).read_text())
            named = {one.module for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)}
            assert not any(str(one).startswith("xpc") for one in named), name


@pytest.mark.parametrize("recipe", sorted(name for name in os.listdir(SPECS) if name.endswith(".xp")))
def test_no_twin_of_a_recipe_needs_a_gpu(recipe: str) -> None:
    text = Path(SPECS, recipe).read_text()
    found = checked(text, SPECS)
    if found.spec is None:
        pytest.skip("`make demo` builds the model of this spec")
    made = twin_of(found.spec, lambda source: False).text
    assert "x cpu" in made or "hardware cpu" in made
    for setting in ("flash2", "liger", "vllm", "x h100", "wandb", "fsdp"):
        assert setting not in made, setting


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    put(str(tmp_path), {"run.xp": written()})
    with pytest.raises(UsageError, match="exists"):
        command.run(command.parse([str(tmp_path / "run.xp"), "--keep", str(tmp_path)]))
