"""Random syntax trees for the property tests. Without its source locations, a tree can be compared with another tree of
the same meaning.
"""

from attrs import evolve, fields_dict, has
from hypothesis import strategies as st

from xpc.grammar.checks import WORDS
from xpc.grammar.source import Source, Span
from xpc.grammar.tree import (
    Block,
    Budget,
    Call,
    Clause,
    Count,
    File,
    List,
    Name,
    Number,
    Ref,
    Setting,
    String,
    Train,
)

HERE = Span(0, 0)
PART = st.text("abz019_.-", min_size=1, max_size=6)


def _plain(text):
    return text not in WORDS


names = st.from_regex(r"\A[a-z_][a-z0-9_.\-]{0,6}\Z").filter(_plain)
name = names.map(lambda text: Name(HERE, text))
numbers = st.sampled_from(
    [
        ("528", 528, None),
        ("1_000", 1000, None),
        ("1e-5", 1e-5, None),
        ("10%", 10, "%"),
        ("-1", -1, None),
        ("32Ki", 32, "Ki"),
    ]
).map(lambda each: Number(HERE, *each))
strings = st.text("ab\"\\\n\t# {}[]()'é", max_size=8).map(lambda text: String(HERE, text))


@st.composite
def references(draw):
    base = (
        draw(names)
        if draw(st.booleans())
        else f"{draw(st.from_regex(r'[a-z0-9_][a-z0-9_.-]{0,4}', fullmatch=True))}/{draw(PART)}"
    )
    split = draw(st.none() | PART)
    piece = draw(st.none() | st.sampled_from(["20%", "1000"])) if split is not None else None
    return Ref(HERE, base, draw(st.none() | PART), split, piece, draw(st.none() | PART))


words = names.map(lambda text: Ref(HERE, text))
counts = st.builds(Count, st.just(HERE), numbers, references())
values = st.recursive(
    numbers | strings | references() | counts,
    lambda inner: (
        st.builds(List, st.just(HERE), st.lists(inner, max_size=4).map(tuple))
        | st.builds(
            Call,
            st.just(HERE),
            name,
            st.lists(inner | st.builds(Setting, st.just(HERE), name, inner), max_size=3).map(tuple),
        )
    ),
    max_leaves=6,
)
settings = st.builds(Setting, st.just(HERE), name, values)
calls = values.filter(lambda value: isinstance(value, Call))
operands = st.lists(settings | values.filter(lambda value: not isinstance(value, List)), max_size=4).map(tuple)


def _clauses(inner):
    blocks = st.none() | st.builds(Block, st.just(HERE), inner)
    return st.builds(Clause, st.just(HERE), references() | strings | calls, operands, blocks)


statements = st.recursive(
    settings | _clauses(st.just(())),
    lambda inner: settings | _clauses(st.lists(inner, max_size=3).map(tuple)),
    max_leaves=5,
)
budgets = st.builds(Budget, st.just(HERE), numbers, name)
trains = st.builds(Train, st.just(HERE), references() | strings, references() | strings, st.none() | budgets, operands)
files = st.builds(
    File,
    st.just(HERE),
    st.just(Source("made.xp", "")),
    st.none() | st.just(Number(HERE, "1", 1)),
    st.none() | strings,
    st.none() | trains,
    st.lists(statements, max_size=4).map(tuple),
)


def meaning(node):
    """A copy of the node without source locations. All settings of a clause are in its block, because the formatter may
    move them there from the clause's line.
    """
    if isinstance(node, tuple):
        return tuple(meaning(each) for each in node)
    if not has(type(node)):
        return node
    if isinstance(node, Clause):
        moved = tuple(each for each in node.operands if isinstance(each, Setting))
        if moved and (node.block is not None or len(moved) > 1):
            inside = moved + (node.block.statements if node.block else ())
            kept = tuple(each for each in node.operands if not isinstance(each, Setting))
            node = evolve(node, operands=kept, block=Block(HERE, inside))
    return (
        type(node).__name__,
        *(
            meaning(getattr(node, field))
            for field in fields_dict(type(node))
            if field not in ("span", "source", "comments")
        ),
    )


def one_line(node):
    """A statement or value as text on one line, also with its block. The tests' own code writes this text, because the
    formatter is what they test.
    """
    match node:
        case Setting():
            return f"{node.name.text} = {one_line(node.value)}"
        case Clause():
            words = [one_line(each) for each in (node.head, *node.operands)]
            if node.block is not None:
                words.append("{" + ",".join(one_line(each) for each in node.block.statements) + "}")
            return " ".join(words)
        case List():
            return "[" + ", ".join(map(one_line, node.items)) + "]"
        case Call():
            return f"{node.name.text}({', '.join(map(one_line, node.args))})"
        case Count():
            return f"{node.n.text} x {one_line(node.what)}"
        case Ref():
            piece = "" if node.slice is None else f":{node.slice}"
            marks = ((":", node.config, ""), ("[", node.split and node.split + piece, "]"), ("@", node.revision, ""))
            return node.name + "".join(f"{left}{text}{right}" for left, text, right in marks if text is not None)
        case String():
            escaped = node.value.translate({92: "\\\\", 34: '\\"', 10: "\\n", 9: "\\t"})
            return f'"{escaped}"'
        case _:
            return node.text
