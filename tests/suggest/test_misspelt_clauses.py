"""If the name of a clause is misspelt in any small way, there is a finding. This holds for every form in which the
clause's settings can be written.
"""

from __future__ import annotations

import pytest
from compile_support import checked

from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.render import render

CLAUSES = sorted({path.partition(".")[0] for path in BY_PATH} | {"extends", "extra"})
FORMS = ("{ lr = [1e-5, 2e-5] }", "{ seed = 1 }", "(lr=[1e-5, 2e-5])", "", "= 1")
HEADER = "xpc 1\ntrain qwen2.5-0.5b on alpaca for 1 epochs\n"


def misspelt(word: str) -> set[str]:
    """The misspellings of a name. In each, one letter is left out, doubled, replaced, or swapped with the next letter,
    or an ending is added.
    """
    out = {word + "s", word.capitalize()}
    for at in range(len(word)):
        before, after = word[:at], word[at + 1 :]
        out |= {before + after, before + word[at] * 2 + after, before + "e" + after}
        out.add(before + after[:1] + word[at] + after[1:])
    return out - {word, ""}


@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES)
def test_misspelt_clauses_are_findings(clause: str) -> None:
    for word in sorted(misspelt(clause)):
        found = checked(f"{HEADER}{word} {FORMS[len(word) % len(FORMS)]}\n")
        render(found.problems, "full")
        if clause == "sweep":
            for form in FORMS:
                assert checked(f"{HEADER}{word} {form}\n").problems, (word, form)


@pytest.mark.parametrize("header", ["alpaca", '"rows.jsonl"'])
@pytest.mark.parametrize(
    "block",
    ["data({})", "data {}", "data {{ {} }}", "data({}, shuffle=false)", "data {} {{ seed = 3 }}", "data({}, unique)"],
)
@pytest.mark.parametrize(("typed", "setting"), [("streming", "streaming"), ("shufle", "shuffle"), ("uniqe", "unique")])
def test_a_misspelt_setting_is_not_the_name_of_a_block(header: str, block: str, typed: str, setting: str) -> None:
    text = f"xpc 1\ntrain qwen2.5-0.5b on {header} for 10 steps\n{block.format(typed)}\n"
    (found,) = (one for one in checked(text).problems if one.edits)
    assert (found.code, found.help) == ("XP101", f"write `{setting}`")


@pytest.mark.parametrize("block", ['data streams { "rows.jsonl" }', 'data chats { "rows.jsonl", shuffle = false }'])
def test_a_block_with_sources_keeps_its_name(block: str) -> None:
    found = checked(f"xpc 1\ntrain qwen2.5-0.5b on alpaca for 10 steps\n{block}\n").problems
    assert "XP119" in [one.code for one in found]
    name = block.split()[1]
    text = f"xpc 1\ntrain qwen2.5-0.5b on {name} for 10 steps\n{block}\n"
    assert not {"XP101", "XP119"} & {one.code for one in checked(text).problems}
