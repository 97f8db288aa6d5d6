"""`xpc preview --rows` checks the rows that `xpc check` does not read: rows of Parquet files and of the hub."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from compile_support import checked
from emitted import put
from test_preview_sources import of_hub
from tiny import conversations
from tiny_runs import lines, spec

from xpc.compiler import cli
from xpc.compiler.data.rows import unread
from xpc.compiler.preview import command
from xpc.compiler.preview.stored_rows import findings, path
from xpc.compiler.stacks import DEFAULT

if TYPE_CHECKING:
    from method_runs import Warm

    from xpc.compiler.spec.checked import CheckedSpec

HUB = """\
xpc 1
train qwen2.5-0.5b-instruct on org/rows for 1 epochs with 1 x h100-80gb bf16 gbs=8 micro=8 seq=512
data(format={shape})
method {method}
save "out"
"""


def of_method(shape: str, method: str) -> CheckedSpec:
    found = checked(HUB.format(shape=shape, method=method)).spec
    assert found is not None
    assert unread(found) == [0]
    return found


def test_rows_of_the_hub_are_checked_as_those_of_a_file(tmp_path: Path) -> None:
    pairs = [{"prompt": f"{at}?", "chosen": f"yes {at}", "rejected": f"{'yes' if at > 5 else 'no'} {at}"}
             for at in range(8)]  # fmt: skip
    Path(path(str(tmp_path), 0)).write_text(lines(pairs))
    found = findings(of_method("preference", "dpo"), str(tmp_path), {"0": 8})
    (same,) = (one for one in found if one["code"] == "XP536")
    assert same["message"] == (
        "2 of the 8 rows of `org/rows` have the same answer twice; the first is row 6, counted from 0"
    )
    assert same["severity"] == "warning"


def test_good_rows_have_no_finding(tmp_path: Path) -> None:
    Path(path(str(tmp_path), 0)).write_text(lines([{"messages": row} for row in conversations(8)]))
    assert findings(of_method("messages", "sft"), str(tmp_path), {"0": 8}) == []


def test_an_error_of_the_rules_is_an_error_of_the_preview(tmp_path: Path) -> None:
    rows: list[Any] = conversations(8)
    rows[3] = rows[3][:1]
    Path(path(str(tmp_path), 0)).write_text(lines([{"messages": row} for row in rows]))
    found = findings(of_method("messages", "sft(assistant_only)"), str(tmp_path), {"0": 8})
    assert [(one["code"], one["severity"]) for one in found] == [("XP602", "error")]
    assert "row 3 of `org/rows` has no turn of the assistant" in found[0]["message"]


@pytest.mark.parametrize("cached", [False, True])
def test_check_says_in_one_note_which_rows_on_this_machine_it_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cached: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("HF_HOME", "HF_HUB_CACHE", "XPC_CACHE"):
        monkeypatch.delenv(name, raising=False)
    if cached:
        os.makedirs(tmp_path / "cache" / "huggingface" / "hub" / "datasets--org--rows")
    put(str(tmp_path), {"run.xp": HUB.format(shape="messages", method="sft"),
                        "mine.jsonl": lines([{"messages": row} for row in conversations(8)])})  # fmt: skip
    assert cli.main(["check", str(tmp_path / "run.xp")]) == 0
    shown = "".join(capsys.readouterr())
    assert ("XP199 rows-not-read: `xpc check` does not read the rows of `org/rows`\n" in shown) == cached
    assert ("`xpc preview SPEC --rows 1000` checks them" in shown) == cached
    put(str(tmp_path), {"run.xp": HUB.format(shape="messages", method="sft").replace("org/rows", '"mine.jsonl"')})
    assert cli.main(["check", str(tmp_path / "run.xp")]) == 0
    assert "XP199" not in "".join(capsys.readouterr())


def test_the_rows_of_a_parquet_file_are_not_read_and_no_bundle_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = pyarrow.Table.from_pylist([{"messages": row} for row in conversations(8)])
    parquet.write_table(rows, tmp_path / "mine.parquet")
    put(str(tmp_path), {"run.xp": HUB.format(shape="messages", method="sft").replace("org/rows", '"mine.parquet"')})
    assert cli.main(["compile", str(tmp_path / "run.xp"), "-o", str(tmp_path / "bundle")]) == 0
    assert "XP199 rows-not-read: `xpc check` does not read the rows of `mine.parquet`\n" in capsys.readouterr().out
    assert "XP199" not in (tmp_path / "bundle" / "README.md").read_text()


@pytest.mark.slow
def test_a_parquet_file_is_checked_and_a_json_file_is_not_checked_again(warm: Warm) -> None:
    import pyarrow
    from pyarrow.parquet import write_table

    rows: list[Any] = [{"messages": [{**turn, "weight": None} for turn in row]} for row in conversations(8)]
    rows[5]["messages"][1]["content"] = ""
    write_table(pyarrow.Table.from_pylist(rows), os.path.join(warm.location, "unread.parquet"))
    put(warm.location, {"unread.jsonl": lines(rows)})
    printed = {}
    for name in ("unread.parquet", "unread.jsonl"):
        put(warm.location, {"unread.xp": spec(data=f'"{name}"')})
        words = [os.path.join(warm.location, "unread.xp"), "-n", "1", "--rows", "all"]
        words += ["--python", warm.of(DEFAULT).python]
        printed[name], status = command.run(command.parse(words))
        assert status == 0
        assert command.run(command.parse([*words, "--deny", "warnings"]))[1] == int(name.endswith("parquet"))
    assert (
        "in the 8 rows that `xpc check` does not read:\n  warning XP533 nothing-to-learn: row 5 (counted from 0) of"
        in (printed["unread.parquet"])
    )
    assert "1 row: 1 warning;" in printed["unread.parquet"]
    assert "XP549" not in printed["unread.parquet"]  # all weights are null, so nothing is lost
    assert "XP533" not in printed["unread.jsonl"]


@pytest.mark.slow
@pytest.mark.parametrize(("scan", "many"), [("local", 1000), ("all", 3000), ("7", 7)])
def test_the_rows_of_the_hub_that_are_read_are_checked(warm: Warm, scan: str, many: int) -> None:
    found = of_hub(warm, f"unread-{scan}", scan, "first")
    assert found["answer"]["written"] == {"0": many}
    assert found["answer"]["counts"]["rows"] == many or scan != "all"
    announced = any("all rows of org/rows are read from the hub" in one for one in found["progress"])
    assert announced == (scan == "all")
    with open(path(found["scratch"], 0), encoding="utf-8") as handle:
        rows = [json.loads(line) for line in handle]
    assert [one["row"] for one in rows] == [*range(many)]
    assert rows[0]["messages"][1] == {"role": "assistant", "content": "It is 2."}
