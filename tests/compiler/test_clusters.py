"""`launch k8s` and `launch sky`: the files that they add, against the engines' own schemas, and what their shell does.

Kubeflow's types are those of `kubeflow-trainer-api` (TrainJob, and the JobSet and pods that it is made of), which the
dev extra pins. They read over what they do not know, so that a file must come back whole from them. SkyPilot's schemas
are in `sky_schema.json`, which names their version (tests/support/sky_schema.py).
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest
import yaml
from case_support import on_cpu, spec
from cases_clusters import GRPO, IMAGE, PROMPTS, k8s, sky
from compile_support import REPOSITORY, checked, compiled, errors, shown
from hypothesis import given
from hypothesis import strategies as st

from xpc.compiler import clusters, registry
from xpc.compiler.bundle import write
from xpc.compiler.lower.yamltext import document

SERVER = spec(GRPO.format(vllm="vllm(mode=server)"), "nodes 2", k8s(), train=PROMPTS, batch="gbs=128 micro=8")
OLD_SERVER = spec(GRPO.format(vllm="vllm(mode=server)"), k8s(), "target trl-0.18", train=PROMPTS)
TWO = ("nodes 2",)
K8S = {
    "one": spec(k8s()),
    "two": spec(*TWO, k8s(", secret=tokens, time=2d"), batch="gbs=128 micro=8"),
    "bare": spec(f'launch k8s(image="{IMAGE}")'),
    "cpu": on_cpu(*TWO, k8s(), batch="gbs=8 micro=2"),
    "never": spec(k8s(", requeue=false")),
    "server": SERVER,
    "old-server": OLD_SERVER,
}
SKY = {
    "one": spec(sky()),
    "two": spec(*TWO, sky(f'volume=shared, image="{IMAGE}"'), "track wandb", batch="gbs=128 micro=8"),
    "bucket": spec(sky('volume="s3://mine/runs"'), save='save "out/run" hub(name="me/run", private)'),
    "bare": spec("launch sky"),
    "cpu": on_cpu(*TWO, sky(), batch="gbs=8 micro=2"),
    "never": spec(sky("volume=shared, requeue=false")),
    "colocate": spec(GRPO.format(vllm="vllm(mode=colocate)"), sky(), train=PROMPTS),
}


def read(text: str, file: str, name: str = "run.xp") -> dict[str, Any]:
    """A file of the bundle, as a reader of YAML has it."""
    return dict(yaml.safe_load(compiled(text, name=name)[file]))


def trainjob(text: str) -> dict[str, Any]:
    return dict(read(text, "trainjob.yaml")["spec"])


def job(text: str, at: int = 0) -> dict[str, Any]:
    """The job of a replicated job of the JobSet."""
    return dict(read(text, "jobset.yaml")["spec"]["replicatedJobs"][at]["template"]["spec"])


def container(text: str, at: int = 0) -> dict[str, Any]:
    return dict(job(text, at)["template"]["spec"]["containers"][0])


# -- the writer -----------------------------------------------------------------------------------------------------

NAMES = st.text(max_size=12) | st.sampled_from(
    ["y", "No", "null", "1e5", "~", "a: b", "- a", "#", "&a", "", "\x85\u2028"]
)
TEXTS = NAMES | st.text(max_size=20).map(lambda text: text + "\n") | st.text("a $'\"\\\n#:|", max_size=30)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
TABLES = st.dictionaries(
    NAMES,
    st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)),
    min_size=1,
    max_size=4,
)


@given(TABLES)
def test_what_is_written_reads_back(table: dict[str, Any]):
    assert yaml.safe_load(document(table, "a comment\nof two lines")) == table


def test_a_script_stands_as_it_is():
    text = document({"run": "set -eu\n\necho 'a: #b'\n", "odd": "one line", "tab": "a\n\tb\n"}, "")
    assert "run: |\n  set -eu\n\n  echo 'a: #b'\n" in text
    assert 'tab: "a\\n\\tb\\n"\n' in text


# -- Kubernetes -----------------------------------------------------------------------------------------------------


def known(part: object, read_back: object) -> object:
    """The part of what came back from the types that the file states: they add what has a default."""
    if isinstance(part, dict) and isinstance(read_back, dict):
        return {key: known(value, read_back.get(key)) for key, value in part.items()}
    if isinstance(part, list) and isinstance(read_back, list) and len(part) == len(read_back):
        return [known(*pair) for pair in zip(part, read_back)]
    return read_back


@pytest.mark.parametrize("name", K8S)
def test_the_types_of_kubernetes_take_it_whole(name: str):
    from kubeflow_trainer_api import models

    files = compiled(K8S[name])
    table = yaml.safe_load(files["jobset.yaml"])
    model = models.JobsetV1alpha2JobSet.from_dict(table)
    assert model is not None
    assert known(table, json.loads(json.dumps(model.to_dict(), default=str))) == table
    if "server" in name:
        assert "trainjob.yaml" not in files
        return
    table = yaml.safe_load(files["trainjob.yaml"])
    train = models.TrainerV1alpha1TrainJob.from_dict(table)
    assert train is not None
    assert known(table, json.loads(json.dumps(train.to_dict(), default=str))) == table


def test_what_the_types_do_not_know_does_not_come_back():
    from kubeflow_trainer_api import models

    table = read(K8S["two"], "jobset.yaml")
    table["spec"]["replicatedJobs"][0]["template"]["spec"]["backofLimit"] = 1
    model = models.JobsetV1alpha2JobSet.from_dict(table)
    assert model is not None
    assert known(table, json.loads(json.dumps(model.to_dict(), default=str))) != table


def test_a_jobset_is_as_many_pods_as_nodes():
    one, two = job(K8S["one"]), job(K8S["two"])
    assert (one["parallelism"], one["completions"]) == (1, 1)
    assert (two["parallelism"], two["completions"], two["completionMode"]) == (2, 2, "Indexed")
    assert two["backoffLimit"] == 0
    assert two["activeDeadlineSeconds"] == 2 * 86400
    pod = two["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # or the failure policy of pods would be refused
    assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in pod["volumes"]
    found = container(K8S["two"])
    assert found["resources"] == {"requests": {"nvidia.com/gpu": 8}, "limits": {"nvidia.com/gpu": 8}}
    assert found["env"][0] == {"name": "MASTER_ADDR", "value": "run-node-0-0.run"}
    assert found["envFrom"] == [{"secretRef": {"name": "tokens"}}]
    assert "env" not in container(K8S["one"])
    assert container(K8S["cpu"])["resources"] == {"requests": {"cpu": 2}, "limits": {"cpu": 2}}


def test_who_is_started_again():
    again = read(K8S["two"], "jobset.yaml")["spec"]["failurePolicy"]
    assert again["maxRestarts"] == 3
    assert [rule["action"] for rule in again["rules"]] == ["FailJobSet", "RestartJobSetAndIgnoreMaxRestarts"]
    assert read(K8S["never"], "jobset.yaml")["spec"]["failurePolicy"] == {"maxRestarts": 0}
    nothing = spec(k8s(), save='save "out/run" every=never')
    assert read(nothing, "jobset.yaml")["spec"]["failurePolicy"] == {"maxRestarts": 0}
    rules = job(K8S["one"])["podFailurePolicy"]["rules"]
    assert rules[0]["onExitCodes"] == {"containerName": "node", "operator": "In", "values": [75]}


def test_a_trainjob_leaves_the_topology_to_its_controller():
    found = trainjob(K8S["two"])
    assert found["runtimeRef"] == {"name": "torch-distributed"}
    assert (found["trainer"]["numNodes"], found["trainer"]["numProcPerNode"]) == (2, 8)
    assert found["activeDeadlineSeconds"] == 2 * 86400
    names = [one["name"] for one in found["trainer"]["env"]]
    assert names == ["HF_TOKEN", "WANDB_API_KEY"]  # none of PET_*: its webhook refuses them
    assert all("value" not in one for one in found["trainer"]["env"])


def test_a_server_has_a_job_that_ends_with_the_training():
    for text, path, nodes in ((SERVER, "/health", 2), (OLD_SERVER, "/health/", 1)):
        table = read(text, "jobset.yaml")["spec"]
        assert [one["name"] for one in table["replicatedJobs"]] == ["vllm", "node"]
        assert table["replicatedJobs"][1]["dependsOn"] == [{"name": "vllm", "status": "Ready"}]
        assert table["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["node"]}
        assert job(text, 0)["parallelism"] == 1
        assert job(text, 1)["parallelism"] == nodes
        assert container(text, 0)["readinessProbe"]["httpGet"] == {"path": path, "port": 8000}
        assert {"name": "XPC_VLLM_HOST", "value": "run-vllm-0-0.run"} in container(text, 1)["env"]


def test_kubernetes_reads_nothing_of_the_shell():
    """It takes $(NAME) and $$ in the words of a command for its own."""
    for text in K8S.values():
        for at in range(len(read(text, "jobset.yaml")["spec"]["replicatedJobs"])):
            script = container(text, at)["command"][2]
            assert "$(" not in script
            assert "$$" not in script
    assert "$(" not in trainjob(K8S["two"])["trainer"]["command"][2]


# -- names ----------------------------------------------------------------------------------------------------------


@given(st.text("aZ9.-_", min_size=1, max_size=80))
def test_a_pod_has_a_legal_name(name: str):
    label = clusters.pod_name(name)
    assert len(f"{label}-node-0-1023-abcde") <= 63
    assert label[0].isalpha()
    assert label[-1] != "-"
    assert all(c.isdigit() or c.islower() or c == "-" for c in label)


def test_long_names_stay_apart():
    first, second = clusters.pod_name("a" * 60 + "1"), clusters.pod_name("a" * 60 + "2")
    assert first != second
    assert clusters.pod_name("7b") == "run-7b"
    assert clusters.pod_name("Qwen2.5_SFT") == "qwen2-5-sft"


def test_the_name_of_the_spec_is_the_folder_and_the_object():
    table = read(K8S["two"], "jobset.yaml", "Qwen2.5 $(x).xp")
    assert table["metadata"]["name"] == "qwen2-5---x"
    script = table["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["command"][2]
    assert "bundle=/workspace/Qwen2.5---x.bundle\n" in script


GOOD = (
    "ubuntu",
    "me/train",
    IMAGE,
    "localhost:5000/a/b-c__d.e",
    f"{IMAGE}@sha256:{0:064}",
    "nvcr.io/nvidia/pytorch:25.01-py3",
)
BAD = ("", "Me/train", "a b", "-a", "a:", "a@sha256:1", "a//b", "$(x)", "a:b:c", "docker:a", "https://a/b", "a" * 300)


def test_images():
    assert not [image for image in GOOD if clusters.image_fault(image)]
    assert not [image for image in BAD if not clusters.image_fault(image)]


@given(st.text(max_size=40))
def test_a_nearest_name_is_a_name(name: str):
    assert clusters.object_name_fault(clusters.nearest_object_name(name)) is None


# -- SkyPilot -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    with open(os.path.join(REPOSITORY, "tests", "compiler", "sky_schema.json"), encoding="utf-8") as handle:
        return dict(json.load(handle))


@pytest.mark.parametrize("name", SKY)
def test_the_schemas_of_skypilot_take_it(name: str, schemas: dict[str, Any]):
    from jsonschema import Draft202012Validator, ValidationError

    table = read(SKY[name], "sky.yaml")
    Draft202012Validator(schemas["task"]).validate(table)
    Draft202012Validator(schemas["resources"]).validate(table["resources"])
    for mount in table.get("file_mounts", {}).values():
        Draft202012Validator(schemas["file_mounts"]).validate(mount)
    with pytest.raises(ValidationError):
        Draft202012Validator(schemas["task"]).validate({**table, "nodes": 2})


def test_a_task_asks_for_the_gpus_and_names_its_secrets():
    two = read(SKY["two"], "sky.yaml")
    assert two["num_nodes"] == 2
    assert two["resources"]["accelerators"] == "H100:8"
    assert two["resources"]["image_id"] == f"docker:{IMAGE}"
    assert two["resources"]["job_recovery"] == {"max_restarts_on_errors": 3, "recover_on_exit_codes": [75]}
    assert two["secrets"] == {"WANDB_API_KEY": None}
    assert two["volumes"] == {"/workspace": "shared"}
    bucket = read(SKY["bucket"], "sky.yaml")
    assert bucket["file_mounts"] == {"/workspace": {"source": "s3://mine/runs", "mode": "MOUNT_CACHED"}}
    assert bucket["secrets"] == {"HF_TOKEN": None}
    assert read(SKY["cpu"], "sky.yaml")["resources"]["cpus"] == "2+"
    assert "job_recovery" not in read(SKY["never"], "sky.yaml")["resources"]
    setup = read(SKY["colocate"], "sky.yaml")["setup"]
    assert setup.index("requirements-vllm.txt") < setup.index("requirements.txt")


def test_every_gpu_has_a_name_or_is_refused():
    named = {gpu for gpu in registry.gpu_names() if gpu in clusters.SKY_GPUS}
    assert named == set(clusters.SKY_GPUS)
    for gpu in sorted(set(registry.gpu_names()) - named):
        found = checked(spec(sky(), hardware=f"8 x {gpu}", precision="fp32"))
        assert "XP870" in errors(found), shown(found)


# -- what the shell of a node does ----------------------------------------------------------------------------------

STUB = """\
#!/usr/bin/env bash
printf '%s|' "${NODE_RANK-}" "${MASTER_ADDR-}" "${MASTER_PORT-}" "$PWD" "${!PET_@}"
exit 75
"""


def lay(text: str, folder: object) -> None:
    """A bundle in the folder that stands for the volume, with a launch.sh that says what it was told."""
    out = os.path.join(str(folder), "run.bundle")
    write(compiled(text, name="run.xp"), out)
    with open(os.path.join(out, "launch.sh"), "w", encoding="utf-8") as handle:
        handle.write(STUB)


def node(text: str, file: str, folder: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """The shell of one node."""
    place = str(folder)
    if file == "sky.yaml":
        script = read(text, file)["run"]
    elif file == "trainjob.yaml":
        script = trainjob(text)["trainer"]["command"][2]
    else:
        script = container(text)["command"][2]
    environment = {"PATH": os.environ["PATH"], "HOME": place, **variables}
    begin = os.path.join(place, "run.bundle") if file == "sky.yaml" else place
    words = ["bash", "-c", script.replace("/workspace", place)]
    return subprocess.run(words, env=environment, cwd=begin, capture_output=True, text=True, check=False)


PETS = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "8", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "run-node-0-0.run",
        "PET_MASTER_PORT": "29500"}  # fmt: skip
SKYPILOT = {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2"}


def test_a_node_is_told_who_it_is_and_its_status_goes_out(tmp_path: object):
    lay(K8S["two"], tmp_path)
    done = node(K8S["two"], "trainjob.yaml", tmp_path, **PETS)
    assert (done.stdout, done.returncode) == (f"1|run-node-0-0.run|29500|{tmp_path}|", 75), done.stderr
    done = node(K8S["two"], "jobset.yaml", tmp_path, JOB_COMPLETION_INDEX="1", MASTER_ADDR="a", MASTER_PORT="2")
    assert (done.stdout, done.returncode) == (f"1|a|2|{tmp_path}|", 75), done.stderr


def test_a_node_of_skypilot(tmp_path: object):
    lay(SKY["two"], tmp_path)
    done = node(SKY["two"], "sky.yaml", tmp_path, **SKYPILOT)
    assert (done.stdout, done.returncode) == (f"1|10.0.0.1|8008|{tmp_path}|", 75), done.stderr
    done = node(SKY["two"], "sky.yaml", tmp_path, **{**SKYPILOT, "SKYPILOT_NUM_NODES": "3"})
    assert (done.stderr, done.returncode) == ("sky.yaml: the task has 3 nodes, and the bundle is for 2\n", 1)


def test_another_number_of_nodes_is_refused(tmp_path: object):
    lay(K8S["two"], tmp_path)
    for variables, said in (({**PETS, "PET_NNODES": "4"}, "4"), ({}, "no")):
        done = node(K8S["two"], "trainjob.yaml", tmp_path, **variables)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"trainjob.yaml: the job has {said} nodes, and the bundle is for 2\n"


def test_no_bundle_or_another_one_is_refused(tmp_path: object):
    missing = node(K8S["one"], "jobset.yaml", tmp_path)
    lay(spec(k8s(), "seed 7"), tmp_path)
    other = node(K8S["one"], "jobset.yaml", tmp_path)
    for done in (missing, other):
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.endswith("/run.bundle is the bundle that this file belongs to\n")


def test_a_bundle_of_the_image_is_found(tmp_path: object):
    """Where the volume has none; /opt is the image's."""
    script = container(K8S["one"])["command"][2]
    lay(K8S["one"], tmp_path)
    empty = os.path.join(str(tmp_path), "volume")
    os.mkdir(empty)
    script = script.replace("/workspace", empty).replace("/opt", str(tmp_path))
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout.split("|")[3], done.returncode) == (empty, 75), done.stderr
