"""Sweeps: the grid, the names and places of its values, what is told of its members, the folder and its scripts."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tomllib
from hashlib import sha256

import pytest
from case_support import spec
from compile_support import SENTENCE, checked, codes, compiled, edited, errors, of, only, put, shown, tree, xpc
from test_language import samples

from xpc.compiler.bundle import BundleError, write
from xpc.compiler.files import Workspace
from xpc.compiler.language import schema
from xpc.compiler.language.load import load
from xpc.compiler.resolve.resolve import resolve
from xpc.compiler.resolve.sweep import OWN, read
from xpc.compiler.resolve.sweep_member import plain_name
from xpc.compiler.resolve.sweep_members import _one
from xpc.grammar.source import Source

SHELLCHECK = os.path.join(os.path.dirname(sys.executable), "shellcheck")
TWO = "sweep {\n  lr = [1e-6, 2e-6]\n  zip {\n    gbs = [128, 256]\n    micro = [16, 8]\n  }\n}\n"
UNBATCHED = spec().replace("batch gbs=128 micro=16 seq=1024\n", "batch seq=1024\n")


def swept(*lines, before=""):
    return before + "\n".join(["sweep {", *(f"  {line}" for line in lines), "}"]) + "\n"


def names(text, root=None):
    found = checked(text) if root is None else checked(text, root)
    assert found.members, shown(found)
    return [one.name for one in found.members]


def get(member, path):
    return member.spec.get(path)


def test_the_grid_is_the_product_of_lists_and_zips_in_the_order_of_the_block():
    found = checked(UNBATCHED + TWO)
    assert [one.name for one in found.members] == [
        "lr=1e-06,gbs=128,micro=16",
        "lr=1e-06,gbs=256,micro=8",
        "lr=2e-06,gbs=128,micro=16",
        "lr=2e-06,gbs=256,micro=8",
    ]
    assert [one.index for one in found.members] == [0, 1, 2, 3]
    said = [tuple(get(one, path) for path in ("optimizer.lr", "batch.gbs", "batch.micro")) for one in found.members]
    assert said == [(1e-6, 128, 16), (1e-6, 256, 8), (2e-6, 128, 16), (2e-6, 256, 8)]
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


def test_a_sweep_in_the_header():
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


def test_settings_of_one_name_are_told_apart_by_their_paths():
    text = spec("lora", swept("lora.rank = [8]", "optimizer.rank = [4]"), "optimizer galore_adamw(targets=[q_proj])")
    assert checked(text).problems  # galore beside lora is refused; the names are what is looked at
    grid = read(load(Source("t.xp", text), Workspace("/no-such-folder")))
    assert [path for group in grid.groups for path, _ in group[0].shown] == ["lora.rank", "optimizer.rank"]


def test_names_are_names_of_files_however_odd_the_values_are():
    odd = ['"a/b"', '"a-b"', '"a b"', '"ä"', '"' + "x" * 300 + '"', '"$(touch x)"', '".."', '"-rf"']
    found = names(spec("track wandb", swept(f"track.project = [{', '.join(odd)}]", "lr = [1e-6]")))
    assert len(set(found)) == len(odd)
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
    found, problems = resolve(loaded, Workspace("/no-such-folder"))
    if found is None or any(one.severity == "error" for one in problems):
        return None
    return {path: one.value for path, one in found.values.items()}


def test_every_setting_is_swept_as_it_is_written():
    seen = 0
    for row, written in samples():
        if {row.path, row.path.partition(".")[0]} & set(OWN) and not row.path.startswith(("save.", "track.", "data.")):
            continue
        if row.path in OWN:
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


def test_what_a_value_is_refused_for_is_said_once_at_the_value():
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
    assert "member" not in one.message  # both values are shown


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
    assert "more have the like" in notes[-1].message


def test_a_name_of_several_clauses_is_answered_with_each_of_its_paths():
    told = {"every": "`method.sync_reference.every`, `eval.every`, `save.every` or `track.every`",
            "rank": "`optimizer.rank` or `lora.rank`"}  # fmt: skip
    for name, paths in told.items():
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


def test_a_note_of_every_member_is_said_once():
    found = checked(spec(swept("lr = [1e-6, 2e-6, 3e-6]"), save=""))
    assert codes(found) == ["XP190"]
    assert "member" not in only(found, "XP190").message


def test_an_edit_at_a_value_writes_a_value():
    text = spec(swept('lr = [1e-6, "2e-6"]', "strategy = [zero2, zero9]"), strategy="zero2")
    text = text.replace("strategy zero2\n", "")
    found = checked(text)
    for code in ("XP104", "XP106"):
        text = edited(checked(text).problems[0].primary.source.text, only(checked(text), code))
    assert [one.severity for one in checked(text).problems] == ["warning"], shown(checked(text))  # zero2 twice
    assert set(errors(found)) == {"XP104", "XP106"}


def test_all_that_is_wrong_is_said_in_one_run():
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


@pytest.mark.parametrize("path", sorted({row.path for row in schema.TABLE if row.path.startswith("launch")} | set(OWN)))
def test_what_is_the_sweeps_own_is_not_swept(path):
    found = checked(spec(swept(f"{path} = [1]")))
    assert "XP882" in errors(found), shown(found)


def test_a_silence_that_one_member_uses_is_used():
    text = spec(swept("lr = [1e-6]", "strategy = [zero2, fsdp1]"), strategy="zero2").replace("strategy zero2\n", "")
    found = [one for one in checked(text).problems if one.severity == "warning"]
    assert found, "fsdp1 gives a warning"
    silenced = text.replace("strategy = [", f"strategy = [  # xpc: allow {found[0].code} the cluster has it\n").replace(
        "zero2, fsdp1]", "zero2, fsdp1]"
    )
    quiet = checked(silenced)
    assert found[0].code not in codes(quiet), shown(quiet)
    assert "XP901" not in codes(quiet), shown(quiet)
    assert [len(one.spec.silenced) for one in quiet.members] == [0, 1]


def test_hostile_bodies_are_refused_and_break_nothing():
    random_ = random.Random(5)
    parts = ["lr", "=", "[", "]", "1e-6", ",", "zip", "{", "}", "\n", "x", '"a"', "8 x cpu", "sweep", "model", "(", ")",
             "a/b", "5%", "true", "strategy", "zero2"]  # fmt: skip
    for _ in range(300):
        body = " ".join(random_.choice(parts) for _ in range(random_.randrange(1, 14)))
        found = checked(spec(f"sweep {{\n  {body}\n}}"))
        assert found.spec is not None or errors(found), body


def test_what_a_broken_line_would_have_said_is_not_assumed():
    found = checked(UNBATCHED + swept("zip {", "  gbs = [128, 256]", "  micro = [16]", "}"))
    assert codes(found) == ["XP881"], shown(found)
    assert only(found, "XP881").message.endswith("these have 2 and 1 value")


# -- bases ------------------------------------------------------------------------------------------------------------

BASE = {"base.xp": spec("seed 7", swept("lr = [1e-6, 2e-6]", "weight_decay = [0, 0.1]"))}


def test_a_sweep_over_what_a_base_states_is_not_told(tmp_path):
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


def test_a_childs_sweep_replaces_its_bases_whole(tmp_path):
    root = put(tmp_path, BASE)
    found = checked('xpc 1\nextends "base.xp"\nsweep {\n  lr = [3e-6]\n}\n', root)
    assert [one.name for one in found.members] == ["lr=3e-06"]
    assert get(found.members[0], "optimizer.weight_decay") == 0


def test_an_adapter_of_the_sweep_takes_the_place_of_the_bases(tmp_path):
    root = put(tmp_path, {"base.xp": spec("lora")})
    found = checked('xpc 1\nextends "base.xp"\nsweep {\n  qlora = [true]\n}\n', root)
    assert [(one.spec.flag("lora"), one.spec.flag("qlora")) for one in found.members] == [(False, True)], shown(found)


# -- members are apart ------------------------------------------------------------------------------------------------


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


# -- the folder -------------------------------------------------------------------------------------------------------

RUN = ("trainer_args.json", "accelerate.yaml", "deepspeed.json", "launch.sh", "requirements.txt")


def of_member(files, name):
    start = f"members/{name}/"
    return {path.removeprefix(start): data for path, data in files.items() if path.startswith(start)}


def test_a_member_is_the_bundle_of_the_spec_that_states_its_values():
    files = compiled(UNBATCHED + TWO)
    for lr in ("1e-6", "2e-6"):
        for gbs, micro in ((128, 16), (256, 8)):
            name = f"lr={float(lr):g},gbs={gbs},micro={micro}"
            alone = spec(f"optimizer adamw(lr={lr})", batch=f"gbs={gbs} micro={micro}", save=f'save "out/run/{name}"')
            wanted = compiled(alone, name=f"t-{plain_name(name)}.xp")
            found = of_member(files, name)
            assert {one: found[one] for one in RUN} == {one: wanted[one] for one in RUN}
            assert set(found) == set(wanted)


def test_the_spec_of_a_member_compiles_alone_to_the_same():
    files = compiled(UNBATCHED + TWO.replace("}\n}", "}\n  strategy = [zero3, fsdp]\n}"))
    for name in files["members.txt"].decode().split():
        found = of_member(files, name)
        again = compiled(found["spec.xp"], name=f"t-{plain_name(name)}.xp")
        assert b"sweep" not in found["spec.xp"]
        assert {one: again[one] for one in RUN if one in again} == {one: found[one] for one in RUN if one in found}


def test_the_table_has_every_member_and_the_digests_of_all():
    files = compiled(UNBATCHED + TWO)
    table = tomllib.loads(files["sweep.toml"].decode())
    assert table["sweep"]["members"] == 4
    assert [one["index"] for one in table["member"]] == [0, 1, 2, 3]
    assert files["members.txt"].decode().split() == [one["name"] for one in table["member"]]
    assert table["member"][1]["settings"] == {"optimizer.lr": "1e-06", "batch.gbs": "256", "batch.micro": "8"}
    for one in table["member"]:
        own = of_member(files, one["name"])
        assert one["bundle"] == "sha256:" + sha256(own["bundle.toml"]).hexdigest()
        known = tomllib.loads(own["bundle.toml"].decode())["files"]
        assert known == {
            name: "sha256:" + sha256(data).hexdigest() for name, data in own.items() if name != "bundle.toml"
        }
    top = {name for name in files if "/" not in name}
    assert set(table["files"]) == top - {"sweep.toml"}
    assert files == compiled(UNBATCHED + TWO)


def test_only_files_of_a_member_are_inputs_of_it(tmp_path):
    root = put(tmp_path, {"a.jinja": "a{{ messages }}", "b.jinja": "b{{ messages }}"})
    files = compiled(spec(swept('chat_template = [file("a.jinja"), file("b.jinja")]')), root)
    inputs = [
        set(tomllib.loads(data.decode())["inputs"])
        for name, data in sorted(files.items())
        if name.endswith("bundle.toml")
    ]
    assert inputs == [{"a.jinja"}, {"b.jinja"}]


def written(folder, text=UNBATCHED + TWO):
    files = compiled(text)
    write(files, str(folder))
    return files


def test_written_whole_with_one_copy_of_the_trainer(tmp_path):
    files = written(tmp_path / "s")
    assert tree(tmp_path / "s") == files
    inodes = {os.stat(tmp_path / "s" / name).st_ino for name in files if name.endswith("trainer/main.py")}
    assert len(inodes) == 1
    assert os.listdir(tmp_path) == ["s"]
    one = next(name for name in files if name.endswith("16/launch.sh"))
    assert os.access(tmp_path / "s" / one, os.X_OK)
    assert os.access(tmp_path / "s" / "launch.sh", os.X_OK)


def test_a_file_system_without_links_gets_copies(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    files = written(tmp_path / "s")
    assert tree(tmp_path / "s") == files


def test_a_failure_on_the_way_leaves_nothing(tmp_path, monkeypatch):
    real = os.link
    left = [7]

    def failing(source, target):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(os, "link", failing)
    with pytest.raises(KeyboardInterrupt):
        written(tmp_path / "s")
    assert os.listdir(tmp_path) == []


def test_a_second_compile_replaces_a_folder_of_ours(tmp_path):
    written(tmp_path / "s")
    other = written(tmp_path / "s", spec(swept("seed = [1]")))
    assert tree(tmp_path / "s") == other
    plain = compiled(spec())
    write(plain, str(tmp_path / "s"))
    assert tree(tmp_path / "s") == plain
    written(tmp_path / "s")
    assert os.listdir(tmp_path) == ["s"]


@pytest.mark.parametrize(
    "change",
    [
        "notes.txt",
        "members/notes.txt",
        "members/seed=1/notes.txt",
        "members/seed=1/launch.sh",
        "members/seed=1/bundle.toml",
        "members/seed=1/trainer/main.py",
        "members.txt",
    ],
)
def test_what_somebody_else_wrote_is_not_replaced(tmp_path, change):
    written(tmp_path / "s", spec(swept("seed = [1, 2]")))
    put(tmp_path / "s", {change: "mine"})
    before = tree(tmp_path / "s")
    with pytest.raises(BundleError, match=r"did not write|was changed"):
        written(tmp_path / "s")
    assert tree(tmp_path / "s") == before


def test_a_copy_of_one_member_is_whole(tmp_path):
    files = written(tmp_path / "s")
    name = files["members.txt"].decode().split()[2]
    shutil.copytree(tmp_path / "s" / "members" / name, tmp_path / "alone", symlinks=True)
    assert tree(tmp_path / "alone") == of_member(files, name)
    subprocess.run(["tar", "-cf", "s.tar", "s"], cwd=tmp_path, check=True)
    subprocess.run(["tar", "-xf", "s.tar", "--one-top-level=again"], cwd=tmp_path, check=True)
    assert tree(tmp_path / "again" / "s") == files


def test_the_command_line(tmp_path):
    put(tmp_path, {"t.xp": UNBATCHED + TWO})
    done = xpc("compile", "t.xp", cwd=str(tmp_path))
    assert (done.returncode, done.stdout) == (
        0, b"wrote ./t.bundle, 4 members; launch them with\n  ./t.bundle/launch.sh --all\n"
    )  # fmt: skip
    assert xpc("compile", "t.xp", cwd=str(tmp_path)).returncode == 0
    told = xpc("explain", "t.xp:lr", cwd=str(tmp_path)).stdout.decode()
    assert "optimizer.lr is swept in t.xp: 1e-06, 2e-06" in told
    assert xpc("check", "t.xp", "--format", "json", cwd=str(tmp_path)).stdout == b"[]\n"


# -- the scripts ------------------------------------------------------------------------------------------------------

PYTHON = """\
#!/usr/bin/env bash
# Stands in for the interpreter: notes which member it was started for, and ends as its settings say.
case "$*" in *--preflight*) exit 0 ;; esac
member=${1#*/members/}
member=${member%%/*}
echo "$member" >>"$NOTES"
case "$member" in
  seed=2) exit 1 ;;
  seed=3) trap 'exit 75' TERM USR1; echo ready >>"$NOTES"; while :; do sleep 0.05; done ;;
esac
"""


@pytest.fixture
def launch(tmp_path):
    """A sweep over seeds 1, 2 and 4 and what starts its script with an interpreter that only takes notes."""
    put(tmp_path, {"python": PYTHON})
    os.chmod(tmp_path / "python", 0o755)

    def start(*arguments, seeds="1, 2, 4", wait=True):
        written(tmp_path / "s", spec(swept(f"seed = [{seeds}]"), strategy="ddp", hardware="1 x h100-80gb"))
        environment = {**os.environ, "PYTHON": str(tmp_path / "python"), "NOTES": str(tmp_path / "notes")}
        process = subprocess.Popen(
            [str(tmp_path / "s" / "launch.sh"), *arguments], env=environment, cwd=tmp_path, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        if not wait:
            return process
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    start.notes = lambda: (tmp_path / "notes").read_text().split() if (tmp_path / "notes").exists() else []
    return start


def test_without_a_member_the_script_says_how_it_is_used(launch):
    for arguments in ((), ("--help",), ("--list", "x"), ("seed=9",), ("3",), ("../s",), ("",), ("99999999999999",)):
        status, out, err = launch(*arguments)
        assert (status, out) == (2, ""), arguments
        assert "launch.sh: n" in err
    assert launch.notes() == []


def test_list_names_the_members_in_order(launch):
    assert launch("--list")[:2] == (0, "seed=1\nseed=2\nseed=4\n")


@pytest.mark.parametrize("name", ["seed=4", "2", "02"])
def test_one_member_by_name_or_number(launch, name):
    assert launch(name)[0] == 0
    assert launch.notes() == ["seed=4"]


def test_a_member_is_given_its_own_flags(launch):
    status, out, _ = launch("seed=1", "--dry-run")
    assert status == 0
    assert "members/seed=1/trainer/main.py" in out.replace("\\", "")
    assert launch("seed=1", "--what")[0] == 2
    assert launch.notes() == []


def test_all_go_on_past_one_that_fails_and_tell_it(launch):
    status, _, err = launch("--all")
    assert status == 1
    assert launch.notes() == ["seed=1", "seed=2", "seed=4"]
    assert err.endswith("launch.sh: 1 of 3 members failed:\n  seed=2\n")
    assert launch("--all", seeds="1, 4")[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_reaches_the_member_and_starts_no_other(launch, number):
    process = launch("--all", seeds="1, 3, 4", wait=False)
    try:
        for _ in range(600):
            if "ready" in launch.notes():
                break
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=0.1)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 75, err
    assert launch.notes() == ["seed=1", "seed=3", "ready"]
    assert "asked to stop at member seed=3" in err


@pytest.mark.skipif(not os.path.exists(SHELLCHECK), reason="shellcheck is not installed")
def test_shellcheck_finds_nothing(tmp_path):
    written(tmp_path / "s")
    done = subprocess.run([SHELLCHECK, str(tmp_path / "s" / "launch.sh")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_an_array_of_slurm_has_a_task_a_member():
    files = compiled(spec("launch slurm(time=1h)", swept("seed = [1, 2, 3]")))
    job = files["job.sbatch"].decode()
    assert "#SBATCH --array=0-2\n" in job
    assert "#SBATCH --job-name=t\n" in job
    assert "SLURM_ARRAY_TASK_ID" in job
    for name in files["members.txt"].decode().split():
        own = of_member(files, name)["job.sbatch"].decode()
        assert "--array" not in own
        assert f"#SBATCH --job-name=t-{name.replace('=', '-')}\n" in own


# -- many -------------------------------------------------------------------------------------------------------------

HUNDREDS = ", ".join(f"{one}e-8" for one in range(1, 101))


def test_a_thousand_members_are_checked_with_names_of_their_own():
    found = checked(spec(swept(f"lr = [{HUNDREDS}]", f"seed = [{', '.join(map(str, range(10)))}]")))
    assert len({one.name for one in found.members}) == 1000
    assert len({get(one, "save") for one in found.members}) == 1000
    assert not found.problems


def test_rows_of_the_data_are_read_once_for_all(tmp_path, monkeypatch):
    from xpc.compiler.files import Workspace as Files

    row = '{"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}\n'
    root = put(tmp_path, {"rows.jsonl": row * 200})
    calls = []
    real = Files.read
    monkeypatch.setattr(Files, "read", lambda self, *rest: (calls.append(rest[0]), real(self, *rest))[1])
    found = checked(spec(swept(f"lr = [{HUNDREDS}]"), train='qwen2.5-3b on "rows.jsonl" for 3 epochs'), root)
    assert len(found.members) == 100, shown(found)
    assert calls.count("rows.jsonl") == 1
