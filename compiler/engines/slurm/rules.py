"""Rules for Slurm jobs. They check the names in `#SBATCH` lines, the time limit, further options, containers, and
exclusive nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xpc.compiler.engines.cluster_rules import image_fault
from xpc.compiler.engines.restarts import grace
from xpc.compiler.language.setting import TextPath
from xpc.compiler.rules.core.conditions import chosen
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec

WHEN = chosen("launch", "slurm")

MARKS: Mapping[TextPath, str] = {
    "launch.partition": "._+-,",
    "launch.account": "._+-@",
    "launch.qos": "._+-",
    "launch.constraint": "._+-,&|*[]()",
}
"""Maps each setting to the characters that its names may contain in addition to letters and digits."""
SHORTEST = 120
"""The shortest legal time limit, in seconds. The job asks for its stop signal one minute before the limit, and Slurm
may send the signal up to one minute earlier.
"""


@rule("XP850", "not-a-slurm-name")
def names(spec: Spec) -> Iterator[Finding]:
    """Names of partitions, accounts, QOS and constraints cannot contain spaces, quotes and other characters that have a
    meaning in an `#SBATCH` line, because each name is written into such a line.

    Why it is bad: in an `#SBATCH` line a space ends the option, `#` begins a comment, and a quote makes the words after
    it a part of the option.

    Without this rule: sbatch refuses the job, or reads an option that the spec does not state.

    Source: Slurm 22.05 `sbatch` (`_get_next_opt_line`); confirmed by running it.
    """
    for path, marks in MARKS.items():
        name, text = path.rpartition(".")[2], spec.get(path)
        if text is None:
            continue
        wrong = next((c for c in text if not (c.isascii() and (c.isalnum() or c in marks))), None)
        if wrong is None and text and (text[0].isalnum() or text[0] in "[(") and text[-1] not in ",&|":
            continue
        kept = "".join(c if c.isascii() and (c.isalnum() or c in marks) else "-" for c in text).strip(marks)
        legal = f'{name} = "{kept or "main"}"'
        yield Finding(
            spec.location(
                path, "begins or ends with punctuation" if wrong is None else f"a name cannot contain {wrong!r}"
            ),
            f"Slurm cannot read this {name} name",
            f"write `{legal}`",
        )


@rule("XP851", "time-before-a-checkpoint", "warning")
def time_for_a_checkpoint(spec: Spec) -> Iterator[Finding]:
    """`time` should be at least twice the reserve for the last checkpoint (five minutes, or more for a large model).
    When only this reserve is left of `time`, Slurm sends a signal, and the job saves a checkpoint and ends. A `time`
    below two minutes is an error, because it leaves no time to train.

    Why it is bad: a requeued job may start again and again without progress.

    Without this rule: a job with such a short `time` trains for only half of it; the other half is reserved for the
    last checkpoint.

    Source: `man sbatch` of Slurm 22.05 (`--signal`, `--time`); read, not run.
    """
    time, needed = spec.get("launch.time"), grace(spec)
    if not isinstance(time, int) or time >= 2 * needed:
        return
    longer = -(-4 * needed // 60)
    short = time < SHORTEST
    yield Finding(
        spec.location("launch.time", f"the last checkpoint may need {needed} s of these {time} s"),
        "the limit leaves no time to train" if short else "the limit leaves little time to train",
        write(f"time = {longer}m", ", or more"),
        severity="error" if short else None,
    )


@rule("XP852", "server-node-without-gpu", "warning")
def server_without_gpu(spec: Spec) -> Iterator[Finding]:
    """The vLLM server needs a GPU, because vLLM's wheels generate only on GPUs. The server's node has the same hardware
    as the training nodes.

    Why it is bad: the job cannot run.

    Without this rule: the server fails because it finds no GPU, and the job ends.

    Source: vllm's published wheels; read, not run.
    """
    if spec.on_cpu and spec.asks_server:
        yield Finding(
            spec.location("method.vllm.mode", "the server gets a node like the training nodes"),
            "the job would have no GPU for the vLLM server",
            "leave `vllm` out: transformers generates instead",
            (spec.label("hardware", "no GPU"),),
        )


OWN = (
    "job-name", "nodes", "ntasks", "ntasks-per-node", "array", "gres", "gpus", "gpus-per-node", "gpus-per-task",
    "exclusive", "cpus-per-task", "partition", "account", "qos", "constraint", "time", "signal", "requeue",
    "no-requeue", "open-mode", "output", "error", "wrap", "export", "chdir", "hold", "wait", "parsable", "test-only",
    "input", "container-image", "container-mounts", "container-workdir", "cluster-constraint", "kill-on-invalid-dep",
)  # fmt: skip
"""Options of sbatch that `extra_args` must not contain: the job file or a setting states them, or they would change how
the job is run.
"""


STATED_BY = {
    "nodes": "`nodes {value}` states it", "time": "`time = 12h` states it", "account": "`account = {value}` states it",
    "partition": "`partition = {value}` states it", "qos": "`qos = {value}` states it",
    "mem": "`host_memory` states it",
    "constraint": "`constraint` states it", "exclusive": "`exclusive` states it", "requeue": "`requeue` states it",
    "cpus-per-task": "`cpus = {value}` states it", "export": "`env` lists variables, such as NCCL_DEBUG=INFO",
    "container-mounts": "`mounts` states them", "container-image": "`image` states it",
    "array": "the members of a `sweep` become the tasks of an array",
}  # fmt: skip
"""Maps an option of sbatch to a phrase that names the setting to write instead of the option."""
OF_GPUS = ("gres", "gpus", "gpus-per-node", "gpus-per-task")


def _instead(spec: Spec, name: str, value: str) -> str:
    """The end of a help text. It says what to write instead of the option `name` with the value `value`, because the
    job file states this option itself.
    """
    count = value.rpartition(":")[2]
    if name in OF_GPUS and count.isdecimal() and spec.hardware.gpu is not None:
        return f"leave it out: `hardware {count[:6]} x {spec.hardware.gpu.name}` asks for GPUs"
    if name in OF_GPUS:
        return "leave it out: `hardware` asks for GPUs"
    setting = STATED_BY.get(name, "the job file of the bundle states it")
    return f"leave it out: {setting.format(value=value[:60] or '...')}"


@rule("XP920", "option-of-sbatch")
def further_options(spec: Spec) -> Iterator[Finding]:
    """`extra_args` must be complete options of sbatch, such as `--exclude=node13` or `--mail-type=END`, one per text;
    each becomes a `#SBATCH` line. Three kinds of options are refused: those that the job file states itself, those that
    a setting of `launch` states (for `--mem`, write `host_memory` or `exclusive`), and short options (`-N2`).

    Why it is bad: the job would not have the nodes and processes that the batch arithmetic assumes.

    Without this rule: if an option is given twice, the last one wins.

    Source: `man sbatch` of Slurm 22.05; read, not run.
    """
    for text in spec.names("launch.extra_args"):
        name, _, value = text.removeprefix("--").partition("=")
        taken = name in OWN or (name == "mem" and (spec.flag("launch.exclusive") or spec.written("launch.host_memory")))
        shaped = text.startswith("--") and name.isascii() and name.replace("-", "").isalnum() and name[:1].isalpha()
        if shaped and not taken and not set(text) & set(" \t\n\"'#\\`$") and text.isprintable():
            continue
        yield Finding(
            spec.location("launch.extra_args", "written by the bundle" if taken else "not `--name` or `--name=value`"),
            f"`{text[:60]}` cannot be passed to sbatch",
            _instead(spec, name, value)
            if taken
            else 'write complete options, such as `extra_args = ["--mail-type=END"]`; many are settings of `launch`',
        )


@rule("XP921", "container-of-slurm")
def containers(spec: Spec) -> Iterator[Finding]:
    """A job in containers must name an `image` and the program that starts it, `container = pyxis` or `container =
    apptainer`. Pyxis is a plugin of srun, and apptainer is a program on the nodes; a cluster usually has one of the
    two. The image is the name of an image in a registry, or the absolute path of a file (.sqsh for pyxis, .sif for
    apptainer). `mounts` need a `container`, too.

    Why it is bad: the run starts outside of the container, or not at all.

    Without this rule: srun refuses an option that it does not know, or the run starts outside of any container.

    Source: pyxis in `srun --help` (`--container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH`,
    `--container-mounts=SRC:DST[:FLAGS]`); tested on a Slurm without pyxis, where srun says "unrecognized option".
    """
    image, started = spec.get("launch.image"), spec.get("launch.container")
    if (image is None) is not (started is None):
        bare = started is None
        yield Finding(
            spec.location("launch.image", "nothing starts it")
            if bare
            else spec.location("launch.container", "no `image`"),
            "a container needs an image and a program that starts it",
            "leave `image` out, or name pyxis or apptainer as its `container`"
            if bare
            else "leave `container` out, or name its `image`",
        )
    if spec.get("launch.mounts") is not None and image is None and started is None:
        yield Finding(
            spec.location("launch.mounts", "there is no container"),
            "`mounts` needs a container",
            "leave `mounts` out",
        )
    if isinstance(image, str) and not image.startswith("/"):
        yield from image_fault(spec)
    elif isinstance(image, str) and (not image.isprintable() or ":" in image or "," in image):
        yield Finding(
            spec.location("launch.image", "a colon, a comma or an invisible character"),
            "this is not a valid path of a container's file",
            'write a path such as `image = "/shared/train.sqsh"`',
        )


@rule("XP922", "part-of-a-whole-node")
def part_of_a_node(spec: Spec) -> Iterator[Finding]:
    """`exclusive` cannot be combined with `cpus` or `host_memory`, because `exclusive` reserves complete nodes, with
    all cores and all memory. The job then requests `--exclusive --mem=0`, without a number of cores.

    Why it is bad: `cpus` and `host_memory` would have no effect.

    Without this rule: with `--exclusive --cpus-per-task=2`, Slurm gives the task only two cores and still reserves the
    complete node.

    Source: `man sbatch` of Slurm 22.05 (`--exclusive`, `--mem`); confirmed by running it in
    tests/launch/test_slurm_jobs.py.
    """
    for path in ("launch.cpus", "launch.host_memory"):
        if spec.flag("launch.exclusive") and spec.written(path):
            yield Finding(
                spec.location(path, "less than `exclusive` takes"),
                f"`exclusive` takes the whole node, but `{path[7:]}` asks for a part of it",
                f"leave `{path[7:]}` out, or `exclusive`",
                (spec.label("launch.exclusive", "the whole node"),),
            )
