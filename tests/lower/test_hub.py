"""The setting `hub`: each of its forms becomes the right arguments on each stack, and `hub` in a spec overrides `hub`
in its base.
"""

from __future__ import annotations

import json

import pytest
from case_support import spec
from compile_support import checked, codes, errors, put, shown

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language.repository_names import fault, nearest_name
from xpc.compiler.lower.arguments import arguments
from xpc.compiler.lower.payload import payload
from xpc.compiler.lower.readme import readme
from xpc.compiler.pipeline import check_text
from xpc.compiler.stacks import Json


def stated(text: str) -> tuple[dict[str, Json], Json]:
    """Return a pair: the trainer's arguments about the hub, and the section `hub` of trainer_args.json."""
    found = checked(text)
    assert found.spec is not None, shown(found)
    plan = payload(found.spec)
    arguments = plan["arguments"]
    assert isinstance(arguments, dict)
    return {name: value for name, value in arguments.items() if "hub" in name}, plan["hub"]


FORMS = [
    'save "out/run" {\n  hub = me/model\n}',
    'save "out/run" {\n  hub = "me/model"\n}',
    'save "out/run" hub=me/model',
    'save "out/run" hub(name=me/model)',
    'save "out/run" {\n  hub {\n    name = "me/model"\n  }\n}',
    'save "out/run"\nhub(name=me/model)',
]


@pytest.mark.parametrize("form", FORMS)
def test_the_forms_say_the_same(form: str) -> None:
    assert stated(spec(save=form)) == stated(spec(save=FORMS[0]))
    assert stated(spec(save=form))[0]["hub_model_id"] == "me/model"


def test_without_a_name_the_folder_gives_it() -> None:
    for form in ('save "data/SmolLM3-Mid" hub', 'save "data/SmolLM3-Mid/"\nhub'):
        arguments, section = stated(spec(save=form))
        assert (arguments["push_to_hub"], arguments["hub_model_id"]) == (True, "SmolLM3-Mid")
        assert section == {"revision": None, "checkpoint_branches": False}
    assert codes(checked(spec(save='save "data/SmolLM3-Mid" hub'))) == ["XP756", "XP757"]
    assert codes(checked(spec(save='save ".." hub'))) == ["XP706", "XP755", "XP757"]


def test_a_name_is_written_once() -> None:
    for twice in ("hub = a\n  hub = b", "hub = a\n  hub(name=b)", "hub(name=a)\n  hub = b"):
        found = errors(checked(spec(save=f'save "out/run" {{\n  {twice}\n}}')))
        assert set(found) == {"XP103"}, twice


@pytest.mark.parametrize(
    ("typed", "form"),
    [
        ("hub", 'hub(name="run", private)'),
        ("hub = me/x", 'hub(name="me/x", private)'),
        ("hub(name=me/x, strategy=end)", 'hub(name="me/x", strategy=end, private)'),
        ("hub = me/x hub(private)", "hub(name=me/x, private)"),
        ("private", "hub(private)"),
    ],
)
def test_each_help_writes_hub_once_with_all_its_settings(typed: str, form: str) -> None:
    """`hub = me/x` with `hub(private)` next to it is refused, so a help that adds a setting repeats the name."""
    found = checked(spec(save=f'save "out/run" {typed}')).problems
    code = {"private": "XP102", "hub = me/x hub(private)": "XP103"}.get(typed, "XP757")
    (help,) = [one.help or "" for one in found if one.code == code]
    assert help.startswith(f"write `{form}`")
    assert "outside" not in help
    assert not errors(checked(spec(save=f'save "out/run" {form}')))


def test_a_child_pushes_elsewhere_or_not_at_all(tmp_path) -> None:
    base = spec(save='save "out/run" hub(name=me/base, private)')
    root = put(tmp_path, {"base.xp": base})
    for line, name, pushes in (("hub = me/child", "me/child", True), ("hub = false", None, False)):
        text = f'xpc 1\nextends "base.xp"\nsave {{\n  {line}\n}}\n'
        found = check_text(text.encode(), "t.xp", Workspace(root))
        assert found.spec is not None, shown(found)
        arguments = payload(found.spec)["arguments"]
        assert (arguments["push_to_hub"], arguments["hub_model_id"]) == (pushes, name)
        assert arguments["hub_private_repo"] is (True if pushes else None)


def test_no_secret_has_a_place() -> None:
    found = checked(spec('save(hub(name=me/model, token="hf_x"))'))
    assert errors(found) == ["XP101"]
    assert codes(checked(spec("extra trl {", '  hub_token = "hf_x"', "}"))) == ["XP121"]
    assert "hf_" not in json.dumps(stated(spec("save(hub=me/model)")))


def test_the_page_says_where_and_what_the_machine_needs() -> None:
    found = checked(spec("save(hub(name=me/model, revision=v1, checkpoint_branches))"))
    assert found.spec is not None
    (row,) = [line for line in readme(found.spec, arguments(found.spec), ()).splitlines() if line.startswith("| hub |")]
    assert "pushes to me/model, branch v1; each checkpoint to its own branch" in row
    assert "a token with write access (HF\\_TOKEN, or hf auth login)" in row


@pytest.mark.parametrize(
    "name", ["a b", "a/b/c", "/a", "a/", "-a", "a.", "a--b", "a..b", "a.git", "ä", "a/-b", "x" * 97, ""]
)
def test_names_that_the_hub_refuses(name: str) -> None:
    assert fault(name)
    assert not fault(nearest_name(name))


@pytest.mark.parametrize("name", ["a", "a/b", "A_b.c-d", "x" * 96, f"{'x' * 90}/{'y' * 96}", "3b-run", "_a_"])
def test_names_that_the_hub_takes(name: str) -> None:
    assert fault(name) == ""
    assert nearest_name(name) == name
