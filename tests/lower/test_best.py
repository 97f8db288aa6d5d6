"""A wrong evaluation interval is reported by exactly one error. An evaluation before the first step also needs held-out
rows. `extra trl` accepts no deprecated arguments.
"""

import pytest
from case_support import spec
from compile_support import checked, codes, errors
from interpreters import stack_of
from spec_parts import BEST, HELD, extra

from xpc.compiler import stacks
from xpc.compiler.language import extras
from xpc.compiler.language.methods import METHODS

TARGETS = pytest.mark.parametrize("target", stacks.names())


def test_wrong_interval_is_reported_once() -> None:
    for wrong in ("0", "2.5", "100%", "often"):
        found = checked(spec(HELD, f"eval(every={wrong})", extra(BEST)))
        assert len(codes(found)) == 1, (wrong, codes(found))


def test_a_holdout_is_read_by_an_evaluation_at_the_start() -> None:
    assert not codes(checked(spec(HELD, extra("eval_on_start = true"))))
    assert errors(checked(spec("eval(every=epoch)", extra("eval_on_start = true")))) == ["XP501"]


@pytest.mark.parametrize("method", METHODS)
@TARGETS
def test_no_deprecated_name_can_be_written(target: str, method: str) -> None:
    """`extra trl` accepts no deprecated argument. Deprecated values of other arguments have rules of their own (XP607,
    XP608).
    """
    table = stack_of(target)
    fields = table.fields(table.config(method))
    assert not [name for name in extras.legal_names(table, "trl", method) if fields[name].deprecated]
