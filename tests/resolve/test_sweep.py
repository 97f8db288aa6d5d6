"""A `sweep` has the right members, with different names and folders. A message about a member says its name."""

import json
import random

import pytest
from case_support import spec
from compile_support import SENTENCE, checked, codes, compiled, edited, errors, of, only, put, shown
from sweep_support import TWO, UNBATCHED, get, swept
from test_equivalences import samples

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language import schema
from xpc.compiler.language.load import load
from xpc.compiler.pipeline.sweep_members import _one
from xpc.compiler.resolve.experiment import resolve
from xpc.compiler.resolve.sweep import OWN, read
from xpc.compiler.rules.core.legality import error_codes
from xpc.grammar.source import Source


def names(text, root=None):
    found = checked(text) if root is None else checked(text, root)
    assert found.members, shown(found)
    return [one.name for one in found.members]


def test_the_grid_is_the_product_of_lists_and_zips_in_the_order_of_the_block():
    found = checked(UNBATCHED + TWO)
    assert [one.name for one in found.members] == [
        "lr=1e-06,gbs=128,micro=16",
        "lr=1e-06,gbs=256,micro=8",
        "lr=2e-06,gbs=128,micro=16",
        "lr=2e-06,gbs=256,micro=8",
    ]
    assert [one.index for one in found.members] == [0, 1, 2, 3]
    output = [tuple(get(one, path) for path in ("optimizer.lr", "batch.gbs", "batch.micro")) for one in found.members]
    assert output == [(1e-6, 128, 16), (1e-6, 256, 8), (2e-6, 128, 16), (2e-6, 256, 8)]
    assert [get(one, "batch.accum") for one in found.members] == [1, 4, 1, 4]


@pytest.mark.parametrize(
    "form",
    [
        "sweep {\n  lr = [1e-6, 2e-6]\n}\n",
        "sweep(lr=[1e-6, 2e-6])\n",
        "sweep lr=[1e-6, 2e-6]\n",
        "sweep {\n  optimizer.lr = [1e-6, 2e-6]\n}\n",
        "sweep {\n  zip(lr=[1e-6, 2e-6])\n}\n",
        "sweep {\n  zip lr=[1e-6, 2e-6]\n}\n",
    ],
)
def test_a_block_a_call_and_a_line_say_the_same(form):
    assert names(spec() + form) == ["lr=1e-06", "lr=2e-06"]


def test_a_sweep_in_the_header_has_its_members():
    assert names(SENTENCE.rstrip() + " sweep(lr=[1e-6, 2e-6])\n") == ["lr=1e-06", "lr=2e-06"]


def test_adding_a_value_renames_no_other():
    before = names(spec(swept("seed = [1, 2]", "lr = [1e-6]")))
    assert set(before) < set(names(spec(swept("seed = [3, 1, 2]", "lr = [5e-6, 1e-6]"))))


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("lr = [1e-6, 0.00002]", ["lr=1e-06", "lr=2e-05"]),
        ("warmup = [3%, 40]", ["warmup=3pct", "warmup=40"]),
        ("betas = [[0.9, 0.95], [0.9, 0.999]]", ["betas=0.9+0.95", "betas=0.9+0.999"]),
        ("epochs = [1, 2.5]", ["epochs=1", "epochs=2.5"]),
        ("steps = [1_000, 2k]", ["steps=1000", "steps=2000"]),
        ("liger = [true, false]", ["liger=true", "liger=false"]),
        ("strategy = [zero2, zero3(offload=cpu)]", ["strategy=zero2", "strategy=zero3+offload-cpu"]),
        ("hardware = [8 x h100-80gb, 16 x h100-80gb]", ["hardware=8xh100-80gb", "hardware=16xh100-80gb"]),
        ("lora = [true, false]", ["lora=true", "lora=false"]),
        ("model = [qwen2.5-3b, Qwen/Qwen2.5-0.5B]", ["model=qwen2.5-3b", "model=Qwen--Qwen2.5-0.5B"]),
        ("nccl = [1]", None),
    ],
)
def test_names_are_the_values_in_one_spelling(line, wanted):
    text = spec(swept(line), batch="micro=16 accum=1", train="qwen2.5-3b on infinity-instruct for 1 epochs")
    text = text.replace("strategy zero2\n", "").replace("hardware 8 x h100-80gb\n", "")
    if wanted is None:
        assert errors(checked(text)) == ["XP101"]
    else:
        assert names(text) == wanted


def test_settings_of_one_name_are_distinguished_by_their_paths():
    text = spec("lora", swept("lora.rank = [8]", "optimizer.rank = [4]"), "optimizer galore_adamw(targets=[q_proj])")
    assert checked(text).problems  # rules refuse galore next to lora, but this test only looks at the names
    grid = read(load(Source("t.xp", text), Workspace("/no-such-folder")))
    assert [path for group in grid.groups for path, _ in group[0].shown] == ["lora.rank", "optimizer.rank"]


def test_names_are_names_of_files_however_odd_the_values_are():
    unexpected = ['"a/b"', '"a-b"', '"a b"', '"ä"', '"' + "x" * 300 + '"', '"$(touch x)"', '".."', '"-rf"']
    found = names(spec("track wandb", swept(f"track.project = [{', '.join(unexpected)}]", "lr = [1e-6]")))
    assert len(set(found)) == len(unexpected)
    for name in found:
        assert len(name) <= 120
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.+=,")


def stated(text, pick=False):
    loaded = load(Source("t.xp", text), Workspace("/no-such-folder"))
    if pick:
        grid = read(loaded)
        assert not grid.problems, (text, grid.problems)
        (group,) = grid.groups
        loaded = _one(loaded, grid, (group[0],), "")
    found, problems = resolve(loaded, Workspace("/no-such-folder"), error_codes)
    if found is None or any(one.severity == "error" for one in problems):
        return None
    return {path: one.value for path, one in found.values.items()}


@pytest.mark.slow
def test_every_setting_is_swept_as_it_is_written():
    seen = 0
    for row, written in samples():
        if {row.path, row.path.partition(".")[0]} & set(OWN) and not row.path.startswith(("save.", "track.", "data.")):
            continue
        # a value of such a setting is itself a list
        if row.path in OWN or (row.kind.name == "choices" and not row.head):
            continue
        on = "alpaca" if row.path == "data.prompt" else "infinity-instruct"
        method = f" with {row.methods[0]}" if row.methods and "sft" not in row.methods else ""
        head = f"train qwen2.5-3b on {on}{method}\n"
        if row.kind.name == "choices" or row.head:
            plainly = f"{row.path} {written}\n"
        else:
            outer = row.path.split(".")
            plainly = f"{outer[-1]}={written}"
            for part in reversed(outer[:-1]):
                plainly = f"{part}({plainly})"
            plainly += "\n"
        wanted = stated(head + plainly)
        if wanted is not None:
            assert stated(head + swept(f"{row.path} = [{written}]"), True) == wanted, row.path
            seen += 1
    assert seen > 150


def test_a_value_knows_its_place_in_the_list():
    text = spec(swept("lr = [1e-6,", "    2e-6]"))
    second = checked(text).members[1].spec
    label = second.values["optimizer.lr"].origin.label
    assert text[label.span.start : label.span.end] == "2e-6"
    assert second.values["optimizer.lr"].origin.describe() == "t.xp:12"


# -- findings ---------------------------------------------------------------------------------------------------------


def test_refused_value_is_reported_once_at_the_value():
    text = UNBATCHED + swept("micro = [16, 17]", "lr = [1e-6, 2e-6, 3e-6]", before="batch gbs=128\n")
    found = checked(text)
    one = only(found, "XP201")
    assert text[one.related[0].span.start : one.related[0].span.end] == "17"
    assert "member" not in one.message
    assert errors(found) == ["XP201"]
    assert found.spec is None
    assert not found.members


def test_what_two_values_are_wrong_for_together_shows_both():
    text = UNBATCHED + swept("gbs = [128, 256]", "micro = [16, 32]", before="")
    found = checked(text)
    one = only(found, "XP201")
    # The message shows the values of `gbs` and `micro`, which identify the member, so it need not name the member.
    assert "member" not in one.message


def test_what_is_wrong_in_some_members_alone_names_them():
    text = UNBATCHED + swept("nodes = [1, 2, 3]", "seed = [1, 2]", before="batch gbs=128 micro=16\n")
    first, second = of(checked(text), "XP201")
    assert first.message.endswith("16 GPUs (members nodes=2,seed=1, nodes=2,seed=2)")
    assert second.message.endswith("24 GPUs (members nodes=3,seed=1, nodes=3,seed=2)")


def test_findings_that_differ_in_each_member_do_not_fill_the_screen():
    seeds = ", ".join(str(one) for one in range(1, 41))
    gbs = ", ".join(str(8 * one) for one in range(1, 41))
    found = checked(spec(swept(f"zip {{\n seed = [{seeds}]\n gbs = [{gbs}]\n }}"), batch=""))
    notes = of(found, "XP190")
    assert len(notes) <= 4, shown(found)
    assert "more members have similar messages" in notes[-1].message


def test_a_name_of_several_clauses_is_answered_with_each_of_its_paths():
    reported = {"every": "`method.sync_reference.every`, `eval.every`, `save.every` or `track.every`",
            "rank": "`optimizer.rank` or `lora.rank`"}  # fmt: skip
    for name, paths in reported.items():
        found = only(checked(spec(swept(f"{name} = [1]"))), "XP101")
        assert sorted(found.help.replace(" or ", ", ").removeprefix("write ").split(", ")) == sorted(
            paths.replace(" or ", ", ").split(", ")
        )


def test_the_same_words_at_two_places_are_two_findings(tmp_path):
    row = '{"messages": [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "4"}]}\n'
    root = put(tmp_path, {"a.jsonl": row * 2, "b.jsonl": row * 2})
    data = 'data both {\n "a.jsonl" { take = 9 }\n "b.jsonl" { take = 9 }\n}'
    text = spec(data, swept("lr = [1e-6, 2e-6]"), train="qwen2.5-3b on both for 3 epochs")
    first, second = of(checked(text, root), "XP555")
    assert first.message == second.message
    assert first.primary.span != second.primary.span


def test_note_of_every_member_is_reported_once():
    found = checked(spec(swept("lr = [1e-6, 2e-6, 3e-6]"), save=""))
    assert codes(found) == ["XP190"]
    assert "member" not in only(found, "XP190").message


def test_an_edit_at_a_value_writes_a_value():
    text = spec(swept('lr = [1e-6, "2e-6"]', "strategy = [zero2, zreo2]"), strategy="zero2")
    text = text.replace("strategy zero2\n", "")
    found = checked(text)
    for code in ("XP104", "XP106"):
        text = edited(checked(text).problems[0].primary.source.text, only(checked(text), code))
    # the edit corrects `zreo2` to `zero2`, so two members are the same run, which is a warning
    assert [one.severity for one in checked(text).problems] == ["warning"], shown(checked(text))
    assert set(errors(found)) == {"XP104", "XP106"}


def test_an_edit_of_the_length_writes_a_number():
    text = spec(swept("train.epochs = [0, 3]"), train="qwen2.5-3b on infinity-instruct")
    assert only(checked(text), "XP202").help == "write `3`"
    assert "[3, 3]" in edited(text, only(checked(text), "XP202"))


def test_all_errors_are_reported_in_one_run():
    found = checked(
        spec(
            swept(
                "lr = [fast]",
                "rank = [1]",
                "gbs = 5",
                "zip {\n}",
                "save = []",
                "seed = [1]",
                "seed = [2]",
                "moon = [1]",
            )
        )
    )
    assert sorted(errors(found)) == ["XP101", "XP101", "XP103", "XP104", "XP880", "XP880", "XP882"]


def test_wrong_values_are_reported_once_and_make_no_member():
    found = checked(spec(swept("lr = [fast, slow]", "zip {\n    gbs = [128, half]\n    micro = [big, 8]\n  }")))
    assert errors(found) == ["XP104"] * 4, shown(found)


@pytest.mark.parametrize("path", sorted({row.path for row in schema.TABLE if row.path.startswith("launch")} | set(OWN)))
def test_what_is_the_sweeps_own_is_not_swept(path):
    found = checked(spec(swept(f"{path} = [1]")))
    assert "XP882" in errors(found), shown(found)


def test_a_silence_that_one_member_uses_is_used():
    text = spec(swept("lr = [1e-6]", "strategy = [zero2, fsdp1]"), strategy="zero2").replace("strategy zero2\n", "")
    found = [one for one in checked(text).problems if one.severity == "warning"]
    assert found, "fsdp1 must cause a warning"
    silenced = text.replace("strategy = [", f"strategy = [  # xpc: allow {found[0].code} the cluster has it\n").replace(
        "zero2, fsdp1]", "zero2, fsdp1]"
    )
    quiet = checked(silenced)
    assert found[0].code not in codes(quiet), shown(quiet)
    assert "XP901" not in codes(quiet), shown(quiet)
    assert [len(one.spec.silenced) for one in quiet.members] == [0, 1]


@pytest.mark.slow
def test_hostile_bodies_are_refused_and_break_nothing():
    random_ = random.Random(5)
    parts = ["lr", "=", "[", "]", "1e-6", ",", "zip", "{", "}", "\n", "x", '"a"', "8 x cpu", "sweep", "model", "(", ")",
             "a/b", "5%", "true", "strategy", "zero2"]  # fmt: skip
    for _ in range(300):
        body = " ".join(random_.choice(parts) for _ in range(random_.randrange(1, 14)))
        found = checked(spec(f"sweep {{\n  {body}\n}}"))
        assert found.spec is not None or errors(found), body


def test_settings_of_a_broken_line_are_not_assumed():
    found = checked(UNBATCHED + swept("zip {", "  gbs = [128, 256]", "  micro = [16]", "}"))
    assert codes(found) == ["XP881"], shown(found)
    assert only(found, "XP881").message.endswith("these have 2 and 1 value")


# -- bases ------------------------------------------------------------------------------------------------------------

BASE = {"base.xp": spec("seed 7", swept("lr = [1e-6, 2e-6]", "weight_decay = [0, 0.1]"))}


def test_sweep_over_a_setting_of_the_base_has_no_finding(tmp_path):
    root = put(tmp_path, {"base.xp": spec("seed 7")})
    found = checked('xpc 1\nextends "base.xp"\nsweep {\n  seed = [1, 2]\n}\n', root)
    assert [get(one, "seed") for one in found.members] == [1, 2]
    assert not found.problems, shown(found)


def test_a_child_inherits_a_sweep_and_may_state_what_it_varies(tmp_path):
    root = put(tmp_path, BASE)
    assert len(names('xpc 1\nextends "base.xp"\n', root)) == 4
    child = checked('xpc 1\nextends "base.xp"\noptimizer adamw(lr=5e-6)\n', root)
    assert [one.name for one in child.members] == ["weight_decay=0", "weight_decay=0.1"], shown(child)
    assert {get(one, "optimizer.lr") for one in child.members} == {5e-6}


def test_a_child_that_states_all_of_it_is_one_run(tmp_path):
    root = put(tmp_path, BASE)
    found = checked('xpc 1\nextends "base.xp"\noptimizer adamw(lr=5e-6, weight_decay=0.2)\n', root)
    assert found.spec is not None, shown(found)
    assert (found.members, found.spec.get("save")) == ((), "out/run")


def test_childs_sweep_replaces_the_complete_sweep_of_its_base(tmp_path):
    root = put(tmp_path, BASE)
    found = checked('xpc 1\nextends "base.xp"\nsweep {\n  lr = [3e-6]\n}\n', root)
    assert [one.name for one in found.members] == ["lr=3e-06"]
    assert get(found.members[0], "optimizer.weight_decay") == 0


def test_an_adapter_of_the_sweep_takes_the_place_of_the_bases(tmp_path):
    root = put(tmp_path, {"base.xp": spec("lora")})
    found = checked('xpc 1\nextends "base.xp"\nsweep {\n  qlora = [true]\n}\n', root)
    assert [(one.spec.flag("lora"), one.spec.flag("qlora")) for one in found.members] == [(False, True)], shown(found)


# -- members are independent ------------------------------------------------------------------------------------------


def test_folders_and_runs_are_called_after_their_members():
    found = checked(spec('track wandb(name="scan")', swept("lr = [1e-6, 2e-6]")))
    assert [get(one, "save") for one in found.members] == ["out/run/lr=1e-06", "out/run/lr=2e-06"]
    assert [get(one, "track.name") for one in found.members] == ["scan-lr-1e-06", "scan-lr-2e-06"]
    unnamed = compiled(spec("track wandb", swept("lr = [1e-6, 2e-6]")))
    named = [json.loads(data)["arguments"]["run_name"] for path, data in unnamed.items() if path.endswith("args.json")]
    assert named == ["t-lr-1e-06", "t-lr-2e-06"]


def test_members_push_to_branches_of_one_repository():
    found = checked(spec(swept("lr = [1e-6, 2e-6]"), save='save "out/run" {\n  hub(private)\n}'))
    assert {get(one, "save.hub.name") for one in found.members} == {"run"}, shown(found)
    assert [get(one, "save.hub.revision") for one in found.members] == ["lr-1e-06", "lr-2e-06"]


def test_branches_that_members_share_are_found_and_others_are_not():
    hub = 'save "out/run" {{\n  hub(private{})\n}}'
    shared = checked(spec(swept("lr = [1e-6, 2e-6]", "save.hub.revision = [a, b]"), save=hub.format("")))
    assert only(shared, "XP886").message == "4 members push to 2 branches"
    apart = checked(spec(swept("save.hub.name = [me/a, me/b]"), save=hub.format(', revision="v1"')))
    assert len(apart.members) == 2, shown(apart)


# -- many -------------------------------------------------------------------------------------------------------------

HUNDREDS = ", ".join(f"{one}e-8" for one in range(1, 101))


@pytest.mark.slow
def test_a_thousand_members_are_checked_with_names_of_their_own():
    found = checked(spec(swept(f"lr = [{HUNDREDS}]", f"seed = [{', '.join(map(str, range(10)))}]")))
    assert len({one.name for one in found.members}) == 1000
    assert len({get(one, "save") for one in found.members}) == 1000
    assert not found.problems


@pytest.mark.slow
def test_rows_of_the_data_are_read_once_for_all(tmp_path, monkeypatch):
    from xpc.compiler.files.workspace import Workspace as Files

    row = '{"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}\n'
    root = put(tmp_path, {"rows.jsonl": row * 200})
    calls = []
    real = Files._read
    monkeypatch.setattr(Files, "_read", lambda self, *rest: (calls.append(rest[0]), real(self, *rest))[1])
    found = checked(spec(swept(f"lr = [{HUNDREDS}]"), train='qwen2.5-3b on "rows.jsonl" for 3 epochs'), root)
    assert len(found.members) == 100, shown(found)
    assert calls.count("rows.jsonl") == 1
