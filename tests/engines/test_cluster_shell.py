"""The shell code in Kubernetes and SkyPilot files, run for one node: it finds the bundle, sets the node's variables,
and starts launch.sh.
"""

from __future__ import annotations

import os
import subprocess
from hashlib import sha256
from pathlib import Path

import yaml
from case_support import spec
from cluster_support import K8S, SKY, container, k8s, read, trainjob
from compile_support import compiled

from xpc.compiler.files.bundle import write

STUB = """\
#!/usr/bin/env bash
printf '%s|' "${NODE_RANK-}" "${MASTER_ADDR-}" "${MASTER_PORT-}" "$PWD" "${XPC_NODE_WAIT-}" "${!PET_@}"
exit 75
"""


PINS: dict[str, str] = {}
"""Maps the digest of each compiled bundle to the digest of the same bundle in which launch.sh is the script STUB."""


def lay(text: str, folder: object) -> None:
    """Write a bundle into the folder that the tests mount as a volume. The bundle's launch.sh only prints its
    variables.
    """
    out = os.path.join(str(folder), "run.bundle")
    write(compiled(text, name="run.xp"), out)
    stubbed(out)


def stubbed(bundle: str) -> None:
    """Replace a bundle's launch.sh by STUB, and correct the digests in run.sha256, so that they fit STUB."""
    with open(os.path.join(bundle, "launch.sh"), "rb") as handle:
        own = sha256(handle.read()).hexdigest()
    with open(os.path.join(bundle, "launch.sh"), "w", encoding="utf-8") as handle:
        handle.write(STUB)
    with open(os.path.join(bundle, "run.sha256"), encoding="utf-8") as handle:
        before = handle.read()
    after = before.replace(own, sha256(STUB.encode()).hexdigest())
    with open(os.path.join(bundle, "run.sha256"), "w", encoding="utf-8") as handle:
        handle.write(after)
    PINS[sha256(before.encode()).hexdigest()] = sha256(after.encode()).hexdigest()


def pinned(script: str) -> str:
    """In a script, replace the digest of the compiled bundle. The new digest is the digest of the same bundle with STUB
    as its launch.sh.
    """
    for old, new in PINS.items():
        script = script.replace(old, new)
    return script


def node(text: str, file: str, folder: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the shell code for one node, taken from an engine's file."""
    location = str(folder)
    if file == "sky.yaml":
        script = read(text, file)["run"]
    elif file == "trainjob.yaml":
        script = trainjob(text)["trainer"]["command"][2]
    else:
        script = container(text)["command"][2]
    environment = {"PATH": os.environ["PATH"], "HOME": location, **variables}
    begin = os.path.join(location, "run.bundle") if file == "sky.yaml" else location
    words = ["bash", "-c", pinned(script).replace("/workspace", location)]
    return subprocess.run(words, env=environment, cwd=begin, capture_output=True, text=True, check=False)


PETS = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "8", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "run-node-0-0.run",
        "PET_MASTER_PORT": "29500"}  # fmt: skip
SKYPILOT = {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2"}


def test_node_gets_its_rank_and_returns_its_status(tmp_path: Path):
    lay(K8S["two"], tmp_path)
    done = node(K8S["two"], "trainjob.yaml", tmp_path, **PETS)
    assert (done.stdout, done.returncode) == (f"1|run-node-0-0.run|29500|{tmp_path}|1800|", 75), done.stderr
    done = node(K8S["two"], "jobset.yaml", tmp_path, JOB_COMPLETION_INDEX="1", MASTER_ADDR="a", MASTER_PORT="2")
    assert (done.stdout, done.returncode) == (f"1|a|2|{tmp_path}|1800|", 75), done.stderr


def test_a_node_of_skypilot_starts_only_with_the_right_number_of_nodes(tmp_path: Path):
    lay(SKY["two"], tmp_path)
    done = node(SKY["two"], "sky.yaml", tmp_path, **SKYPILOT)
    assert (done.stdout, done.returncode) == (f"1|10.0.0.1|8008|{tmp_path}||", 75), done.stderr
    done = node(SKY["two"], "sky.yaml", tmp_path, **{**SKYPILOT, "SKYPILOT_NUM_NODES": "3"})
    assert (done.stderr, done.returncode) == ("sky.yaml: the task has 3 nodes, and the bundle is for 2\n", 1)


def test_another_number_of_nodes_is_refused(tmp_path: Path):
    lay(K8S["two"], tmp_path)
    for variables, output in (({**PETS, "PET_NNODES": "4"}, "4"), ({}, "no")):
        done = node(K8S["two"], "trainjob.yaml", tmp_path, **variables)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"trainjob.yaml: the job has {output} nodes, and the bundle is for 2\n"


def test_no_bundle_or_another_one_is_refused(tmp_path: Path):
    missing = node(K8S["one"], "jobset.yaml", tmp_path)
    lay(spec(k8s(), "seed 7"), tmp_path)
    other = node(K8S["one"], "jobset.yaml", tmp_path)
    lay(K8S["one"], os.path.join(tmp_path, "again"))
    os.replace(os.path.join(tmp_path, "again", "run.bundle", "run.sha256"),
               os.path.join(tmp_path, "run.bundle", "run.sha256"))  # fmt: skip
    damaged = node(K8S["one"], "jobset.yaml", tmp_path)
    ends = (
        "/run.bundle is a bundle\n",
        "/run.bundle is not the one that was submitted: submit it again\n",
        "/run.bundle were changed since they were compiled: compile the spec again\n",
    )
    for done, end in zip((missing, other, damaged), ends, strict=True):
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.endswith(end)
    assert damaged.stderr.startswith("trainer_args.json: FAILED\n")


def test_a_bundle_of_the_image_is_found(tmp_path: Path):
    """If the volume has no bundle, the shell code runs the bundle in /opt, which is part of the container image."""
    script = container(K8S["one"])["command"][2]
    lay(K8S["one"], tmp_path)
    empty = os.path.join(tmp_path, "volume")
    os.mkdir(empty)
    script = script.replace("/workspace", empty).replace("/opt", str(tmp_path))
    done = subprocess.run(["bash", "-c", pinned(script)], capture_output=True, text=True, check=False)
    assert (done.stdout.split("|")[3], done.returncode) == (empty, 75), done.stderr


def test_a_member_of_a_sweep_finds_its_folder(tmp_path: Path):
    write(
        compiled(spec(k8s(), "sweep {\n  lr = [1e-5, 2e-5]\n}"), name="run.xp"),
        os.path.join(tmp_path, "run.bundle"),
    )
    member = os.path.join(tmp_path, "run.bundle", "members", "lr=2e-05")
    with open(os.path.join(member, "jobset.yaml"), encoding="utf-8") as handle:
        table = yaml.safe_load(handle)
    stubbed(member)
    pod = table["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    script = pinned(pod["command"][2]).replace("/workspace", str(tmp_path))
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout.split("|")[3], done.returncode) == (str(tmp_path), 75), done.stderr
    assert table["metadata"]["name"] == "run-lr-2e-05"
