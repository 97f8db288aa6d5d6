"""The files that `launch k8s` and `launch sky` add have the form that the engines' own schemas require.

Kubeflow's types (TrainJob, and the JobSet and pods in it) come from `kubeflow-trainer-api`, which the dev extra pins.
These types drop unknown fields silently. So the tests convert each file to the types and back, and compare the result
with the file: a field that is missing in the result is unknown to the types. SkyPilot's schemas are in
`sky_schema.json`, which names their version (tests/engines/write_sky_schema.py).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from case_support import spec
from cluster_support import IMAGE, K8S, OLD_SERVER, SERVER, SKY, container, job, k8s, read, sky, trainjob
from compile_support import REPOSITORY, checked, compiled, edited, errors, only, put, shown, xpc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xpc.compiler import registry
from xpc.compiler.engines import containers
from xpc.compiler.engines.sky.catalog import gpu_names
from xpc.compiler.engines.yamltext import document

pytestmark = pytest.mark.slow

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


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(TABLES)
def test_what_is_written_reads_back(table: dict[str, Any]):
    assert yaml.safe_load(document(table, "a comment\nof two lines")) == table
    assert "\\U00010000" in document({"first above 16 bits": "\U00010000"}, "")


def test_a_script_stands_as_it_is():
    text = document({"run": "set -eu\n\necho 'a: #b'\n", "odd": "one line", "tab": "a\n\tb\n"}, "")
    assert "run: |\n  set -eu\n\n  echo 'a: #b'\n" in text
    assert 'tab: "a\\n\\tb\\n"\n' in text


# -- Kubernetes -----------------------------------------------------------------------------------------------------


def known(part: object, read_back: object) -> object:
    """Reduce `read_back` to the fields that `part` has. `read_back` went through Kubeflow's types, which add fields
    with default values.
    """
    if isinstance(part, dict) and isinstance(read_back, dict):
        return {key: known(value, read_back.get(key)) for key, value in part.items()}
    if isinstance(part, list) and isinstance(read_back, list) and len(part) == len(read_back):
        return [known(*pair) for pair in zip(part, read_back)]
    return read_back


@pytest.mark.parametrize("name", K8S)
def test_types_of_kubernetes_accept_the_complete_job(name: str):
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
    # Kubernetes requires the restart policy `Never` for a job with a pod failure policy
    assert pod["restartPolicy"] == "Never"
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
    assert names == ["HF_TOKEN", "WANDB_API_KEY"]  # no PET_* variables: the controller's webhook refuses them
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
    """No command contains $(NAME) or $$, because Kubernetes would replace them before the shell runs."""
    for text in K8S.values():
        for at in range(len(read(text, "jobset.yaml")["spec"]["replicatedJobs"])):
            script = container(text, at)["command"][2]
            assert "$(" not in script
            assert "$$" not in script
    assert "$(" not in trainjob(K8S["two"])["trainer"]["command"][2]


# -- names ----------------------------------------------------------------------------------------------------------


@given(st.text("aZ9.-_", min_size=1, max_size=80))
def test_a_pod_has_a_legal_name(name: str):
    label = containers.pod_name(name)
    assert len(f"{label}-node-0-1023-abcde") <= 63
    assert label[0].isalpha()
    assert label[-1] != "-"
    assert all(c.isdigit() or c.islower() or c == "-" for c in label)


def test_long_names_stay_apart():
    first, second = containers.pod_name("a" * 60 + "1"), containers.pod_name("a" * 60 + "2")
    assert first != second
    assert containers.pod_name("7b") == "run-7b"
    assert containers.pod_name("Qwen2.5_SFT") == "qwen2-5-sft"


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


def test_names_of_container_images_are_checked():
    assert not [image for image in GOOD if containers.image_fault(image)]
    assert not [image for image in BAD if not containers.image_fault(image)]


@pytest.mark.parametrize(
    "written", ["nvcr.io#nvidia/pytorch:25.01-py3", "docker://nvcr.io#nvidia/pytorch:25.01-py3", "docker:a/b:1"]
)
def test_the_name_of_an_image_as_enroot_writes_it_gets_the_same_name_in_our_form(written: str):
    text = spec(f'launch slurm(container=pyxis, image="{written}")')
    found = only(checked(text), "XP921")
    after = edited(text, found)
    assert written.rpartition("/")[2] in after
    assert errors(checked(after)) == []


@given(st.text(max_size=40))
def test_a_nearest_name_is_a_name(name: str):
    assert containers.object_name_fault(containers.nearest_object_name(name)) is None


@pytest.mark.parametrize(("name", "near"), [("My_Run..2", "my-run.2"), ("-a-.b", "a.b"), ("..", "my-name")])
def test_a_nearest_name_keeps_what_is_legal(name: str, near: str):
    assert containers.nearest_object_name(name) == near


EVIL = (
    "$(id)",
    "`id`",
    "a'b",
    'a"b',
    "a b",
    "a#b",
    "&a",
    "*a",
    "yes",
    "null",
    "1e5",
    "0x1",
    "~",
    "a\\b",
    "-rf",
    "a:b",
    "a.b-c",
)
SLOTS = {
    "image": lambda text: spec(f"launch k8s(image={text}, volume=claim)"),
    "claim": lambda text: spec(f'launch k8s(image="{IMAGE}", volume={text})'),
    "secret": lambda text: spec(k8s(f", secret={text}")),
    "volume": lambda text: spec(f"launch sky(volume={text})"),
    "bucket": lambda text: spec(f"launch sky(volume={text[0]}s3://{text[1:]})"),
    "sky-image": lambda text: spec(f"launch sky(volume=shared, image={text})"),
}


def leaves(node: object) -> set[object]:
    if isinstance(node, dict):
        return {one for item in node.values() for one in leaves(item)}
    return {one for item in node for one in leaves(item)} if isinstance(node, list) else {node}


@pytest.mark.parametrize("slot", SLOTS)
@settings(max_examples=40)
@given(st.sampled_from(EVIL) | st.text(max_size=12))
def test_a_text_is_refused_or_stands_as_it_is(slot: str, text: str):
    """A hostile text is refused, or appears unchanged as one value of the YAML. All other values, including the shell
    code, are the same as for the harmless text "plain".
    """
    written = SLOTS[slot](json.dumps(text))
    if checked(written, name="run.xp").spec is None:
        return
    file = "jobset.yaml" if "k8s" in written else "sky.yaml"
    table, plain = read(written, file), read(SLOTS[slot]('"plain"'), file)
    whole = {"bucket": f"s3://{text}", "sky-image": f"docker:{text}"}.get(slot, text)
    old = {"bucket": "s3://plain", "sky-image": "docker:plain"}.get(slot, "plain")
    assert leaves(table) == (leaves(plain) - {old}) | {whole}


# -- SkyPilot -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    with open(os.path.join(REPOSITORY, "tests", "engines", "sky_schema.json"), encoding="utf-8") as handle:
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
    secrets = ("WANDB_API_KEY", "CLEARML_API_ACCESS_KEY", "CLEARML_API_SECRET_KEY")
    assert two["secrets"] == dict.fromkeys(secrets)
    assert two["volumes"] == {"/workspace": "shared"}
    bucket = read(SKY["bucket"], "sky.yaml")
    assert bucket["file_mounts"] == {"/workspace": {"source": "s3://mine/runs", "mode": "MOUNT_CACHED"}}
    assert bucket["secrets"] == {"HF_TOKEN": None}
    assert read(SKY["cpu"], "sky.yaml")["resources"]["cpus"] == "2+"
    assert "job_recovery" not in read(SKY["never"], "sky.yaml")["resources"]
    requested = read(SKY["options"], "sky.yaml")["resources"]
    assert (requested["cpus"], requested["memory"]) == ("32+", "400+")
    assert requested["job_recovery"]["max_restarts_on_errors"] == 9
    setup = read(SKY["colocate"], "sky.yaml")["setup"]
    assert setup.splitlines() == ["set -e", "python3 -m pip install -r requirements.txt"]
    flash = read(SKY["flash"], "sky.yaml")["setup"].splitlines()
    assert flash[1] == "python3 -m pip install -r requirements.txt"
    assert flash[3] == "python3 -m pip install --no-build-isolation -r requirements-flash.txt"


def test_every_gpu_has_a_name_or_is_refused():
    named = {gpu for gpu in registry.gpu_names() if gpu in gpu_names()}
    assert named == set(gpu_names())
    for gpu in sorted(set(registry.gpu_names()) - named):
        found = checked(spec(sky(), hardware=f"8 x {gpu}", precision="fp32"))
        assert "XP870" in errors(found), shown(found)


def test_a_child_may_have_another_launcher(tmp_path: Path):
    base = spec(k8s(", secret=tokens, time=2h"))
    put(tmp_path, {"base.xp": base})
    for launch in ("launch local", "launch sky(volume=shared)"):
        found = checked(f'xpc 1\nextends "base.xp"\n{launch}\n', str(tmp_path))
        assert not errors(found), shown(found)
        again = compiled(f'xpc 1\nextends "base.xp"\n{launch}\n', str(tmp_path))["spec.xp"]
        assert not errors(checked(again))
    own = checked('xpc 1\nextends "base.xp"\nlaunch local(secret=mine)\n', str(tmp_path))
    assert errors(own) == ["XP890"], shown(own)


SWEPT = "sweep {\n  lr = [1e-5, 2e-5]\n}"


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (K8S["one"], "kubectl apply -f './a b/jobset.yaml'"),
        (
            SKY["two"],
            "cd -- './a b' && sky jobs launch --secret WANDB_API_KEY --secret CLEARML_API_ACCESS_KEY "
            "--secret CLEARML_API_SECRET_KEY sky.yaml",
        ),
        (spec(k8s(), SWEPT), "for file in './a b/members'/*/jobset.yaml; do kubectl apply -f \"$file\"; done"),
        (
            spec(sky(), SWEPT),
            "for member in './a b/members'/*; do (cd -- \"$member\" && sky jobs launch sky.yaml); done",
        ),
    ],
    ids=["k8s", "sky", "k8s-sweep", "sky-sweep"],
)
def test_submit_command_is_printed(text: str, command: str, tmp_path: Path):
    done = xpc("compile", "run.xp", "-o", "./a b", cwd=put(tmp_path, {"run.xp": text}))
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines()[-1] == f"  {command}"
