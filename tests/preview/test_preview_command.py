"""The options of `xpc preview`, and errors that end the command before it starts the interpreter that trains."""

from __future__ import annotations

import os

import pytest
from case_support import spec
from compile_support import put

from xpc.compiler.commands import APART, COMMANDS
from xpc.compiler.files.inputs import SpecError, UsageError
from xpc.compiler.language.codes import CODES, explanation
from xpc.compiler.preview import command, process

VERDICTS = ["XP166", "XP588", "XP589", *(f"XP{number}" for number in range(591, 600))]


def run(tmp_path: object, *arguments: str, text: str = "") -> tuple[str, int]:
    put(str(tmp_path), {"run.xp": text or spec()})
    return command.run(command.parse([os.path.join(str(tmp_path), "run.xp"), *arguments]))


@pytest.mark.parametrize(
    "arguments", [["--row", "-1"], ["-n", "0"], ["--row", "1", "--longest"], ["--rows", "0"], ["--random", "x"]]
)
def test_wrong_options_end_with_status_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        command.parse(["run.xp", *arguments])
    assert left.value.code == 2


def test_update_needs_a_golden_file(tmp_path: object) -> None:
    with pytest.raises(UsageError, match="needs --golden FILE"):
        run(tmp_path, "--update")


def test_standard_input_is_no_spec_with_data_next_to_it() -> None:
    with pytest.raises(UsageError, match="needs a spec in a file"):
        command.run(command.parse(["-"]))


def test_a_spec_with_errors_is_reported(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SpecError, match="does not compile"):
        run(tmp_path, text="train qwen2.5-3b on infinity-instruct with zero7\n")
    assert "zero7" in capsys.readouterr().err


def test_shares_that_do_not_add_up_are_reported(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    text = "xpc 1\ntrain qwen2.5-3b on mix for 1 epochs with 1 x h100-80gb gbs=8 micro=8 seq=128\ndata mix {\n"
    with pytest.raises(SpecError, match="does not compile"):
        run(tmp_path, text=text + '  smoltalk { share = 70% }\n  alpaca { share = 40% }\n}\nsave "out"\n')
    assert "all shares of the mixture together are 110%, not 100%" in capsys.readouterr().err


def test_an_interpreter_without_the_stack_is_named(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_installed_here", lambda: None)
    monkeypatch.delenv("PYTHON", raising=False)
    without = "and this interpreter has no trl: "
    with pytest.raises(
        UsageError,
        match=rf"needs trl 1\.16\.0, {without}install it \(`pip install .*\[train\].*`\), or name another interpreter",
    ):
        run(tmp_path)
    with pytest.raises(UsageError, match=rf"needs trl 0\.24\.0, {without}name another interpreter with --python"):
        run(tmp_path, text=spec("target trl-0.24\n"))
    monkeypatch.setattr(process, "_installed_here", lambda: "0.24.0")
    with pytest.raises(UsageError, match=r"has trl 0\.24\.0: .*, or .* `xpc upgrade COPY --target trl-0\.24 --write`"):
        run(tmp_path)
    with pytest.raises(UsageError, match="there is no interpreter /no/python"):
        run(tmp_path, "--python", "/no/python")


def test_an_interpreter_that_fails_is_reported(tmp_path: object) -> None:
    with pytest.raises(UsageError, match="failed"):
        run(tmp_path, "--python", "/bin/false")


@pytest.mark.parametrize("code", VERDICTS)
def test_every_verdict_is_explained(code: str) -> None:
    assert CODES[code][1] in ("error", "warning")
    assert explanation(code).startswith(("`xpc preview` found", "`xpc preview --rewards` found"))


def test_preview_is_a_command() -> None:
    assert "preview" in COMMANDS
    assert APART["preview"] == command.__name__
