"""The committed parser tables are those of xp.lark, and the fast lexer is Lark's own."""

import os
import subprocess
import sys

import pytest

from xpc.grammar import _tables, build
from xpc.grammar._lark import UnexpectedInput, load

EXAMPLES = os.path.join(os.path.dirname(__file__), "examples")


def test_tables_are_fresh():
    with open(build.TABLES, encoding="utf-8") as file:
        assert file.read() == build.tables(strict=False), "run: python -m xpc.grammar.build"


def test_grammar_is_strict():
    pytest.importorskip("interegular", reason="Lark's strict mode needs interegular, of the dev extra")
    build.compile_grammar(strict=True)


def test_lexer_agrees_with_lark():
    fast, slow = load(_tables.DATA, _tables.MEMO), build.compile_grammar(strict=False)
    for name in os.listdir(EXAMPLES):
        with open(os.path.join(EXAMPLES, name), encoding="utf-8") as file:
            text = file.read()
        assert fast.parse(text) == slow.parse(text)
    for text in ("a = = 1\n", "train a on\n", "a $\n", "a = [1\n"):
        for parser in (fast, slow):
            with pytest.raises(UnexpectedInput):
                parser.parse(text)


def test_starting_up_compiles_no_grammar():
    # interegular is here for the strict build alone, and Lark imports it wherever it is; users do not have it.
    unwanted = {"regex", "toml", "xpc.grammar.build", "xpc.grammar.messages"}
    code = f"import sys, xpc.grammar.parse, xpc.grammar.format; print(sorted({unwanted} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
