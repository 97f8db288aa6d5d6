"""Each rule has a case of two specs. The rule rejects the first spec, and accepts the second spec, which is the most
similar legal spec.
"""

from pathlib import Path

import pytest
from case_support import Case
from compile_support import checked, checked_once, codes, edited, errors, of, placed, shown
from rule_cases import CASES, PREVIEWED, SYNTAX, TESTS, TOPICS, read
from typed_in import leaves_out, typed_in, way_out, ways_out

from tests.golden_diagnostics import golden, kept
from xpc.compiler.explain.examples import example
from xpc.compiler.language import schema
from xpc.compiler.language.codes import CODES
from xpc.compiler.language.expand import expand
from xpc.compiler.language.methods import METHODS
from xpc.compiler.pipeline import Checked
from xpc.compiler.rules import every
from xpc.compiler.stacks import STACKS
from xpc.grammar.diagnostic import ERROR, NOTE, Diagnostic
from xpc.grammar.parse import parse
from xpc.grammar.source import Source

FIRST = {case.code: case for case in reversed(CASES)}
EACH = [pytest.param(case, id=case.title, marks=() if FIRST[case.code] is case else pytest.mark.slow) for case in CASES]
"""The cases of all rules. The fast tier runs the first case of each code, and `make test` runs all. Of the other cases,
the fast tier only compares the messages (tests/pipeline/test_goldens.py).
"""


BESIDE = {"XP208", "XP711"}
"""Codes that a case about data may have in addition to its own code: its data has only one or two rows, far fewer than
a batch needs.
"""


@pytest.fixture
def root(case: Case, tmp_path_factory: pytest.TempPathFactory) -> str:
    return placed(case.files, lambda: tmp_path_factory.mktemp("case"))


def test_no_code_without_a_case():
    missing = {*CODES, *(rule.code for rule in every())} - {case.code for case in CASES} - {*PREVIEWED}
    assert not missing


def test_every_table_is_read():
    tables = {str(path.relative_to(TESTS).with_suffix("")) for path in Path(TESTS).rglob("cases_*.toml")}
    assert tables == {*TOPICS, "language/cases_syntax"}


def test_cases_are_in_the_folder_of_their_rule():
    """Cases of a rule in compiler/rules/saving/ are in tests/rules/saving/, and cases of an engine's rule are in
    tests/engines. Diagnostics that no rule reports have no such folder.
    """
    modules = {rule.code: rule.check.__module__.split(".compiler.")[1].split(".") for rule in every()}
    folders = {code: "/".join(parts[: 2 if parts[0] == "rules" else 1]) for code, parts in modules.items()}
    placed_wrong = {
        f"{case.code} is in {topic}.toml, not in {folders[case.code]}/"
        for topic in TOPICS
        for case in read(topic)
        if case.code in folders and folders[case.code] != topic.rpartition("/")[0]
    }
    assert not placed_wrong


def test_titles_are_unique():
    assert len({case.title for case in CASES}) == len(CASES)


NOT_TYPED = {
    "XP118": "whether the hub has the model is not known",
    "XP119": "what it names is the header's own word",
    "XP131": "it is an argument of the template's own",
    "XP126": "another method trains on other rows",
    "XP126-packing": "another method trains on other rows",
    "XP120-sharding-strategy": "what was written is refused by the strategy's own rule, too: one node is one group",
    "XP107-repository": "the name of a repository is the user's choice",
    "XP107-repository-of-three": "the name of a repository is the user's choice",
    "XP370-other-attention": "the attention is another setting",
    "XP444-of-zero2": "the other way out; zero3 needs the disk's folder beside it",
}
"""Maps the code, or the title, of an error to the reason why a program cannot apply the error's help text to the spec.
"""


@pytest.mark.parametrize("case", EACH)
def test_rejected_gives_exactly_its_code_with_the_way_out_and_accepted_does_not(case: Case, root: str):
    """The rejected spec gets the rule's code, and a complete message, as its golden file has it. The spec compiles
    after the suggested edit, and also after a user has typed the text in the help.
    """
    passes(case, root)
    found = checked_once(case.rejected, root)
    assert case.code in codes(found), shown(found)
    others = {one.code for one in found.problems if one.severity != "note"} - {case.code} - BESIDE
    assert not others, shown(found)
    assert golden(case, found) == kept(case), "`make golden` rewrites it"
    for one in of(found, case.code):
        is_whole(one)
        edit_answers(one, case, found, root)
        help_compiles(one, case, found, root)


def is_whole(one: Diagnostic) -> None:
    assert one.primary is not None
    assert one.message
    assert not one.message.endswith(".")
    assert one.help


def edit_answers(one: Diagnostic, case: Case, found: Checked, root: str) -> None:
    if not one.edits:
        return
    assert one.primary is not None
    after = checked(edited(one.primary.source.text, one), root)
    output = f"the spec once {case.code}'s edit is made:\n{edited(one.primary.source.text, one)}\n{shown(after)}"
    assert case.code not in codes(after), output
    if errors(found) in ([], [case.code]):
        assert after.spec is not None, output


def help_compiles(one: Diagnostic, case: Case, found: Checked, root: str) -> None:
    if one.severity != ERROR or {case.code, case.title} & set(NOT_TYPED):
        return
    if not (one.edits or way_out(one.help) or leaves_out(one.help)):
        return
    after = typed_in(case.rejected, one)
    assert after is not None, f"not a setting: {one.help}"
    again = checked(after, root)
    output = f"the spec once {case.code}'s help is typed in ({one.help}):\n{after}\n{shown(again)}"
    assert case.code not in errors(again) or len(of(found, case.code)) > 1, output
    if len(errors(found)) == 1:
        assert again.spec is not None, output


def passes(case: Case, root: str) -> None:
    found = checked_once(case.accepted, root)
    assert not errors(found), shown(found)
    assert case.code not in codes(found), shown(found)


LEADS_BACK = {
    "XP126": "the help says which rows the other method needs",
    "XP503": "the help says which rows the method needs",
    "XP654": "the help says which rows the other method needs",
    "XP901": "the comment is deleted, and no setting changes",
    "XP542": "`share` has no value that a program can type",
    "XP107-repository": "a program does not know that `name` is in `hub`",
    "XP107-repository-of-three": "a program does not know that `name` is in `hub`",
    "XP535-prompts": "FILE has to be written by the user",
    "XP120-sharding-strategy": NOT_TYPED["XP120-sharding-strategy"],
}
"""Maps the code of a finding, or the title of a case, to the reason why the help of this finding may lead back."""


@pytest.mark.slow
def test_no_help_leads_to_a_finding_whose_help_leads_back(tmp_path: Path):
    """Every solution of every help is typed into the spec. If the new spec has a finding that the spec did not have,
    none of that finding's solutions is the spec from before.
    """
    circles = []
    for case in CASES:
        root = placed(case.files, lambda case=case: tmp_path / case.title)
        before = checked_once(case.rejected, root)
        for one in of(before, case.code):
            if one.severity == NOTE or one.primary is None or one.primary.source.text != case.rejected:
                continue
            for solution, text in ways_out(case.rejected, one).items():
                after = checked(text, root)
                for new in after.problems:
                    known = {new.code, case.title} & {*codes(before), *LEADS_BACK} or new.code < "XP100"
                    if new.severity != NOTE and not known:
                        back = [
                            way for way, spec in ways_out(text, new).items() if values(spec) == values(case.rejected)
                        ]
                        circles += [(case.title, solution, new.code, way) for way in back]
    assert not circles, "\n" + "\n".join(map(str, circles))


def values(text: str) -> dict[str, str]:
    """The settings that a spec states, with their values as they are written."""
    items = expand(parse(source := Source("t.xp", text))[0]).items
    return {path: "" if one.node is None else source.slice(one.node.span) for path, one in items.items()}


def test_what_cannot_be_typed_in_is_a_case():
    assert not set(NOT_TYPED) - {case.code for case in CASES} - {case.title for case in CASES}


def test_enough_diagnostics_carry_an_edit(tmp_path: Path):
    with_edit: set[str] = set()
    for case in CASES:
        found = checked_once(case.rejected, placed(case.files, lambda case=case: tmp_path / case.title))
        with_edit |= {case.code for one in of(found, case.code) if one.edits and one.severity == ERROR}
        if len(with_edit) >= 20:
            return
    pytest.fail(f"only {sorted(with_edit)}")


@pytest.mark.parametrize("case", SYNTAX, ids=[case.title for case in SYNTAX])
def test_an_edit_of_a_syntax_error_answers_it(case: Case):
    for one in of(checked(case.rejected), case.code):
        if one.edits and one.severity == ERROR:
            after = of(checked(edited(case.rejected, one)), case.code)
            assert len(after) < len(of(checked(case.rejected), case.code)), edited(case.rejected, one)


@pytest.mark.parametrize("stack", STACKS)
def test_every_setting_is_checked_on_every_stack(stack: str) -> None:
    """No rule raises an exception because the stack's trainer lacks a method or an argument. For each setting, the
    check gets the setting's example with each method that has the setting. `generations` is always stated, because a
    stack without the method has no default for it.
    """
    head = f"xpc 1\ntrain qwen2.5-0.5b-instruct on deepmath-103k for 3 epochs\ntarget {stack}\nprecision fp32\n"
    for row in schema.TABLE:
        lines = example(row)
        for method in row.methods or ("",):
            first, _, rest = lines.partition("(")
            more = "generations=4, " if method and METHODS[method].grouped and row.name != "generations" else ""
            text = f"method {method}({more}{rest}" if method and first.startswith("method ") else lines
            checked(head + text + "\n")
