"""If a value fits no setting, the import reports it with its line. No import writes a spec that fails to parse."""

from __future__ import annotations

from pathlib import Path

import pytest
from import_support import HARDWARE, HEAD

from xpc.compiler.cli import main

NINES = "9" * 63
ZERO = '{{"zero_optimization": {{"stage": 2, "reduce_bucket_size": {}}}}}'
STRANGE = {
    "a.yaml": [
        *(f"{HEAD}{key}: {value}\n" for key in ("learning_rate", "max_steps", "per_device_train_batch_size", "seed")
          for value in ("1e400", "1.0e+400", "1e300", NINES, f"-{NINES}")),
        f'{HEAD}output_dir: "a\\0b"\n',
        'model_name_or_path: "a\\0b"\ndataset_name: org/rows\n',
        'model_name_or_path: a/b\ndataset_name: "c\\0.jsonl"\n',
    ],
    "a.json": [ZERO.format(value) for value in ("1e300", "1e400", "-1e400", NINES)],
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_oversized_value_is_reported_with_its_line(name: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for text in STRANGE[name]:
        Path(name).write_text(text)
        assert main(["import", name, *HARDWARE, "-o", "t.xp"]) == 2, text
        reported = capsys.readouterr().err
        assert reported.startswith(f"xpc: {name}:"), (text, reported)
        assert not Path("t.xp").exists()


@pytest.mark.parametrize("value", ["1e400", "1e300", NINES])
def test_a_number_too_large_on_a_command_line_is_refused(value: str, capsys) -> None:
    line = f"trl sft --model_name_or_path a/b --dataset_name c/d --learning_rate {value}"
    assert main(["import", "--command", line]) == 2
    assert capsys.readouterr().err == "xpc: --command:1: a number is larger than any setting allows\n"


@pytest.mark.parametrize("key", ["loss_type", "report_to"])
def test_list_of_nulls_is_null(key: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(f"{HEAD}{key}: [null]\n")
    assert main(["import", "a.yaml", *HARDWARE, "-o", "t.xp"]) == 0
    assert main(["check", "t.xp"]) == 0, capsys.readouterr().out
