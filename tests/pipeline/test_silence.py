"""A comment such as `# xpc: allow XP410 reason` silences a finding on the comment's line or in the statement after the
comment. A comment that silences nothing gets a warning.
"""

import json

import pytest
from case_support import spec
from compile_support import SENTENCE, checked, codes, compiled, edited, errors, of, only, put, shown, xpc
from rule_cases import CASES

from xpc.compiler.pipeline.silence import REVIEWED
from xpc.compiler.render import render
from xpc.grammar.diagnostic import ERROR
from xpc.grammar.format import format_file
from xpc.grammar.parse import parse
from xpc.grammar.source import Source

OUTPUT = "# xpc: allow XP410 the cluster has only FSDP1"
WARNED = spec(strategy="fsdp1")


def warned(*more, strategy="fsdp1", before=""):
    """A spec that gets the warning XP410 for its strategy. `before` can put a comment before the strategy."""
    text = spec(*more, strategy=strategy)
    return text.replace("strategy", f"{before}strategy") if before else text


# -- which lines a comment silences -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        warned(strategy=f"fsdp1  {OUTPUT}"),
        warned(before=OUTPUT + "\n"),
        warned(before=OUTPUT + "\n\n# and a word more\n\n"),
        warned(strategy=f"fsdp1  # 8 GPUs  {OUTPUT}"),
        warned(strategy="fsdp1  # xpc:allow xp410: the cluster has only FSDP1"),
        warned(strategy="fsdp1  # xpc: allow XP410 -- the cluster has only FSDP1"),
        warned(strategy=f"fsdp1 {{  {OUTPUT}\n  offload = cpu\n}}"),
        warned(strategy=f"fsdp1 {{\n  offload = cpu\n}}  {OUTPUT}"),
        warned(before=OUTPUT + "\n", strategy="fsdp1 {\n  offload = cpu\n}"),
        warned(strategy="fsdp1  # xpc: allow XP301, XP410 a list, of which the base of others needs the first"),
    ],
)
def test_a_silence_holds_for_its_line_or_the_next_statement(text):
    assert "XP410" in codes(checked(WARNED))
    found = checked(text)
    assert "XP410" not in codes(found), shown(found)
    assert [one.finding.code for one in found.silenced] == ["XP410"]
    assert found.spec is not None


@pytest.mark.parametrize(
    "text",
    [
        warned(strategy=f"fsdp1\n{OUTPUT}"),
        warned(strategy=f"fsdp1\nseed 1  {OUTPUT}"),
        warned().replace("hardware", f"{OUTPUT}\nhardware"),
        warned().replace("hardware", f"hardware 8 x h100-80gb {{  {OUTPUT}\n}}\n#"),
        f"{OUTPUT}\n" + warned(),
        warned(strategy="fsdp1  # xpc: allow XP401 the cluster has only FSDP1"),
        warned(strategy="fsdp1  # as xpc: allow XP410 says"),
    ],
)
def test_a_silence_elsewhere_does_not(text):
    found = checked(text)
    assert "XP410" in codes(found)
    assert not found.silenced


def test_silence_at_the_end_of_a_block_covers_nothing_after_it():
    found = checked(
        warned().replace("strategy fsdp1", f"optimizer adamw {{\n  lr = 1e-5\n  {OUTPUT}\n}}\nstrategy fsdp1")
    )
    assert "XP410" in codes(found)
    assert "XP901" in codes(found)


def test_a_comment_above_a_block_holds_for_what_stands_deep_in_it():
    block = 'save "out" {\n  every = never\n  keep = 2\n}'
    output = "# xpc: allow XP703 the base of others"
    assert codes(checked(spec(save=block))) == ["XP703"]
    assert codes(checked(spec(save=f"{output}\n{block}"))) == []
    assert codes(checked(spec(save=block.replace("  keep", f"  {output}\n  keep")))) == []
    assert codes(checked(spec(save=block.replace("never", f"never  {output}")))) == ["XP703", "XP901"]


def test_assumptions_of_the_header_can_be_silenced():
    found = checked("# xpc: allow XP190 the defaults are what is meant\n" + SENTENCE)
    assert codes(checked(SENTENCE)).count("XP190") == len(found.silenced) > 0
    assert codes(found) == [one for one in codes(checked(SENTENCE)) if one != "XP190"]
    behind = checked(SENTENCE.rstrip() + "  # xpc: allow XP190 the defaults are what is meant\n")
    assert codes(behind) == codes(found)


def test_the_missing_edition_can_be_silenced_on_the_first_line():
    text = spec().removeprefix("xpc 1\n\n")
    assert codes(checked(text)) == ["XP125"]
    assert codes(checked("# xpc: allow XP125 written before editions\n" + text)) == []


# -- bases ------------------------------------------------------------------------------------------------------------


def test_a_comment_of_a_base_silences_what_is_found_in_the_base(tmp_path):
    child = spec(strategy="zero2").replace("strategy zero2\n", "").replace("xpc 1\n", 'xpc 1\nextends "base.xp"\n')
    root = put(tmp_path, {"base.xp": f"strategy fsdp1  {OUTPUT}\n"})
    found = checked(child, root)
    assert codes(found) == []
    assert [one.location.source.name for one in found.silenced] == ["base.xp"]
    put(tmp_path, {"base.xp": "strategy fsdp1\n"})
    assert codes(checked(child + OUTPUT, root)) == ["XP410", "XP901"]


def test_a_base_serves_several_specs_so_that_its_silences_may_idle(tmp_path):
    root = put(tmp_path, {"base.xp": f"strategy fsdp1  {OUTPUT}\nseed 1  # xpc: allow XP410\n"})
    found = checked(spec().replace("xpc 1\n", 'xpc 1\nextends "base.xp"\n'), root)
    assert codes(found) == ["XP902"]
    assert of(found, "XP902")[0].primary.source.name == "base.xp"


# -- findings about the comments --------------------------------------------------------------------------------------


def test_a_silence_that_silences_nothing_is_a_warning():
    text = spec(strategy=f"zero2  {OUTPUT}")
    found = only(checked(text), "XP901")
    assert found.severity == "warning"
    assert edited(text, found) == spec()


def test_one_of_several_codes_is_taken_out_of_the_list():
    for listed, left in (("XP301, XP410", "XP410"), ("XP410, XP301", "XP410"), ("XP410 XP301", "XP410")):
        text = warned(strategy=f"fsdp1  # xpc: allow {listed} old cluster")
        found = checked(text)
        assert codes(found) == ["XP901"], shown(found)
        after = edited(text, found.problems[0])
        assert f"# xpc: allow {left} old cluster" in after
        assert codes(checked(after)) == []


def test_an_error_cannot_be_silenced():
    wrong = spec(batch="gbs=512 micro=11  # xpc: allow XP201 we need it")
    found = checked(wrong)
    assert errors(found) == ["XP201"]
    output = only(found, "XP901")
    assert "is an error" in output.message
    assert output.related[0].span.start == of(found, "XP201")[0].primary.span.start
    assert found.spec is None


def test_idle_silences_are_not_reported_next_to_an_error():
    assert codes(checked(spec("seed -1", strategy=f"zero2  {OUTPUT}"))) == ["XP107"]


@pytest.mark.parametrize(
    ("comment", "message", "help"),
    [
        ("# xpc: allow", "names no code", "# xpc: allow XP410"),
        ("# xpc: allow because", "names no code", "# xpc: allow XP410"),
        ("# xpc: allow fsdp1-deprecated because", "names no code", "# xpc: allow XP410"),
        ("# xpc: allow XP410", "gives no reason", "`# xpc: allow XP410 the reason`"),
        ("# xpc: allow XP410:", "gives no reason", "`# xpc: allow XP410 the reason`"),
        ("# xpc: allow XP410 --", "gives no reason", "`# xpc: allow XP410 the reason`"),
        ("# xpc: allow XP41 because", "no code `XP41`", "write `XP410`"),
        ("# xpc: allow XP4100 because", "no code `XP4100`", "write `XP410`"),
        ("# xpc: allow XP401x because", "no code `XP401X`", "write `XP4"),
        ("# xpc: ignore XP410 because", "`ignore` is not a silence", "write `allow`"),
        ("# xpc: alow XP410 because", "`alow` is not a silence", "write `allow`"),
    ],
)
def test_malformed_silence_is_reported_and_silences_nothing(comment, message, help):
    found = checked(warned(strategy=f"fsdp1  {comment}"))
    assert "XP410" in codes(found)
    output = only(found, "XP902")
    assert output.severity == "warning"
    assert message in output.message
    assert help in (output.help or "")


def test_an_edit_of_a_malformed_silence_makes_it_one():
    for comment in ("# xpc: allow XP4100 because", "# xpc: ignore XP410 because"):
        text = warned(strategy=f"fsdp1  {comment}")
        assert codes(checked(edited(text, only(checked(text), "XP902")))) == []


@pytest.mark.parametrize("comment", ["# xpc: the compiler", "# xpc:", "# the xpc: allow of others", "# xpc is good"])
def test_prose_is_no_silence(comment):
    assert codes(checked(spec(strategy=f"zero2  {comment}"))) == []


def test_the_word_in_a_string_is_no_silence():
    assert codes(checked(spec('track wandb(name="# xpc: allow XP410")'))) == []


# -- the formatter ----------------------------------------------------------------------------------------------------


def formatted(text):
    return format_file(parse(Source("t.xp", text))[0])


@pytest.mark.slow
@pytest.mark.parametrize("above", [True, False], ids=["above", "behind"])
def test_what_is_silenced_stays_so_when_the_spec_is_formatted(above):
    seen, always = set(), {"XP190", "XP125", "XP410"}
    for at, case in enumerate(CASES):
        if at % 2 != above and case.code not in always:
            # half of the cases are tested with the comment above the line, the other half with the comment behind it
            continue
        own = [] if case.files or case.code > "XP9" or case.code in REVIEWED else of(checked(case.rejected), case.code)
        locations = {one.primary.source.position(one.primary.span.start)[0] for one in own if one.severity != ERROR}
        if not locations:
            continue
        lines = case.rejected.split("\n")
        for number in sorted(locations, reverse=True):
            comment = f"# xpc: allow {case.code} it is meant so"
            if above:
                lines.insert(number - 1, comment)
            else:
                lines[number - 1] += "  " + comment
        for version in ("\n".join(lines), formatted("\n".join(lines))):
            found = checked(version)
            left = [one for one in found.problems if one.code in (case.code, "XP901", "XP902")]
            assert not left, f"{version}\n{shown(found)}"
            assert found.silenced
        seen.add(case.code)
    assert always <= seen


# -- formats and --deny -----------------------------------------------------------------------------------------------


def test_only_sarif_lists_what_is_silenced(tmp_path):
    root = put(tmp_path, {"sub/a.xp": warned(strategy=f"fsdp1  {OUTPUT}")})
    outputs = {
        one: xpc("check", "sub/a.xp", "--format", one, cwd=root).stdout.decode()
        for one in ("full", "concise", "github", "json", "sarif")
    }
    assert outputs["full"] == outputs["concise"] == outputs["github"] == ""
    assert json.loads(outputs["json"]) == []
    (result,) = json.loads(outputs["sarif"])["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("XP410", "warning")
    (suppression,) = result["suppressions"]
    assert suppression["kind"] == "inSource"
    assert suppression["justification"] == "the cluster has only FSDP1"
    for location in (suppression["location"], *result["locations"]):
        assert location["physicalLocation"]["artifactLocation"]["uri"] == "sub/a.xp"


def test_sarif_of_findings_without_silences_has_no_suppressions():
    assert '"suppressions"' not in render(checked(WARNED).problems, "sarif")


def test_the_bundle_says_what_was_silenced_and_why():
    page = compiled(warned(strategy=f"fsdp1  {OUTPUT}"))["README.md"].decode()
    assert "Warnings and notes" not in page
    assert "XP410" in page.partition("## Silenced in the spec")[2]
    assert "the cluster has only FSDP1" in page


def test_denied_warnings_fail_the_check_and_stay_warnings(tmp_path):
    root = put(tmp_path, {"warned.xp": WARNED, "note.xp": SENTENCE, "clean.xp": spec()})
    for name, status in (("warned.xp", 1), ("note.xp", 0), ("clean.xp", 0)):
        assert xpc("check", name, cwd=root).returncode == 0
        done = xpc("check", "--deny", "warnings", name, cwd=root)
        assert done.returncode == status
        assert (b"--deny warnings" in done.stdout) is (status == 1)
    (found,) = json.loads(xpc("check", "--deny", "warnings", "--format", "json", "warned.xp", cwd=root).stdout)
    assert found["severity"] == "warning"
    sarif = json.loads(xpc("check", "--deny=warnings", "--format", "sarif", "warned.xp", cwd=root).stdout)
    assert sarif["runs"][0]["results"][0]["level"] == "warning"
    assert xpc("check", "--deny", "notes", "warned.xp", cwd=root).returncode == 2


def test_denied_warnings_write_nothing(tmp_path):
    root = put(tmp_path, {"a.xp": WARNED, "b.xp": warned(strategy=f"fsdp1  {OUTPUT}")})
    done = xpc("compile", "--deny", "warnings", "a.xp", "-o", "out", cwd=root)
    assert done.returncode == 1
    assert b"nothing was written" in done.stdout
    assert not (tmp_path / "out").exists()
    assert json.loads(xpc("compile", "--deny", "warnings", "a.xp", "-o", "out", "--format", "json", cwd=root).stdout)
    assert xpc("compile", "--deny", "warnings", "b.xp", "-o", "out", cwd=root).returncode == 0
