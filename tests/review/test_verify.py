"""`xpc verify` compiles the spec again: for an unchanged bundle, the result has the same bytes. Every change of a
bundle is reported.
"""

import json
import os
import shutil
import stat
import tomllib

import pytest
from case_support import MARKED, ROW, spec
from compile_support import REPOSITORY, SEED, put, tree, xpc
from test_bundle_reviews import accepted

from xpc.compiler.files import folder_contents
from xpc.compiler.files.bundle import sealed, write
from xpc.compiler.files.digest import shared_digest
from xpc.compiler.review import verify
from xpc.compiler.review.verifying.file_differences import differences, first_difference

RECIPES = ("mistral-7b-constitutional-dpo-8xh100", "qwen2.5-1.5b-ioi-grpo-7xh100", "smollm3-3b-sft-64xh100",
           "llama-7b-sharegpt-qlora-1xa100")  # fmt: skip


def verified(folder, *options, **more):
    done = xpc("verify", str(folder), *options, **more)
    assert b"broke the compiler" not in done.stderr, done.stderr
    return done.returncode, done.stdout.decode() + done.stderr.decode()


@pytest.fixture
def bundle(tmp_path):
    text = spec(
        'model {\n  chat_template = file("chat.jinja")\n}\nmethod sft {\n  assistant_only\n}\n',
        train='qwen2.5-3b on "rows.jsonl" for 1 epochs',
    ).replace("strategy zero2\n", "").replace("xpc 1\n", 'xpc 1\n\nextends "base.xp"\n')  # fmt: skip
    base = "xpc 1\n\n# one for all\nstrategy zero2 {\n  overlap_comm = false\n}\n"
    root = put(tmp_path / "made", {"t.xp": text, "base.xp": base, "chat.jinja": MARKED, "rows.jsonl": ROW * 40})
    assert xpc("compile", "t.xp", cwd=root).returncode == 0
    os.rename(os.path.join(root, "t.bundle"), tmp_path / "moved")
    return tmp_path / "moved"


def test_a_lock_written_later_is_not_part_of_the_bundle(tmp_path):
    root = put(tmp_path, {"t.xp": spec()})
    assert xpc("compile", "t.xp", cwd=root).returncode == 0
    xpc("lock", "t.xp", cwd=root)
    assert os.path.exists(tmp_path / "t.xp.lock")
    assert verified("t.bundle", cwd=root) == (0, "t.bundle is what its spec compiles to\n")


def test_a_spec_that_no_longer_compiles_without_local_models_is_reported_without_their_folder(bundle):
    """The folder of local models (XPC_DATA_ROOT) cannot be the reason, so the message does not name it."""
    spec_file = bundle / "spec.xp"
    spec_file.write_text(spec_file.read_text().replace("overlap_comm = false", "overlap_com = false"))
    status, out = verified(bundle)
    assert (status, "spec.xp does not compile here: " in out, "XPC_DATA_ROOT" in out) == (1, True, False), out


@pytest.mark.parametrize("name", RECIPES)
def test_bundles_of_recipes_compile_to_the_same_bytes_again(name, tmp_path):
    out = tmp_path / "x.bundle"
    assert xpc("compile", os.path.join(REPOSITORY, "specs", f"{name}.xp"), "-o", str(out)).returncode == 0
    status, out = verified(out)
    assert (status, "is what its spec compiles to" in out) == (0, True), out


@pytest.mark.slow
def test_generated_bundles_compile_to_the_same_bytes_again(location):
    for text, files, _ in accepted(location, 12):
        out = os.path.join(location, "v.bundle")
        shutil.rmtree(out, ignore_errors=True)
        write(files, out)
        assert verify.run(verify.parse([out])) == (f"{out} is what its spec compiles to\n", 0), text


def test_a_bundle_that_was_moved_with_base_template_and_data(bundle):
    assert verified(bundle) == (0, f"{bundle} is what its spec compiles to\n")
    before = tree(bundle)
    verified(bundle)
    assert tree(bundle) == before


def edited(folder, name, old, new, seal=False, table="bundle.toml"):
    """Edit a file of a bundle. With `seal`, the digests of this file and of bundle.toml are updated."""
    path = os.path.join(str(folder), name)
    with open(path, "rb") as handle:
        before = handle.read()
    assert old in before
    after = before.replace(old, new, 1)
    with open(path, "wb") as handle:
        handle.write(after)
    if seal:
        table = os.path.join(str(folder), table)
        with open(table, "rb") as handle:
            text = handle.read()
        text = text[: text.rstrip(b"\n").rfind(b"\n") + 1].replace(
            shared_digest(before).encode(), shared_digest(after).encode()
        )
        with open(table, "wb") as handle:
            handle.write(sealed(text))


@pytest.mark.parametrize("seal", [False, True])
@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (
            "trainer_args.json",
            b'"learning_rate": 2e-05',
            b'"learning_rate": 2e-04',
            'compiles to "learning_rate": 2e-05',
        ),
        ("deepspeed.json", b'"stage": 2', b'"stage": 1', 'compiles to "stage": 2'),
        ("launch.sh", b"set -euo pipefail", b"set -eu", "compiles to set -euo pipefail"),
        ("trainer/main.py", b"import", b"import this\nimport", "but the spec compiles to"),
        ("spec.xp", b"gbs = 128", b"gbs = 256", "but the spec compiles to"),
    ],
)
def test_a_change_is_shown_with_its_line(bundle, name, old, new, message, seal):
    edited(bundle, name, old, new, seal)
    status, out = verified(bundle)
    assert status == 1
    assert message in out
    assert (name if name != "spec.xp" else "deepspeed.json") in out
    assert ("was changed since the compiler wrote it" in out) is not seal


def test_a_changed_copy_of_the_data_is_reported(bundle):
    (name,) = os.listdir(bundle / "data")
    edited(bundle, f"data/{name}", b'"4"', b'"5"')
    status, out = verified(bundle)
    assert status == 1
    assert f"data/{name}" in out


def test_missing_and_extra_files_are_reported(bundle):
    (bundle / "note.txt").write_text("x")
    assert "contains note.txt, which the compiler did not write" in verified(bundle)[1]
    os.remove(bundle / "note.txt")
    os.remove(bundle / "accelerate.yaml")
    assert (verified(bundle)[0], "lacks accelerate.yaml" in verified(bundle)[1]) == (1, True)


def test_another_version_is_distinguished_from_a_change(bundle, monkeypatch):
    with open(bundle / "bundle.toml", "rb") as handle:
        written = tomllib.load(handle)["bundle"]["xpc"]
    monkeypatch.setattr(verify, "__version__", "9.9.9")
    status, out = verified(bundle)
    assert (status, f"xpc {written} can compile it again" in out) == (2, True)
    edited(bundle, "launch.sh", b"set -euo pipefail", b"set -eu")
    assert (verified(bundle)[0], "was changed" in verified(bundle)[1]) == (1, True)


def test_sweep_whose_folder_is_a_default(tmp_path):
    text = "train qwen2.5-3b on infinity-instruct with zero2 gbs=528 bf16 liger\nsweep {\n  lr = [1e-6, 2e-6]\n}\n"
    root = put(tmp_path, {"t.xp": text})
    assert xpc("compile", "t.xp", cwd=root).returncode == 0
    done = xpc("verify", "t.bundle", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_edited_member_of_a_sweep_is_reported(tmp_path):
    root = put(tmp_path, {"t.xp": spec("sweep {\n  lr = [1e-6, 2e-6]\n}")})
    assert xpc("compile", "t.xp", cwd=root).returncode == 0
    assert verified("t.bundle", cwd=root) == (0, "t.bundle is what its spec compiles to, 2 members\n")
    assert verified("t.bundle/members/lr=1e-06", cwd=root)[0] == 0
    edited(tmp_path, "t.bundle/members/lr=2e-06/trainer_args.json", b"2e-06", b"3e-06")
    status, out = verified("t.bundle", cwd=root)
    assert (status, "members/lr=2e-06/trainer_args.json" in out) == (1, True)


def test_model_next_to_a_sweep_is_found_from_every_member(tmp_path):
    config = {"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 4096}
    swept = spec("sweep {\n  lr = [1e-6, 2e-6]\n}", train='"tiny" on capybara for 1 epochs')
    root = put(tmp_path / "made", {"t.xp": swept, "tiny/config.json": json.dumps(config)})
    assert xpc("compile", "t.xp", cwd=root).returncode == 0
    assert verified(os.path.join(root, "t.bundle"), cwd=tmp_path)[0] == 0
    os.rename(os.path.join(root, "tiny"), tmp_path / "tiny")  # this path leads out of the sweep's folder
    assert verified(os.path.join(root, "t.bundle"), cwd=tmp_path)[0] == 1


@pytest.mark.slow
@pytest.mark.parametrize("launch", ["", "launch slurm(time=1h)\n"])
def test_launch_files_of_a_sweep_are_compared(launch, tmp_path):
    root = put(tmp_path, {"t.xp": spec("sweep {\n  lr = [2e-6, 1e-6]\n}\n" + launch)})
    assert xpc("compile", "t.xp", cwd=root).returncode == 0
    assert verified("t.bundle", cwd=root) == (0, "t.bundle is what its spec compiles to, 2 members\n")
    for name, old, new in (("launch.sh", b"set -euo pipefail", b"set -eu"), ("members.txt", b"lr=2e-06\n", b"")):
        edited(tmp_path / "t.bundle", name, old, new, seal=True, table="sweep.toml")
        status, out = verified("t.bundle", cwd=root)
        assert (status, f"t.bundle/{name}:" in out) == (1, True), out
        assert xpc("compile", "t.xp", "--force", cwd=root).returncode == 0


def test_a_folder_that_is_not_a_bundle_is_refused(tmp_path):
    assert verified(tmp_path)[0] == 2
    assert verified(tmp_path / "none")[0] == 2


def python_with(folder, versions):
    """Write a fake Python interpreter that says that these packages are installed."""
    path = os.path.join(str(folder), "python")
    lines = "; ".join(f"found[{name!r}] = {version!r}" for name, version in versions.items())
    with open(path, "w", encoding="utf-8") as handle:
        handle.write("#!/usr/bin/env python3\nimport json, sys\n"
                     f"found = dict.fromkeys(json.load(sys.stdin)); {lines}\nprint(json.dumps(found))\n")  # fmt: skip
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return path


@pytest.mark.slow
def test_other_packages_of_an_interpreter_are_reported(tmp_path):
    root = put(tmp_path, {"t.xp": SEED})
    assert xpc("compile", "t.xp", cwd=root).returncode == 0
    with open(os.path.join(root, "t.bundle", "bundle.toml"), "rb") as handle:
        pins = tomllib.load(handle)["pins"]
    right = python_with(tmp_path, {**pins, "torch": pins["torch"] + "+cu126"})
    assert verified("t.bundle", "--env", "--python", right, cwd=root)[0] == 0
    wrong = python_with(tmp_path, {**pins, "trl": "1.15.0", "wandb": None})
    status, out = verified("t.bundle", "--env", "--python", wrong, cwd=root)
    assert status == 1
    assert "trl 1.15.0 is installed, but the bundle pins 1.16.0\n" in out
    assert "wandb is not installed" in out
    assert verified("t.bundle", "--env", "--python", "/no/python", cwd=root)[0] == 2


@pytest.mark.slow
def test_packages_of_vllm_are_checked_too(tmp_path):
    out = tmp_path / "x.bundle"
    path = os.path.join(REPOSITORY, "specs", "qwen2.5-1.5b-openr1-math-grpo-8xh100.xp")
    assert xpc("compile", path, "-o", str(out)).returncode == 0
    assert "vllm is not installed" in verified(out, "--env", "--python", python_with(tmp_path, {}))[1]


def test_several_bundles_and_files_of_them_are_verified_in_one_call(tmp_path):
    """pre-commit passes the paths of all changed files in one call."""
    put(tmp_path, {"a.xp": SEED, "b.xp": SEED})
    for name in ("a", "b"):
        assert xpc("compile", f"{name}.xp", cwd=str(tmp_path)).returncode == 0
    files = ("a.bundle/launch.sh", "a.bundle/trainer/main.py", "b.bundle")
    done = xpc("verify", *files, cwd=str(tmp_path))
    assert done.stdout.decode() == "a.bundle is what its spec compiles to\nb.bundle is what its spec compiles to\n"
    with open(tmp_path / "a.bundle" / "launch.sh", "a") as handle:
        handle.write("# edited\n")
    done = xpc("verify", *files, cwd=str(tmp_path))
    assert done.returncode == 1
    assert done.stdout.decode().splitlines()[-1] == "b.bundle is what its spec compiles to"
    assert xpc("verify", *files, "--env", cwd=str(tmp_path)).returncode == 2


STALE = {
    "the spec": ("t.xp", b"gbs = 128", b"gbs = 256"),
    "a comment": ("t.xp", b"\ntrain", b"\n# more\ntrain"),
    "a base": ("base.xp", b"overlap_comm = false", b"overlap_comm = true"),
    "a comment of a base": ("base.xp", b"# one for all", b"# for all"),
    "the rows": ("rows.jsonl", b'"4"', b'"5"'),
    "the template": ("chat.jinja", b"\n", b"\n\n"),
}


@pytest.mark.parametrize(("name", "old", "new"), STALE.values(), ids=STALE)
def test_a_stale_bundle_is_compared_with_its_spec(bundle, name, old, new):
    made = bundle.parent / "made"
    spec_path = str(made / "t.xp")
    assert verified(bundle, "--spec", spec_path) == (0, f"{bundle} is what {spec_path} compiles to\n")
    path = made / name
    data = path.read_bytes()
    path.write_bytes(data.replace(old, new, 1) if old in data else data + b" ")
    assert verified(bundle)[0] == 0
    status, out = verified(bundle, "--spec", spec_path)
    assert (status, "is not what" in out) == (1, True), out


def test_a_spec_that_does_not_compile_is_reported(bundle):
    path = bundle.parent / "made" / "t.xp"
    path.write_bytes(path.read_bytes() + b"\nnope = 1\n")
    status, out = verified(bundle, "--spec", str(path))
    assert (status, "does not compile" in out) == (1, True), out


def test_lines_that_differ_are_never_shown_as_equal_texts():
    head = "x" * 300
    found, _ = first_difference(f"a\n{head}1\n".encode(), f"a\n{head}2\n".encode())
    assert found.startswith("2: ...")
    assert "x1'" in found
    assert "x2'" in found
    assert "\\r" in first_difference(b"a\r", b"a")[0]


def test_a_setting_is_named_before_digests_that_follow_from_it():
    one, other = "1" * 64, "2" * 64
    text, digests = first_difference(f"a {one}\nlr 1\n".encode(), f"a {other}\nlr 2\n".encode())
    assert (text, digests) == ("2: lr 1, but the spec compiles to lr 2", False)
    assert first_difference(f"a {one}\n".encode(), f"a {other}\nb\n".encode())[0].startswith("2: nothing")
    text, digests = first_difference(f"a\nb {one}\n".encode(), f"a\nb {other}\n".encode())
    assert (text[:5], digests) == ("2: b ", True)


@pytest.mark.parametrize("sweep", ["", "sweep { seed = [1, 2] }\n"])
def test_a_changed_base_is_reported_by_its_setting(sweep, tmp_path):
    """If a base changes, the first line names the changed setting, and not the Slurm job's script. The job's script
    also differs, because it contains a digest of the bundle, and it is the first of the files that differ.
    """
    base = "xpc 1\n\noptimizer(lr=1e-5)\nlaunch slurm(time=1d)\n"
    text = spec(sweep).replace("xpc 1\n", 'xpc 1\n\nextends "base.xp"\n')
    root = put(tmp_path, {"t.xp": text, "base.xp": base})
    assert xpc("compile", "t.xp", cwd=root).returncode == 0
    put(tmp_path, {"base.xp": base.replace("1e-5", "3e-5")})
    status, out = verified("t.bundle", "--spec", "t.xp", cwd=root)
    first = out.partition("\n")[0]
    assert (status, ': "lr": 1e-05, but the spec compiles to "lr": 3e-05' in first) == (1, True), out


def test_line_ends_that_git_changed_are_named(tmp_path):
    """With core.autocrlf, git changes line ends. verify reports that the line ends differ, and shows no pair of lines,
    because both lines would look the same.
    """
    put(tmp_path, {"a.json": b"{\r\n}\r\n"})
    (found,) = differences(str(tmp_path), folder_contents.tree(str(tmp_path)), {"a.json": b"{\n}\n"})
    assert "its lines end with CRLF" in found
