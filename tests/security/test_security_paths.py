"""Whatever paths a spec, a bundle or a link contains, the compiler reads and writes only files that it needs."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from case_support import PLAIN, ROW, spec
from compile_support import checked, codes, compiled, errors, only, put, shown, tree, xpc, xpc_in_turn
from tiers import every_fourth

from xpc.compiler.files import file_memory
from xpc.compiler.files.bundle import BundleError, write

pytestmark = pytest.mark.slow

KEY = "-----BEGIN OPENSSH KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAA\n"
SECRETS = {
    "home/.ssh/id_ed25519": KEY,
    "home/.netrc": "machine host login me password key",
    "home/.aws/credentials": "[default]\naws_secret_access_key = key\n",
    "home/.docker/config.json": '{"auths": {"host": {"auth": "a2V5"}}}',
    "home/.cache/huggingface/token": "key",
    "home/plain/passwd": "root:x:0:0",
    "home/work/.env.txt": "KEY=key",
}
"""Secret files near `home/work/specs`, the folder that contains the spec."""


@pytest.fixture
def specs(tmp_path: Path) -> Path:
    put(tmp_path, SECRETS)
    put(tmp_path, {"home/work/specs/x": "", "home/work/shared/chat.jinja": PLAIN, "home/work/base.xp": "seed 7\n"})
    put(tmp_path, {"home/work/.cache/shared/chat.jinja": PLAIN, "home/work/shared/system.txt": "Be brief."})
    return tmp_path / "home/work/specs"


NAMED = {
    "base": lambda path: spec().replace("xpc 1\n", f'xpc 1\nextends "{path}"\n'),
    "template": lambda path: spec(f'model(chat_template=file("{path}"))'),
    "system": lambda path: spec(f'data(system=file("{path}"))'),
    "config": lambda path: spec(f'model(config=file("{path}"))'),
    "task": lambda path: spec(f'eval(tasks=["{path}.yaml"])'),
    "reward": lambda path: spec(
        f'method grpo(generations=16, max_completion=64, rewards=["{path}:f"])',
        train="qwen2.5-3b on org/x for 3 epochs",
    ),
}


@pytest.mark.parametrize("way", NAMED)
@pytest.mark.parametrize("name", every_fourth(tuple(SECRETS)))
def test_a_file_of_somebody_elses_is_not_read(name: str, way: str, specs: Path) -> None:
    """A spec names a file of another user by a path with `../`, or by a link in the spec's folder. No diagnostic quotes
    this file.
    """
    up = "../../../" + name
    (specs / "link").symlink_to(up)
    (specs / "link.xp").symlink_to(up)
    (specs / "link.jinja").symlink_to(up)
    for path in (up, "link", "link.xp", "link.jinja", "./x/../" + up, "../specs/link"):
        found = checked(NAMED[way](path), str(specs))
        assert found.spec is None, (path, shown(found))
        assert set(errors(found)) <= {"XP114", "XP107", "XP129", "XP106", "XP660"}, shown(found)
        text = SECRETS[name]
        reported = "\n".join(
            f"{one.message} {one.help} {one.primary and one.primary.source.text}" for one in found.problems
        )
        assert not [line for line in text.splitlines() if len(line) > 8 and line in reported]


def test_files_next_to_the_specs_folder_are_read(specs: Path) -> None:
    for path in ("../shared/chat.jinja", "../.cache/shared/chat.jinja"):
        files = compiled(spec(f'model(chat_template=file("{path}"))'), str(specs))
        assert [data for name, data in files.items() if name.startswith("files/")] == [PLAIN.encode()]
    compiled(spec('data(system=file("../shared/system.txt"))'), str(specs))
    found = checked(spec().replace("xpc 1\n", 'xpc 1\nextends "../base.xp"\n'), str(specs))
    assert not errors(found), shown(found)
    (specs / "chat.jinja").symlink_to("../shared/chat.jinja")
    compiled(spec('model(chat_template=file("chat.jinja"))'), str(specs))


def test_data_of_a_hidden_folder_is_reported(specs: Path) -> None:
    put(specs, {"../.cache/rows.jsonl": ROW, ".mine/rows.jsonl": ROW})
    reported = checked(spec(train='qwen2.5-3b on "../.cache/rows.jsonl" for 3 epochs'), str(specs))
    assert "hidden folder" in only(reported, "XP590").message
    assert "XP590" not in codes(checked(spec(train='qwen2.5-3b on ".mine/rows.jsonl" for 3 epochs'), str(specs)))
    put(specs, {"../accounts": ROW})
    (specs / "link.jsonl").symlink_to("../accounts")
    linked = only(checked(spec(train='qwen2.5-3b on "link.jsonl" for 3 epochs'), str(specs)), "XP590").message
    assert linked.startswith("`link.jsonl` is a link to a file with another ending, outside of the spec's folder, and")


@pytest.mark.skipif(
    not os.path.exists("/proc/kmsg"), reason="this system has no /proc/kmsg, which would block the read"
)
def test_data_that_never_comes_is_not_waited_for(tmp_path: Path) -> None:
    """/proc/kmsg says that it is a regular file, but reading it blocks. The compiler does not wait for its data."""
    endings = ("jsonl", "csv", "txt", "json")
    for ending in endings:
        (tmp_path / f"rows.{ending}").symlink_to("/proc/kmsg")
        put(tmp_path, {f"{ending}.xp": spec(train=f'qwen2.5-3b on "rows.{ending}" for 3 epochs')})
    for done in xpc_in_turn([["check", f"{ending}.xp"] for ending in endings], str(tmp_path)):
        assert done.returncode in (0, 1)
        assert b"broke the compiler" not in done.stderr


# -- an old bundle, and a bundle of somebody else's ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pipe", "device", "link", "manifest"])
def test_an_old_bundle_that_was_made_strange_is_not_read_for_ever(kind: str, tmp_path: Path) -> None:
    out = tmp_path / "b"
    write(compiled(spec()), str(out))
    victim = out / ("bundle.toml" if kind == "manifest" else "README.md")
    victim.unlink()
    if kind in ("pipe", "manifest"):
        os.mkfifo(victim)
    else:
        victim.symlink_to("/dev/zero" if kind == "device" else "launch.sh")
    with pytest.raises(BundleError, match="not a bundle" if kind == "manifest" else "not a regular file"):
        write(compiled(spec()), str(out))
    assert write(compiled(spec()), str(out), force=True) is not None


def evil_bundle(folder: Path, bundled: str) -> None:
    """A bundle whose trainer_args.json has a hostile path for the copied data."""
    put(folder / "in", {"rows.jsonl": ROW})
    files = compiled(spec(train='qwen2.5-3b on "rows.jsonl" for 3 epochs'), str(folder / "in"))
    reported = json.loads(files["trainer_args.json"])
    reported["data"]["sources"][0].update(bundled=bundled, path="rows.jsonl")
    put(folder / "evil", {**files, "trainer_args.json": json.dumps(reported), "up/a/b/x": "", "up/.profile": "evil"})
    os.symlink("up/a/b", folder / "evil" / "link")


@pytest.mark.parametrize(
    "bundled",
    [
        "../evil/spec.xp", "spec.xp", "/etc/hostname", "data/../../evil/spec.xp", "link/../../.profile", "files//x",
        "data/./x", "files/../spec.xp", "~/x", "data", "",
    ],
)  # fmt: skip
def test_imported_bundle_writes_next_to_the_spec_alone(bundled: str, tmp_path: Path) -> None:
    evil_bundle(tmp_path, bundled)
    (tmp_path / "work" / "here").mkdir(parents=True)
    before = tree(tmp_path)
    done = xpc("import", "../../evil", "-o", "new.xp", cwd=str(tmp_path / "work" / "here"))
    assert done.returncode == (2 if bundled else 1), "if no copy exists, `xpc check` does not find the rows"
    after = tree(tmp_path)
    new = {name for name in after if name not in before}
    assert all(name.startswith("work/here/") for name in new), new
    assert {name: after[name] for name in before if name in after} == {
        name: data for name, data in before.items() if name in after
    }


@pytest.mark.parametrize("bundled", [["a"], {"a": 1}, 7, True, "data/\0"])
def test_a_bundle_of_other_kinds_is_a_sentence(bundled: object, tmp_path: Path) -> None:
    evil_bundle(tmp_path, bundled)  # type: ignore[arg-type]
    done = xpc("import", "evil", "-o", "new.xp", cwd=str(tmp_path))
    assert done.returncode == 2
    assert b"broke the compiler" not in done.stderr


# -- where the compiler writes ---------------------------------------------------------------------------------------


def test_modes_of_what_is_written(tmp_path: Path) -> None:
    """With any umask, all users can read a bundle, only its owner can write to it, and only its scripts are
    executable.
    """
    root = put(tmp_path / "in", {"chat.jinja": PLAIN, "rows.jsonl": ROW})
    named = ['model(chat_template=file("chat.jinja"))', "eval(tasks=[gsm8k])"]
    one = compiled(spec(*named, train='qwen2.5-3b on "rows.jsonl" for 3 epochs'), root)
    several = compiled(
        spec(*named, "sweep {\n  seed = [1, 2]\n}", train='qwen2.5-3b on "rows.jsonl" for 3 epochs'), root
    )
    for mask, files in ((mask, files) for mask in (0o000, 0o002, 0o022, 0o077) for files in (one, several)):
        before = os.umask(mask)
        out = tmp_path / f"b{mask}-{len(files)}"
        try:
            write(files, str(out))
        finally:
            os.umask(before)
        for where, _, names in os.walk(out):
            assert stat.S_IMODE(os.stat(where).st_mode) == 0o755, where
            for name in names:
                mode = stat.S_IMODE(os.stat(os.path.join(where, name)).st_mode)
                assert mode == (0o755 if name.endswith(".sh") else 0o644), name
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_the_memory_of_somebody_else_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """xpc does not use a cache folder to which other users can write: they could write an entry that says that invalid
    rows are valid.
    """
    monkeypatch.setattr(file_memory, "SETTLED", -3600.0)
    put(tmp_path, {"a.xp": spec(train='qwen2.5-3b on "rows.jsonl" for 3 epochs'), "rows.jsonl": ROW + "{}\n"})
    environment = {"XPC_CACHE": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = xpc("check", "a.xp", cwd=str(tmp_path), env=environment)
    assert first.returncode == 1
    location = tmp_path / "cache" / "xpc" / "data"
    (entry,) = location.iterdir()
    table = json.loads(entry.read_text())
    facts = {name: {**fact, "wrong": None} for name, fact in table["facts"].items()}
    entry.write_text(json.dumps({**table, "facts": facts}))
    # a user's own cache is trusted, even this edited entry
    assert xpc("check", "a.xp", cwd=str(tmp_path), env=environment).returncode == 0
    location.chmod(0o777)
    again = xpc("check", "a.xp", cwd=str(tmp_path), env=environment)
    assert (again.returncode, again.stdout) == (1, first.stdout)
