"""The formats json, github and sarif, which programs read, are valid."""

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from render_samples import assumed, conflict, divide, label, spelling

from xpc.compiler import __version__
from xpc.compiler.render import render
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.source import Source, Span

SCHEMA = Draft202012Validator(json.loads(Path(__file__).with_name("sarif-2.1.0.json").read_text(encoding="utf-8")))
"""The schema of SARIF 2.1.0, as @microsoft/sarif-multitool-linux 5.7.0 ships it."""


def test_json_has_the_edit_of_an_error() -> None:
    assert json.loads(render([spelling()], "json")) == [
        {
            "code": "XP101",
            "slug": "unknown-name",
            "severity": "error",
            "message": "no setting or choice is called ligre",
            "file": "v100.xp",
            "line": 1,
            "column": 72,
            "end_line": 1,
            "end_column": 77,
            "label": "unknown",
            "help": "liger",
            "related": [],
            "edits": [{"line": 1, "column": 72, "end_line": 1, "end_column": 77, "text": "liger"}],
        }
    ]


def test_json_has_both_places_of_a_finding_or_none() -> None:
    two, none = json.loads(render([assumed(), conflict()], "json"))
    assert two["related"] == [
        {"file": "two.xp", "line": 100, "column": 14, "end_line": 100, "end_column": 23,
         "label": "compute capability 7.0"}
    ]  # fmt: skip
    locations = ("file", "line", "column", "end_line", "end_column", "label", "help")
    assert [none[key] for key in locations] == [None] * 7


def test_json_of_a_span_over_lines_is_exact_and_nothing_is_shortened() -> None:
    source = Source("a.xp", "a {\n  b\n}\n")
    (found,) = json.loads(render([Diagnostic("XP000", "x", "error", "m" * 5000, label(source, "{\n  b\n}"))], "json"))
    assert (found["line"], found["column"], found["end_line"], found["end_column"]) == (1, 3, 3, 2)
    assert len(found["message"]) == 5000


def test_without_findings_the_formats_are_empty() -> None:
    assert render([], "json") == "[]\n"
    assert render([], "github") == ""
    assert render([], "concise") == ""
    (run,) = json.loads(render([], "sarif"))["runs"]
    assert run["results"] == []
    assert run["tool"]["driver"]["rules"] == []


def test_github_commands_have_severity_and_place() -> None:
    assert render([divide(), conflict(), assumed()], "github").splitlines() == [
        "::warning file=two.xp,line=1,endLine=1,col=11,endColumn=15,title=XP301 bf16-needs-ampere::V100 has no bf16"
        "%0Aasked for here%0Atwo.xp:100:14: compute capability 7.0%0Ahelp: precision fp32%0Aprecision fp16",
        "::error file=v100.xp,line=1,endLine=1,col=50,endColumn=57,title=XP201 batch-does-not-divide::"
        "gbs=512 is not micro x accumulation x 8 GPUs%0A512 / (11 x 8) = 5.82%0A"
        "help: the nearest global batches are gbs=440 (accumulation 5) and gbs=528 (accumulation 6)",
        "::notice title=XP701 assumed-hardware::compiled for 8 x h100-80gb",
    ]


def test_github_escapes_so_that_no_text_becomes_a_command() -> None:
    source = Source("a,b:c%\r\n.xp", "gbs\nx")
    found = Diagnostic("XP000", "x", "error", "100%\r\n::set-output name=x::y", Label(source, Span(0, 5)))
    assert render([found], "github") == (
        "::error file=a%2Cb%3Ac%25%0D%0A.xp,line=1,endLine=2,title=XP000 x::100%25%0D%0A::set-output name=x::y\n"
    )


def sarif(*found: Diagnostic) -> Any:
    """Parse a SARIF log, check what every log must have, and return the log's only run."""
    text = render(found, "sarif")
    log = json.loads(text)
    assert set(log) == {"$schema", "version", "runs"}
    assert log["version"] == "2.1.0"
    assert [one.message for one in SCHEMA.iter_errors(log)] == []
    (run,) = log["runs"]
    check_run(run)
    assert render(tuple(reversed(found)), "sarif") == text
    return run


def check_run(run: Any) -> None:
    """Check what the SARIF schema cannot express, for example that the objects have only the keys that we write."""
    assert set(run) == {"tool", "columnKind", "results"}
    assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    driver = run["tool"]["driver"]
    assert driver["name"] == "xpc"
    assert driver["version"] == __version__
    rules = [rule["id"] for rule in driver["rules"]]
    assert len(set(rules)) == len(rules)
    for result in run["results"]:
        assert set(result) <= {"ruleId", "ruleIndex", "level", "message", "locations", "relatedLocations", "fixes"}
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("none", "note", "warning", "error")
        assert isinstance(result["message"]["text"], str)
        related = result.get("relatedLocations", [])
        assert len({location["id"] for location in related}) == len(related)
        for location in result.get("locations", []) + related:
            assert set(location) <= {"id", "physicalLocation", "message"}
            physical = location["physicalLocation"]
            check_uri(physical["artifactLocation"]["uri"])
            check_region(physical["region"])
        for fix in result.get("fixes", []):
            assert len(fix["artifactChanges"]) >= 1
            for change in fix["artifactChanges"]:
                check_uri(change["artifactLocation"]["uri"])
                assert len(change["replacements"]) >= 1
                for replacement in change["replacements"]:
                    check_region(replacement["deletedRegion"])
                    assert isinstance(replacement["insertedContent"]["text"], str)


def check_uri(uri: str) -> None:
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/%:")
    assert set(uri) <= allowed
    assert ":" not in uri.removeprefix("file:")


def check_region(region: Any) -> None:
    assert min(region.values()) >= 1
    start = (region["startLine"], region["startColumn"])
    assert start <= (region["endLine"], region["endColumn"])


def test_sarif_has_the_replacement_of_a_fix() -> None:
    run = sarif(spelling(), divide(), assumed())
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["XP101", "XP201", "XP701"]
    region = {"startLine": 1, "startColumn": 72, "endLine": 1, "endColumn": 77}
    assert run["results"][1] == {
        "ruleId": "XP101",
        "ruleIndex": 0,
        "level": "error",
        "message": {"text": "no setting or choice is called ligre\nhelp: liger"},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": "v100.xp"}, "region": region},
                "message": {"text": "unknown"},
            }
        ],
        "fixes": [
            {
                "description": {"text": "liger"},
                "artifactChanges": [
                    {
                        "artifactLocation": {"uri": "v100.xp"},
                        "replacements": [{"deletedRegion": region, "insertedContent": {"text": "liger"}}],
                    }
                ],
            }
        ],
    }
    assert "locations" not in run["results"][2]


def test_sarif_has_both_places_of_a_finding() -> None:
    (result,) = sarif(conflict())["results"]
    assert result["level"] == "warning"
    (other,) = result["relatedLocations"]
    assert other["physicalLocation"]["region"]["startLine"] == 100


def test_sarif_uris_and_code_points() -> None:
    for name, uri in [
        ("a b:c#?.xp", "a%20b%3Ac%23%3F.xp"),
        ("é.xp", "%C3%A9.xp"),
        ("/x y.xp", "file:///x%20y.xp"),
        ("\udcff.xp", "%FF.xp"),
        ("<stdin>", "%3Cstdin%3E"),
    ]:
        source = Source(name, "\U0001f600 gbs")
        (result,) = sarif(Diagnostic("XP000", "x", "note", "m", label(source, "gbs")))["results"]
        physical = result["locations"][0]["physicalLocation"]
        assert physical["artifactLocation"]["uri"] == uri
        assert physical["region"]["startColumn"] == 3


def test_the_schema_refuses_what_is_no_sarif() -> None:
    log = json.loads(render([spelling()], "sarif"))
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert len(list(SCHEMA.iter_errors(log))) == 1


def test_edits_without_a_place_have_no_file_to_change() -> None:
    found = Diagnostic("XP000", "x", "error", "m", edits=(Edit(Span(0, 1), "y"),))
    assert json.loads(render([found], "json"))[0]["edits"] == []
    assert "fixes" not in sarif(found)["results"][0]
