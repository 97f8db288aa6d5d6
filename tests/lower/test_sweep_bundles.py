"""The folder of a sweep has a bundle for each member, a table of the members, and scripts that start them."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from hashlib import sha256

import pytest
from case_support import spec
from compile_support import compiled, put, tree, xpc
from patience import HUNG
from sweep_support import TWO, UNBATCHED, swept

from xpc.compiler.files.bundle import BundleError, write
from xpc.compiler.resolve.sweep_member import plain_name

pytestmark = pytest.mark.slow

# -- the folder -------------------------------------------------------------------------------------------------------

SHELLCHECK = os.path.join(os.path.dirname(sys.executable), "shellcheck")
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


def test_sweep_is_written_completely_with_one_trainer(tmp_path):
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


def test_copy_of_one_member_is_complete(tmp_path):
    files = written(tmp_path / "s")
    name = files["members.txt"].decode().split()[2]
    shutil.copytree(tmp_path / "s" / "members" / name, tmp_path / "alone", symlinks=True)
    assert tree(tmp_path / "alone") == of_member(files, name)
    subprocess.run(["tar", "-cf", "s.tar", "s"], cwd=tmp_path, check=True)
    subprocess.run(["tar", "-xf", "s.tar", "--one-top-level=again"], cwd=tmp_path, check=True)
    assert tree(tmp_path / "again" / "s") == files


def test_commands_report_the_members_of_a_sweep(tmp_path):
    put(tmp_path, {"t.xp": UNBATCHED + "memory(checkpointing)\n" + TWO})
    done = xpc("compile", "t.xp", cwd=str(tmp_path))
    assert (done.returncode, done.stdout) == (
        0, b"wrote ./t.bundle, 4 members; launch them with\n  ./t.bundle/launch.sh --all\n"
    )  # fmt: skip
    assert xpc("compile", "t.xp", cwd=str(tmp_path)).returncode == 0
    reported = xpc("explain", "t.xp:lr", cwd=str(tmp_path)).stdout.decode()
    assert "optimizer.lr is swept in t.xp: 1e-06, 2e-06" in reported
    assert xpc("check", "t.xp", "--format", "json", cwd=str(tmp_path)).stdout == b"[]\n"


# -- the scripts ------------------------------------------------------------------------------------------------------

PYTHON = """\
#!/usr/bin/env bash
# Stands in for the interpreter: notes which member it was started for, and ends as its settings say.
case "$1" in */result.py) echo "results ${*:2}" && exit ;; esac
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
    """Compile a sweep over three seeds. Return a function that runs the sweep's launch.sh; PYTHON is a program that
    only records how it is called.
    """
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
        out, err = process.communicate(timeout=HUNG)
        return process.returncode, out, err

    start.notes = lambda: (tmp_path / "notes").read_text().split() if (tmp_path / "notes").exists() else []
    return start


def test_without_a_member_the_script_says_how_it_is_used(launch):
    for arguments in ((), ("--halp",), ("--list", "x"), ("seed=9",), ("3",), ("../s",), ("",), ("99999999999999",)):
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
    status, out, err = launch("--all")
    assert status == 1
    assert re.search(r"^results \S+/members seed=1 0 seed=2 1 seed=4 0$", out, re.M)
    assert launch.notes() == ["seed=1", "seed=2", "seed=4"]
    assert err.endswith("launch.sh: 1 of 3 members failed:\n  seed=2\n")
    assert launch("--all", seeds="1, 4")[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_reaches_the_member_and_starts_no_other(launch, number):
    process = launch("--all", seeds="1, 3, 4", wait=False)
    try:
        for _ in range(6000):
            if "ready" in launch.notes():
                break
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=0.1)
        process.send_signal(number)
        _, err = process.communicate(timeout=HUNG)
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


def test_a_swept_model_is_a_value_of_its_members():
    files = compiled(spec() + swept("model = [qwen2.5-3b, qwen2.5-0.5b]"))
    members = tomllib.loads(files["sweep.toml"].decode())["member"]
    assert [one["settings"] for one in members] == [{"model": "Qwen/Qwen2.5-3B"}, {"model": "Qwen/Qwen2.5-0.5B"}]
