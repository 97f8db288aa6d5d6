"""Turn the syntax tree of a file into a flat list of items: `save "out" { keep = 2 }` becomes the items `save` and
`save.keep`, each with its value.
"""

from __future__ import annotations

from functools import partial

from xpc.compiler.language.advisor import Advisor, GetAdvisor
from xpc.compiler.language.expand.clauses import Clauses, Operand
from xpc.compiler.language.expand.data_block import read_data
from xpc.compiler.language.expand.header import read_options
from xpc.compiler.language.items import ParsedFile
from xpc.grammar.tree import Clause, File, Name, Train

BUDGETS = {"epoch": "train.epochs", "epochs": "train.epochs", "step": "train.steps", "steps": "train.steps"}


def expand(file: File, evaluated: frozenset[str] = frozenset(), advisor: GetAdvisor = Advisor) -> ParsedFile:
    """Turn one file into items. The result contains the items and the findings. The file's bases (`extends`) are not
    read.

    `evaluated` lists the titles of the `data` blocks for evaluation; a block with another title is the training data.
    `advisor` suggests corrections of mistakes.
    """
    clauses = Clauses(file, advisor, {"data": partial(read_data, evaluated), "extra": _extra})
    if file.train is not None:
        _header(clauses, file.train)
    for statement in file.statements:
        clauses.statement(statement, None)
    return clauses.out


def _header(clauses: Clauses, train: Train) -> None:
    if train.budget is not None:
        unit = train.budget.unit
        if unit.text in BUDGETS:
            clauses.add(BUDGETS[unit.text], train.budget.amount, train.budget.span)
        else:
            help, edit = clauses.advisor().length(train.budget.amount.text, unit.text)
            message = f"a run lasts epochs or steps, not `{unit.text}`"
            clauses.problem("XP105", message, unit.span, help=help, edit=edit)
    clauses.header = True
    read_options(clauses, train.options)
    clauses.header = False


def _extra(clauses: Clauses, name: Name, body: list[Operand | Clause]) -> None:
    # imported here, because only a spec with an `extra` block needs it
    from xpc.compiler.language.expand.extra_block import extra

    extra(clauses, name, body)
