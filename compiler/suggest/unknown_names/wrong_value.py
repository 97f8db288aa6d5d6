"""Suggest what to write for a known setting whose value is impossible: `lr = fast`."""

from __future__ import annotations

from xpc.compiler import stacks
from xpc.compiler.language.advisor import Suggestion, UnknownName
from xpc.compiler.language.convert import convert
from xpc.compiler.language.items import Item
from xpc.compiler.language.kinds import FLAG
from xpc.compiler.language.schema import Setting
from xpc.compiler.language.values import InvalidValue
from xpc.compiler.suggest.converted_values import expected, plain
from xpc.compiler.suggest.legal import AUTO, answer, of_another_setting
from xpc.compiler.suggest.no_equivalent import NO_EQUIVALENT, advice, own_reason
from xpc.compiler.suggest.registry_names import hardware_help
from xpc.compiler.suggest.sentence import method_of
from xpc.compiler.suggest.typed_form import typed, weighted_rewards
from xpc.compiler.suggest.unset_values import leave_out, unset_advice
from xpc.grammar.tree import List


def wrong_value(row: Setting, unknown: UnknownName, message: str) -> Suggestion:
    """The suggestion for a known setting with an impossible value. It names the legal values, and inserts nothing in an
    editor.
    """
    assert unknown.node is not None
    text = plain(unknown.node, unknown.typed)
    if row.path == "hardware":
        return Suggestion("XP101", message, help=hardware_help(text))
    if row.path == "method.rewards" and (form := weighted_rewards(unknown)):
        return Suggestion("XP101", message, help=f"write `{form}`", refusing=row.path)
    known = advice(f"{unknown.name} {text}", "") or advice(f"{row.name} {text}", "")
    known = known or (of_another_setting(row, text) if row.choices else "")
    if known:
        return Suggestion("XP101", message, help=known)
    unset = unset_advice(row, text) or (leave_out(row) if text == "auto" and row.path not in AUTO else "")
    if unset:
        return Suggestion("XP101", message, f"did you mean `{row.name}`?", unset)
    reason = own_reason(text if row.kind is FLAG else f"{row.name} {text}")
    reason = reason or (own_reason(f"{unknown.name} path") if "/" in text else None)  # `reward_model = "me/model"`
    if reason is not None:
        return Suggestion("XP101", message, help=NO_EQUIVALENT + reason)
    answered = row.kind.name == "tokens" or isinstance(unknown.node, List)  # `ranks_to_try = [8, 16]` is a sweep
    found = convert(row, Item(row.path, unknown.node, unknown.label)) if answered else None
    help = (answer(found).help or "") if isinstance(found, InvalidValue) else ""
    if help.startswith("several values"):
        return Suggestion("XP101", message, help=help)
    losses = stacks.default().losses(method_of(unknown.label.source.text) or "sft") if row.path == "method.loss" else ()
    listed = f"one of {', '.join(losses)}" if losses else expected(row, unknown.name, text)
    what = help if help.startswith("write ") else listed
    complete = row.choices or losses or ("`" in what and what != row.kind.phrase) or what.startswith("write ")
    such = "" if complete else f", such as `{typed(row, None)}`"
    intended = row.path if row.name == unknown.name else row.name
    help = f"`{row.path}` decides it: {what}{such}"
    return Suggestion("XP101", message, f"did you mean `{intended}`?", help, refusing=row.path)
