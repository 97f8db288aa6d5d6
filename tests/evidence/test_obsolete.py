"""xpc does not enforce restrictions of other tools that no longer apply. For each restriction, a spec that violates it
is accepted on every stack (or on the stack that the spec names).
"""

import pytest
from compile_support import checked, errors, shown
from rule_table import bans

from xpc.compiler.stacks import STACKS

BANS = bans()
WRITTEN = [(ban, target) for ban in BANS if ban.text for target in ([] if "target=" in ban.text else STACKS) or [None]]


def test_every_ban_of_the_table_is_there():
    assert len(BANS) >= 14
    assert sum(bool(ban.text) for ban in BANS) >= 11
    assert all(ban.restriction and ban.now for ban in BANS)


@pytest.mark.parametrize(("ban", "target"), WRITTEN, ids=[f"{ban.name}-{target}" for ban, target in WRITTEN])
def test_what_is_no_longer_forbidden_is_accepted(ban, target):
    found = checked(ban.text + ("" if target is None else f" target={target}") + "\n")
    assert not errors(found), shown(found)
    assert found.spec is not None
    assert target is None or found.spec.stack.name == target
