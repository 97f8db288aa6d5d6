"""The settings of `launch`, each with the engines that read it."""

from __future__ import annotations

from xpc.compiler.language import kinds as k
from xpc.compiler.language.setting import Setting

ENGINES = ("local", "slurm", "k8s", "sky", "ray")
"""The choices of `launch`. The first one is the default."""
ALSO_CALLED = {
    "local": "none; here; bash; shell; localhost; this machine",
    "slurm": "sbatch; srun; submitit",
    "k8s": "kubernetes; kubeflow; kube; kubectl; pytorchjob; jobset; k8",
    "sky": "skypilot; aws; gcp; azure; lambda",
    "ray": "ray train; raytrain; anyscale; kuberay",
}
"""Maps an engine to other names that users write for it, such as `kuberay` for `ray`. Suggestions read this table."""
CLUSTERS = ENGINES[1:]
"""The engines that submit a run to a scheduler or a cluster: all except `local`."""

LAUNCH = (
    Setting("launch", k.CHOICE, "where the run is started: on this machine, or by a scheduler", default="local",
            head=True, choices=ENGINES),
    Setting("launch.launcher", k.CHOICE, "program that starts the processes", default="accelerate", inner=True,
            choices=("accelerate", "torchrun"), bare=False),
    Setting("launch.rendezvous", k.CHOICE, "how nodes get their ranks: from NODE_RANK (static), or from torch (c10d)",
            default="static", inner=True, choices=("static", "c10d"), bare=False),
    Setting("launch.nccl_timeout", k.DURATION, "maximum time that a collective operation waits", default=1800,
            inner=True, high=2**31 - 1, args=("ddp_timeout",)),
    Setting("launch.env", k.NAMES, "environment variables of the run on every node, as NAME=VALUE", inner=True),
    Setting("launch.setup", k.FILE, "bash script that launch.sh sources first, to load modules or an environment",
            inner=True),
    Setting("launch.retries", k.INT, "how often a run restarts from its newest checkpoint after a process died; "
            "default is three times if it saves checkpoints", inner=True, low=0, high=1000),
    Setting("launch.cpus", k.INT, "CPU cores of a node; default is one per CPU process, and on Slurm eight per GPU",
            inner=True, low=1, high=100_000, engines=CLUSTERS),
    Setting("launch.host_memory", k.INT, "host memory of a node in GiB", inner=True, low=1, high=10**6,
            engines=CLUSTERS),
    Setting("launch.partition", k.NAME, "partition of the cluster, or several with commas", inner=True,
            engines=("slurm",)),
    Setting("launch.account", k.NAME, "account that the job is charged to", inner=True, engines=("slurm",)),
    Setting("launch.qos", k.NAME, "quality of service of the job", inner=True, engines=("slurm",)),
    Setting("launch.constraint", k.TEXT, "features that the nodes must have, in sbatch's notation", inner=True,
            engines=("slurm",)),
    Setting("launch.container", k.CHOICE, "program that starts the containers of `image`", inner=True,
            choices=("pyxis", "apptainer"), bare=False, engines=("slurm",)),
    Setting("launch.mounts", k.NAMES, "additional folders in the container, as HOST:CONTAINER",
            inner=True, engines=("slurm",)),
    Setting("launch.extra_args", k.NAMES, "additional options of sbatch, `sky jobs launch` or `ray job submit`",
            inner=True, engines=("slurm", "sky", "ray")),
    Setting("launch.exclusive", k.FLAG, "take entire nodes with all their cores and memory",
            inner=True, engines=("slurm",)),
    Setting("launch.time", k.DURATION, "time limit, at which the run saves and stops", inner=True,
            high=10**9, engines=("slurm", "k8s")),
    Setting("launch.requeue", k.FLAG, "restart from the newest checkpoint after a preemption or a lost node; "
            "default is to restart if there are checkpoints", inner=True, engines=CLUSTERS),
    Setting("launch.image", k.NAME, "container image with the packages of requirements.txt",
            inner=True, engines=("slurm", "k8s", "sky")),
    Setting("launch.volume", k.NAME, "folder of the run, shared by all nodes: a PersistentVolumeClaim (k8s), a "
            "volume or a bucket as s3://name (sky), an absolute path (ray)", inner=True,
            engines=("k8s", "sky", "ray")),
    Setting("launch.secret", k.NAME, "Kubernetes secret whose keys are environment variables, such as HF_TOKEN",
            inner=True, engines=("k8s",)),
    Setting("launch.pull_secret", k.NAME, "Kubernetes secret with the password of the image's registry", inner=True,
            engines=("k8s",)),
    Setting("launch.tolerations", k.NAMES, "taints of nodes that the pods tolerate, as KEY=VALUE:EFFECT", inner=True,
            engines=("k8s",)),
    Setting("launch.node_selector", k.NAMES, "labels of the nodes that the pods may go to, as KEY=VALUE", inner=True,
            engines=("k8s",)),
)  # fmt: skip


def readers(setting: Setting) -> tuple[str, ...]:
    """The names of the engines that read a setting of `launch`."""
    return setting.engines or ENGINES
