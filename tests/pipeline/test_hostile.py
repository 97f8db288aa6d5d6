"""Hostile or broken input leads to a diagnostic or to a correct bundle, never to a traceback. None of it is ever
executed, and the compiler writes no file outside of the bundle.
"""

import json
import os
import subprocess
import tomllib

import pytest
from case_support import ROW, spec
from compile_support import (
    CONFIG,
    HEAD,
    REPOSITORY,
    codes,
    edited,
    errors,
    only,
    put,
    shown,
    tree,
    xpc,
    xpc_process,
)
from hostile_support import checked, compiled

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import compile_text

pytestmark = pytest.mark.slow

PAYLOADS = (
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned",
    "'; touch pwned; '",
    '" && touch pwned; "',
    "| touch pwned",
    "\\",
    "\\\\",
    "a\\nb",
    "${IFS}",
    "{{7*7}}",
    "%s%n",
    "--dry-run",
    "-rf",
    "~root",
    "<script>alert(1)</script>",
    "[x](javascript:1)",
    "| a | b |",
    "../../../etc/passwd",
    "/etc/passwd",
    "..",
    ".",
    "con",
    "a" * 4000,
    "\u00e9\u4e2d\U0001f600",
    "\ufeff",
    "\u200b",
    "null",
    "!!python/x",
    "{",
    "}",
    "#",
    "'''",
    '"""',
    "\t",
    "a=b",
    "[files]",
    "*",
    "&a",
    "yes",
    "1e5",
    "0x1",
    "~",
)
SLOTS = {
    "save": lambda text: spec(save=f"save {text}"),
    "run name": lambda text: spec(f"track wandb(name={text})"),
    "project": lambda text: spec(f"track wandb(project={text})"),
    "eos": lambda text: spec(f"model(eos={text}, pad={text})"),
    "revision": lambda text: spec(f"model(revision={text})"),
    "system": lambda text: spec(f"data(system={text})"),
    "split": lambda text: spec("data(holdout=5%)", f"eval(every=epoch, split={text})"),
    "data": lambda text: spec(train=f"qwen2.5-3b on {text} for 3 epochs"),
    "model": lambda text: spec(train=f"{text} on infinity-instruct for 3 epochs"),
    "template": lambda text: spec(f"model(chat_template=file({text}))"),
    "base": lambda text: spec().replace("xpc 1\n", f"xpc 1\nextends {text}\n"),
    "extra": lambda text: spec(f"extra trl {{\n  dataset_kwargs = {text}\n}}"),
    "columns": lambda text: spec(
        f"data mix {{\n  org/x {{\n    columns = [{text}]\n  }}\n  format = text\n}}",
        train="qwen2.5-3b on mix for 3 epochs",
    ),
}


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t") + '"'


@pytest.mark.parametrize("slot", SLOTS)
def test_hostile_texts_in_every_slot_change_no_script(slot, tmp_path):
    plain = compiled(spec())
    for payload in PAYLOADS:
        text = SLOTS[slot](quoted(payload))
        files, found = compile_text(text.encode(), "t.xp", Workspace(str(tmp_path)))
        if slot != "base":
            # In the slot `base`, the hostile text is the name of a base, which the compiler reads and parses. So syntax
            # errors are possible only in this slot.
            assert not [code for code in codes(found) if code < "XP100"], (payload, shown(found))
        if files is None:
            assert all(one.primary is not None for one in found.problems)
            continue
        table = tomllib.loads(files["bundle.toml"].decode())
        assert set(table["files"]) == set(files) - {"bundle.toml"}
        json.loads(files["trainer_args.json"])
        assert files["launch.sh"] == plain["launch.sh"], payload
        assert all(not os.path.isabs(name) and ".." not in name.split("/") for name in files)
    assert os.listdir(tmp_path) == []


def test_nothing_is_run_and_nothing_is_written_elsewhere(tmp_path):
    """Compile a spec full of hostile texts, and dry-run the bundle's launcher. Neither may create a file in the spec's
    folder or in the bundle's.
    """
    evil = "$(touch pwned) `touch pwned`"
    name = f"{evil}.jinja"
    root = put(
        tmp_path / "in",
        {
            f"{evil}.xp": spec(
                f'model(chat_template=file("{name}"), eos="{evil}")',
                f'track wandb(name="{evil}")',
                train=f'"{evil}" on "{evil}.jsonl" for 3 epochs',
                save=f'save "{evil} out"',
                batch="gbs=128 micro=16 seq=512",
            ),
            name: "{{ ''.__class__.__mro__ }}",
            f"{evil}.jsonl": ROW,
            f"{evil}/config.json": json.dumps(CONFIG),
        },
    )
    (tmp_path / "out").mkdir()
    before = tree(root)
    done = xpc_process("compile", f"{root}/{evil}.xp", "-o", evil, cwd=str(tmp_path / "out"))
    assert done.returncode == 0, done.stdout + done.stderr
    run = subprocess.run(
        [str(tmp_path / "out" / evil / "launch.sh"), "--dry-run"],
        cwd=tmp_path / "out",
        capture_output=True,
        check=False,
    )
    assert run.returncode == 0
    assert tree(root) == before
    assert os.listdir(tmp_path / "out") == [evil]
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


@pytest.mark.parametrize(
    "name",
    [
        "a\nb.xp",
        "$(touch pwned).xp",
        "\u202ea.xp",
        " .xp",
        "a'b\".xp",
        "-x.xp",
        "\udcff.xp",
        "x",
        "a" * 200 + ".xp",
        "#.xp",
        "[a].xp",
    ],
)
def test_file_names_of_specs(name, tmp_path):
    put(tmp_path / "in", {name: spec()})
    for arguments in (("check", "--", f"./{name}"), ("compile", f"./{name}", "-o", "../out")):
        done = xpc(*arguments, cwd=str(tmp_path / "in"))
        assert done.returncode == 0, done.stderr
    table = tomllib.loads((tmp_path / "out" / "bundle.toml").read_bytes().decode())
    assert table["bundle"]["spec"] == name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    for one in ("README.md", "spec.xp", "trainer_args.json"):
        (tmp_path / "out" / one).read_bytes().decode()
    xpc("compile", f"./{name}", cwd=str(tmp_path / "in"))
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


# -- bytes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (spec().encode().replace(b"out/run", b"out/\xff\xfe"), "XP001"),
        (spec().encode().replace(b"out/run", b"out/\x00"), "XP002"),
        (spec().encode().replace(b"out/run", b"out/\x1b[31m"), "XP002"),
        (spec().encode().replace(b"out/run", "out/\u202e".encode()), "XP003"),
        (spec().encode().replace(b"out/run", "out/\u200f".encode()), "XP003"),
        (spec().encode().replace(b"out/run", b"out/\xed\xa0\x80"), "XP001"),
        (b"a = " + b"x" * 1_000_000, "XP004"),
        (b"#" * 1_000_000, "XP004"),
        (b"a {\n" * 10_000 + b"}\n" * 10_000, "XP005"),
        (b"a = " + b"[" * 10_000 + b"]" * 10_000, "XP005"),
        (b"a" + b"(b" * 10_000 + b")" * 10_000, "XP005"),
        (HEAD.encode() + b"seed = 1e999\n", "XP041"),
        (HEAD.encode() + b"seed = " + b"9" * 400 + b"\n", "XP042"),
        (b"", "XP117"),
        (b"\n\n\n", "XP117"),
        (b"\xef\xbb\xbf", "XP117"),
        (b"\xff" * 5000, "XP001"),
        (b"\x00" * 5000, "XP002"),
        (b'"' * 9999, "XP010"),
        (b"}" * 9999, "XP013"),
        (b"= " * 9999, "XP025"),
    ],
    ids=str,
)
def test_bytes_that_nobody_should_write(data, code, tmp_path):
    found = checked(data)
    assert code in errors(found), shown(found)
    put(tmp_path, {"a.xp": data})
    done = xpc("compile", "a.xp", "-o", "b", cwd=str(tmp_path))
    assert done.returncode == 1
    assert os.listdir(tmp_path) == ["a.xp"]


def test_bom_and_line_ends_change_nothing():
    plain = compiled(spec())
    for data in (
        b"\xef\xbb\xbf" + spec().encode(),
        spec().replace("\n", "\r\n").encode(),
        spec().replace("\n", "\r").encode(),
    ):
        files = compiled(data)
        assert files["trainer_args.json"] == plain["trainer_args.json"]
        assert files["spec.xp"] == plain["spec.xp"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("hardware 9999999 x h100-80gb", "XP107"),
        ("hardware 0 x h100-80gb", "XP107"),
        ("hardware 1.5 x h100-80gb", "XP107"),
        ("hardware 99999999999999999999999 x cpu", "XP107"),
        ("nodes 9e18", "XP107"),
        ("nodes 0", "XP107"),
        ("batch gbs=9e18", "XP107"),
        ("batch gbs=9e18 micro=9e18", "XP107"),
        ("batch micro=9e18 accum=9e18", "XP107"),
        ("batch gbs=1e300", "XP107"),
        ("batch gbs=1e308k", "XP107"),
        ("batch seq=9e18", "XP107"),
        ("batch seq=1e308M", "XP107"),
        ("batch seq=1e308k", "XP107"),
        ("optimizer adamw(lr=1e300)", "XP107"),
        ("optimizer adamw(lr=5e-324)", None),
        ("optimizer adamw(betas=[" + "0.9, " * 5000 + "0.9])", "XP107"),
        ("launch(nccl_timeout=1e300d)", "XP107"),
        ("schedule cosine(warmup=1e300%)", "XP107"),
        ("schedule cosine(min_lr=5e-324)", None),
        ("seed -1", "XP107"),
        ("data(workers=9e18)", "XP107"),
        ("strategy zero2(allgather_bucket=9e18)", None),
        ("save(keep=9e18)", None),
        ("extra deepspeed { zero_optimization { sub_group_size = 1e300B } }", "XP104"),
        ("extra trl { torch_empty_cache_steps = 1e308k }", "XP104"),
    ],
)
def test_numbers_without_measure(line, code):
    name = line.split()[0].split("(")[0]
    text = "\n".join(one for one in spec().splitlines() if not one.startswith(name)) + f"\n{line}\n"
    found = checked(text)
    if code is None:
        assert not set(errors(found)) - {"XP201"}, shown(found)
        if found.spec is not None:
            json.loads(compiled(text)["trainer_args.json"])
    else:
        assert code in errors(found), shown(found)


@pytest.mark.parametrize("text", ['"\u00b2"', "\u00b2", "trl-\u00b2.0", "\u2460 x h100-80gb", '"\u09ea\u00b9"'])
@pytest.mark.parametrize("setting", ["target", "hardware", "seed", "nodes", "strategy", "precision"])
def test_digits_that_are_no_numbers(setting, text):
    """For a superscript digit, `str.isdigit` is true, but `int` raises an error. So `target "trl-²"` once gave a
    traceback.
    """
    assert any(one.severity == "error" for one in checked(spec(f"{setting} {text}")).problems)


def test_epochs_without_measure():
    assert errors(checked(spec(train="qwen2.5-3b on infinity-instruct for 1e300 epochs"))) == ["XP107"]
    compiled(spec(train="qwen2.5-3b on infinity-instruct for 9e18 epochs"))
    compiled(spec(train="qwen2.5-3b on infinity-instruct for 5e-324 epochs"))


def test_long_lists_and_many_rows():
    text = spec("data mix {\n" + "  capybara\n" * 2000 + "}", train="qwen2.5-3b on mix for 3 epochs")
    found = checked(text)
    assert found.spec is not None, shown(found)
    assert len(found.spec.data) == 2000
    many = spec(
        "data mix {\n  org/x {\n    columns = [" + "a, " * 15000 + "a]\n  }\n  format = text\n}",
        train="qwen2.5-3b on mix for 3 epochs",
    )
    assert checked(many).problems is not None
    assert "XP004" in errors(checked(spec("optimizer adamw(betas=[" + "0.9, " * 100_000 + "0.9])")))


@pytest.mark.parametrize("blank", [" ", "\n", "\x0b", "[", "a", "%", " %"])
@pytest.mark.parametrize(
    "before", ["train qwen2.5-3b on capybara[", 'train qwen2.5-3b on "rows.jsonl"[', "xpc 1\nsplit = test["]
)
def test_a_bracket_before_many_of_one_character_is_reported(before, blank):
    assert "XP0" in " ".join(errors(checked(before + blank * 3000 + "\n")))


def test_edits_of_hostile_texts_stay_inside_the_text():
    text = "train qwen2.5-3bb on infinity-instrct with ligre zer02 bf61 gsb=12\n"
    for one in checked(text).problems:
        assert isinstance(edited(text, one), str)
        for edit in one.edits:
            assert 0 <= edit.span.start <= edit.span.end <= len(text)


# -- generated ------------------------------------------------------------------------------------------------------


def test_a_short_fuzz_run():
    import fuzz

    counts, failures = fuzz.run(seed=2026, inputs=500)
    assert not failures, failures[0]
    assert counts.accepted + counts.rejected == 500
    assert counts.accepted > 25
    assert counts.rejected > 250


def test_absolute_files_never_enter_a_bundle(tmp_path):
    put(tmp_path, {"secret": "key", "base.xp": "xpc 1\n"})
    for line in (f'model(chat_template=file("{tmp_path}/secret"))', f'data(system=file("{tmp_path}/secret"))'):
        found = checked(spec(line))
        assert errors(found) == ["XP114"], shown(found)
        assert "absolute" in only(found, "XP114").message
    found = checked(f'xpc 1\nextends "{tmp_path}/base.xp"\n')
    assert "absolute" in only(found, "XP114").message


def test_no_module_tests_digits_that_int_refuses():
    for room in ("compiler", "grammar"):
        for where, _, names in os.walk(os.path.join(REPOSITORY, room)):
            for name in names:
                if name.endswith(".py"):
                    with open(os.path.join(where, name), encoding="utf-8") as handle:
                        assert ".isdigit()" not in handle.read(), f"{where}/{name}: use str.isdecimal instead"
