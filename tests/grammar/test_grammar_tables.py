"""The committed parser tables are what Lark generates from xp.lark. Our parser gives the same result as Lark for every
text.
"""

import os
import random
import subprocess
import sys

import lark
import pytest

from xpc.grammar import build, lalr

EXAMPLES = os.path.join(os.path.dirname(__file__), "examples")


def test_tables_are_fresh():
    with open(build.TABLES, encoding="utf-8") as file:
        assert file.read() == build.tables(strict=False), "run: python -m xpc.grammar.build"


def test_grammar_is_strict():
    pytest.importorskip("interegular", reason="Lark's strict mode needs interegular, of the dev extra")
    build.compile_grammar(strict=True)


def shape(node):
    """Nested node types, locations and texts of a syntax tree. Trees of our parser and of Lark become comparable in
    this form.
    """
    if isinstance(node, lark.Token):
        return (node.type, node.start_pos, node.end_pos, str(node))
    if isinstance(node, lark.Tree):
        location = () if node.meta.empty else (node.meta.start_pos, node.meta.end_pos)
        return (str(node.data), *location, [shape(child) for child in node.children])
    if node.text:
        return (node.kind, node.start, node.end, node.text)
    return (node.kind, *((node.start, node.end) if node.end else ()), [shape(part) for part in node.parts])


def read(parse, text):
    """The tree of a text. For a text with a syntax error: the kind of the unexpected token, its position, and the trees
    of what the parser has read before it.
    """
    try:
        return shape(parse(text))
    except lark.UnexpectedCharacters as error:
        return ("", error.pos_in_stream, list(map(shape, error.state.value_stack)))
    except lark.UnexpectedToken as error:
        end = error.token.type == lalr.END
        location = () if end else (error.token.start_pos,)
        return (error.token.type, *location, list(map(shape, error.state.value_stack)))
    except lalr.UnexpectedToken as error:
        location = () if error.token.kind == lalr.END else (error.token.start,)
        return (error.token.kind, *location, list(map(shape, error.stack)))


def test_reads_every_text_as_lark_does():
    slow, draw = build.compile_grammar(strict=False), random.Random(2026)
    texts = ["", "\n", "a = = 1\n", "train a on\n", "a $\n", "a = [1\n", "on x = 1\n"]
    for name in os.listdir(EXAMPLES):
        with open(os.path.join(EXAMPLES, name), encoding="utf-8") as file:
            text = file.read()
        texts.append(text)
        for _ in range(20):
            at, to = draw.randrange(len(text)), draw.randrange(len(text))
            texts.append(
                text[:at] + draw.choice((*'{}[](),=$"\n x', text[to : to + 9])) + text[at + draw.randrange(3) :]
            )
    for text in texts:
        assert read(lalr.parse, text) == read(slow.parse, text), text


def test_starting_up_compiles_no_grammar():
    unwanted = {"lark", "toml", "xpc.grammar.build", "xpc.grammar.messages"}
    code = f"import sys, xpc.grammar.parse, xpc.grammar.format; print(sorted({unwanted} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
