"""Write `jobset.yaml` and `trainjob.yaml`: pods that find the bundle, set their rank, and start launch.sh.

The only text of the spec in a pod's shell code is the bundle's name, which consists of letters, digits, dots and
dashes. The code contains neither `$(` nor `$$`, because Kubernetes would expand these in a container's arguments before
the shell runs.
"""

from __future__ import annotations

from xpc.compiler.engines.containers import CACHE, FOLDER, pod_name, tokens
from xpc.compiler.engines.environment import read
from xpc.compiler.engines.k8s.names import JOBSET, TRAINJOB
from xpc.compiler.engines.pin import check
from xpc.compiler.engines.restarts import ONCE, TEMPFAIL, grace, requeues, retries
from xpc.compiler.engines.vllm_server import server_options
from xpc.compiler.engines.yamltext import document
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import Json
from xpc.grammar.package_data import read_sections

PORT = 29500
BACKOFF_LIMIT = 6
"""Kubernetes' default of `backoffLimit`: a Job fails after this many restarts of its containers (`batch/v1`)."""

SHELL = "pod.sh"
START = f"""\
{ONCE}exec bash "$bundle/launch.sh"
"""

JOBSET_COMMENT = """\
A JobSet (jobset.x-k8s.io/v1alpha2) for {nodes}, each a pod that starts launch.sh of the bundle.
After exit status {tempfail} (stopped on request, checkpoint written) or an eviction, the run is {again}
Put the bundle into {folder} of the volume, or into /opt of the image, as {place}."""
TRAINJOB_COMMENT = """\
A TrainJob of Kubeflow Trainer 2.2 or newer (trainer.kubeflow.org/v1alpha1) for {nodes}, each a pod that starts
launch.sh. The controller sets PET_* in each pod; this file has none of them.
With the published runtime a container that fails is restarted in its pod, until all pods together have been restarted
six times: {failures}
Put the bundle into {folder} of the volume, or into /opt of the image, as {place}."""


def files(spec: Spec, digest: str) -> dict[str, str]:
    """The texts of `jobset.yaml` and `trainjob.yaml` by file name. When a pod starts, it checks that its folder
    contains the bundle with the digest `digest` (`engines/pin.py`).

    With a vLLM server there is only a JobSet, because a TrainJob cannot add a job to its runtime.
    """
    out = {JOBSET: document(_jobset(spec, digest), _comment(spec, JOBSET_COMMENT))}
    if not spec.asks_server:
        out[TRAINJOB] = document(_trainjob(spec, digest), _comment(spec, TRAINJOB_COMMENT))
    return out


def location(spec: Spec) -> str:
    """The path of the bundle's folder in a pod, relative to the shared folder. A shell needs no quotes around it."""
    return spec.folder or f"{spec.name}.bundle"


def _comment(spec: Spec, text: str) -> str:
    nodes = spec.hardware.nodes
    again = "restarted." if requeues(spec) else "not restarted."
    return text.format(
        nodes=f"{nodes} node{'s' if nodes > 1 else ''}",
        tempfail=TEMPFAIL,
        again=again,
        failures=survived_failures(nodes),
        folder=FOLDER,
        place=location(spec),
    )


def survived_failures(nodes: int) -> str:
    """A phrase that says after how many failures a TrainJob still continues. This number is smaller than the Job's
    limit of restarts: one failure restarts the containers of all nodes, and the Job counts one restart per node.

    Source: Kubernetes `pkg/controller/job/job_controller.go` (pastBackoffLimitOnFailure sums the restarts of all pods).
    """
    count = (BACKOFF_LIMIT - 1) // nodes
    if count == 0:
        return "a run with this many nodes ends at its first failure."
    return f"a run like this survives {count} failure{'s' if count > 1 else ''}."


def _script(spec: Spec, file: str, digest: str, *steps: str, start: str = START) -> str:
    shared = spec.get("launch.volume") is not None
    enter = f"cd {FOLDER}" if shared else f"mkdir -p {FOLDER}\ncd {FOLDER}"
    find = read_sections(__file__, SHELL)["find"].format(enter=enter, place=location(spec), file=file, folder=FOLDER)
    find += check(digest, "$bundle", file)
    return find + (CACHE if shared else "") + "".join(steps) + start


def _trainjob(spec: Spec, digest: str) -> dict[str, Json]:
    """The manifest of the TrainJob, as a nested dict. Its key `trainer` can express only some parts of a pod. All other
    parts are patches of the training runtime's only job, `node`.
    """
    hardware = spec.hardware
    shell = read_sections(__file__, SHELL)
    steps = (shell["nodes"].format(nodes=hardware.nodes), shell["node"] if hardware.nodes > 1 else "", shell["unset"])
    trainer: dict[str, Json] = {
        "image": spec.text("launch.image"),
        "command": ["bash", "-c", _script(spec, TRAINJOB, digest, *steps)],
        "numNodes": hardware.nodes,
        "numProcPerNode": hardware.processes,
        "resourcesPerNode": _resources(spec),
    }
    secret = spec.get("launch.secret")
    if isinstance(secret, str):
        trainer["env"] = [
            {"name": one, "valueFrom": {"secretKeyRef": {"name": secret, "key": one, "optional": True}}}
            for one in dict.fromkeys(("HF_TOKEN", "WANDB_API_KEY", *tokens(spec)))
        ]
    pod: dict[str, Json] = {
        "terminationGracePeriodSeconds": grace(spec),
        "volumes": _volumes(spec),
        "containers": [{"name": "node", "volumeMounts": _mounts(spec)}],
    }
    pod.update(_node_placement(spec))
    patch: Json = {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]}
    body: dict[str, Json] = {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": trainer,
        "runtimePatches": [{"manager": "xpc", "trainingRuntimeSpec": {"template": {"spec": patch}}}],
    }
    if spec.get("launch.time") is not None:
        body["activeDeadlineSeconds"] = spec.integer("launch.time")
    name = pod_name(spec.name)
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": body,
    }


def _jobset(spec: Spec, digest: str) -> dict[str, Json]:
    name, nodes = pod_name(spec.name), spec.hardware.nodes
    again, server = requeues(spec), spec.asks_server
    env: list[Json] = []
    if nodes > 1:
        env += [
            {"name": "MASTER_ADDR", "value": f"{name}-node-0-0.{name}"},
            {"name": "MASTER_PORT", "value": str(PORT)},
        ]
    if server:
        env.append({"name": "XPC_VLLM_HOST", "value": f"{name}-vllm-0-0.{name}"})
    script = _script(spec, JOBSET, digest, read_sections(__file__, SHELL)["index"] if nodes > 1 else "")
    node: dict[str, Json] = {"name": "node", "replicas": 1}
    if server:
        node["dependsOn"] = [{"name": "vllm", "status": "Ready"}]
    container: dict[str, Json] = {**_container(spec, "node", script, env), "resources": _resources(spec)}
    node["template"] = {"spec": _job(spec, nodes, container)}
    rules: list[Json] = []
    if spec.get("launch.time") is not None:
        rules.append({"name": "late", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]})
    if again:
        why: Json = ["PodFailurePolicy"]
        rules.append(
            {"name": "asked_to_stop", "action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureReasons": why}
        )
    policy: dict[str, Json] = {"maxRestarts": retries(spec)}
    if rules:
        policy["rules"] = rules
    body: dict[str, Json] = {
        "network": {"enableDNSHostnames": True, "subdomain": name},
        "failurePolicy": policy,
        "replicatedJobs": [_server(spec, digest), node] if server else [node],
    }
    if server:  # the JobSet succeeds when the training nodes succeed, because the vLLM server never ends
        body["successPolicy"] = {"operator": "All", "targetReplicatedJobs": ["node"]}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}, "spec": body}


def _job(spec: Spec, nodes: int, container: dict[str, Json]) -> dict[str, Json]:
    """The manifest, as a nested dict, of an indexed Job of `nodes` pods. The Job fails as soon as one pod fails."""
    stopped: Json = {"containerName": container["name"], "operator": "In", "values": [TEMPFAIL]}
    out: dict[str, Json] = {
        "completionMode": "Indexed",
        "parallelism": nodes,
        "completions": nodes,
        "backoffLimit": 0,
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onExitCodes": stopped},
                {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]
        },
    }
    if spec.get("launch.time") is not None and container["name"] == "node":
        out["activeDeadlineSeconds"] = spec.integer("launch.time")
    pod: dict[str, Json] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace(spec),
        "containers": [container],
        "volumes": _volumes(spec),
        **_node_placement(spec),
    }
    out["template"] = {"spec": pod}
    return out


def _container(spec: Spec, name: str, script: str, env: list[Json]) -> dict[str, Json]:
    out: dict[str, Json] = {
        "name": name,
        "image": spec.text("launch.image"),
        "command": ["bash", "-c", script],
    }
    if env:
        out["env"] = env
    secret = spec.get("launch.secret")
    if isinstance(secret, str):
        out["envFrom"] = [{"secretRef": {"name": secret}}]
    out["volumeMounts"] = _mounts(spec)
    return out


def _server(spec: Spec, digest: str) -> dict[str, Json]:
    """The manifest, as a nested dict, of the Job that runs the vLLM server on a node of its own. The Job counts as
    ready when the server answers. The JobSet restarts the server together with the training, and stops it when the
    training ends.
    """
    start = read(spec, "$bundle") + read_sections(__file__, SHELL)["server"].format(options=server_options(spec))
    container = _container(spec, "vllm", _script(spec, JOBSET, digest, start=start), [])
    probe: Json = {"path": spec.stack.facts.vllm_health, "port": spec.integer("method.vllm.port")}
    container["readinessProbe"] = {"httpGet": probe, "periodSeconds": 10}
    container["resources"] = _resources(spec)
    return {"name": "vllm", "replicas": 1, "template": {"spec": _job(spec, 1, container)}}


def _resources(spec: Spec) -> dict[str, Json]:
    """The resource requests and limits of a pod: one GPU or one core for each process. Kubernetes takes missing
    requests from the limits, but Kubeflow Trainer 2.0 starts only one process on a node without requests. So both are
    written.
    """
    count: dict[str, Json] = {"cpu" if spec.on_cpu else "nvidia.com/gpu": spec.hardware.processes}
    requests: dict[str, Json] = dict(count)
    if spec.get("launch.cpus") is not None:
        requests["cpu"] = spec.integer("launch.cpus")
        if spec.on_cpu:
            count["cpu"] = spec.integer("launch.cpus")
    if spec.get("launch.host_memory") is not None:
        requests["memory"] = count["memory"] = f"{spec.integer('launch.host_memory')}Gi"
    return {"requests": requests, "limits": count}


def _node_placement(spec: Spec) -> dict[str, Json]:
    """A pod's node selector, tolerations and pull secret."""
    out: dict[str, Json] = {}
    if spec.get("launch.node_selector") is not None:
        labels = (one.partition("=") for one in spec.names("launch.node_selector"))
        out["nodeSelector"] = {key: value for key, _, value in labels}
    if spec.get("launch.tolerations") is not None:
        out["tolerations"] = [_toleration(one) for one in spec.names("launch.tolerations")]
    if spec.get("launch.pull_secret") is not None:
        out["imagePullSecrets"] = [{"name": spec.text("launch.pull_secret")}]
    return out


def _toleration(text: str) -> Json:
    """Convert a taint in kubectl's notation, `key=value:effect`, to a toleration. If the value or the effect is
    missing, the toleration matches every value or every effect.
    """
    taint, _, effect = text.partition(":")
    key, equals, value = taint.partition("=")
    out: dict[str, Json] = {"key": key, "operator": "Equal" if equals else "Exists"}
    out.update({"value": value} if equals else {})
    out.update({"effect": effect} if effect else {})
    return out


def _volumes(spec: Spec) -> list[Json]:
    """The volumes of a pod: the volume claim, and shared memory of unlimited size for NCCL and the data loaders."""
    out: list[Json] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    claim = spec.get("launch.volume")
    if isinstance(claim, str):
        out.append({"name": "workspace", "persistentVolumeClaim": {"claimName": claim}})
    return out


def _mounts(spec: Spec) -> list[Json]:
    out: list[Json] = [{"name": "shm", "mountPath": "/dev/shm"}]
    if spec.get("launch.volume") is not None:
        out.append({"name": "workspace", "mountPath": FOLDER})
    return out
