"""Options that exclude each other end in one sentence and status 2."""

from __future__ import annotations

import pytest

from xpc.compiler.review import verify
from xpc.compiler.review.pull_request import check


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "the following arguments are required: DIR"),
    (["--all", "a", "b"], "--all takes one folder"),
    (["--all", "--env"], "--all takes neither --env, --run nor --spec"),
    (["--all", "--run", "out"], "--all takes neither --env, --run nor --spec"),
    (["--all", "--spec", "a.xp"], "--all takes neither --env, --run nor --spec"),
])  # fmt: skip
def test_wrong_options_of_verify(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        verify.parse(arguments)
    assert error.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(message)


def test_the_usage_of_check_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        check.parse(["--format", "none"])
    assert capsys.readouterr().err.startswith("usage: check [")
