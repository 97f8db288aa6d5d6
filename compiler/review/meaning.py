"""Reduce a spec to its meaning, which leaves out the positions in its text. Two texts that state the same experiment
have equal meanings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import Checked, check_text
from xpc.compiler.spec import Spec
from xpc.compiler.spec.checked import CheckedSpec
from xpc.grammar.diagnostic import Diagnostic, Label
from xpc.grammar.record import fields
from xpc.grammar.source import Source, Span
from xpc.grammar.tree import Clause, Comment, Setting

PLACES = (Label, Source, Span)


LEAVES = (str, int, float, bytes, type(None))


def plain(node: object, known: dict[int, object] | None = None) -> object:
    """Return a copy of a value without the positions in the text. A record becomes a tuple of its class name and its
    fields, and a mapping becomes a dict.

    For a syntax tree, comments are dropped, and `optimizer adamw lr=1e-5` becomes equal to the same setting in a block.

    `known` maps the identity (`id`) of a record to its converted value. With it, a record that many values share, such
    as the stack of all members of a sweep, is converted only once. The caller must keep these records alive as long as
    it uses `known`.
    """
    if isinstance(node, LEAVES):
        return node
    if isinstance(node, tuple | list):
        return tuple(plain(one, known) for one in node if not isinstance(one, Comment))
    if isinstance(node, Mapping):
        return {name: plain(one, known) for name, one in node.items()}
    if isinstance(node, Clause):
        settings = [one for one in node.operands if isinstance(one, Setting)]
        words = [one for one in node.operands if not isinstance(one, Setting)]
        inside = [*settings, *(node.block.statements if node.block is not None else ())]
        has_block = node.block is not None or len(settings) > 1
        return "Clause", plain(node.head), plain(words), plain(inside), has_block
    kind = type(node)
    if not attrs.has(kind):
        return node
    if known is not None and id(node) in known:
        return known[id(node)]
    # the findings of a checked spec have positions; `meaning` compares them by their messages
    values = (getattr(node, name) for name in fields(Spec if isinstance(node, CheckedSpec) else kind))
    found = (kind.__name__, *(plain(one, known) for one in values if not isinstance(one, PLACES)))
    if known is not None:
        known[id(node)] = found
    return found


def meaning(checked: Checked) -> tuple[object, ...]:
    """The complete result of a check: the resolved spec, the members of its sweep, all findings, and the findings that
    comments silence.
    """
    known: dict[int, object] = {}
    members = [(one.name, plain(one.spec, known), _found(one.spec.problems)) for one in checked.members if one.spec]
    silenced = sorted((one.finding.code, one.finding.message, one.reason) for one in checked.silenced)
    return plain(checked.spec, known), members, _found(checked.problems), silenced


def _found(problems: Iterable[Diagnostic]) -> list[tuple[str, str]]:
    return sorted((one.code, one.message) for one in problems)


def meaning_of(data: bytes, name: str, root: str) -> tuple[object, ...]:
    """The meaning of a spec in the folder `root`. Two texts that resolve to the same experiment have equal meanings."""
    return meaning(check_text(data, name, Workspace(root)))
