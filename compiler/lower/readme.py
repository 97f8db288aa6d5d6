"""Write the bundle's `README.md`, which describes the run for a person who reviews it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from xpc.compiler.data.shapes import IMAGE_PAIRS, IMAGES
from xpc.compiler.engines import environment
from xpc.compiler.engines.engine import engine
from xpc.compiler.engines.install import install
from xpc.compiler.engines.vllm_server import server_options
from xpc.compiler.language.items import BASE, SPEC
from xpc.compiler.language.kinds import Weighted
from xpc.compiler.language.launch_settings import readers
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.language.typed import show
from xpc.compiler.lower.drift import drift
from xpc.compiler.lower.executes import executes
from xpc.compiler.lower.launch import batch_readers
from xpc.compiler.plan import DOES_NOT_FIT
from xpc.compiler.resolve.weights import local_models
from xpc.compiler.spec import CALLED, Spec
from xpc.compiler.spec.checked import CheckedSpec
from xpc.compiler.spec.resources import DataSource
from xpc.compiler.spec.values import Value
from xpc.compiler.stacks import Json
from xpc.grammar.diagnostic import Diagnostic

STAGED = (
    "",
    "If the machines that train have no network, run `./launch.sh --stage DIR` on one that has. It fetches what the",
    "run reads from the hub (with `--wheels` also the packages). `XPC_STAGED=DIR ./launch.sh` then trains from",
    "that folder. A submitted job with `XPC_STAGED=DIR` in its environment does the same.",
)


def readme(spec: CheckedSpec, stated: Mapping[str, Json], submit: Sequence[str]) -> str:
    """The text of README.md. Texts of the spec are escaped, so that a name cannot become markup.

    `stated` are the trainer arguments of the bundle. `submit` are the engine's lines on how to submit the run.
    """
    lines = [
        f"# {cell(spec.name)}",
        "",
        "Compiled by xpc. The files next to this page have every number of this run; `bundle.toml` has their digests.",
        *executes(spec, cell),
        "",
        "## How to start it",
        "",
        "```",
        *install(spec),
        *engine(spec).start_lines(spec),
        *(["pip install -r requirements-eval.txt", "./evaluate.sh"] if spec.get("eval.tasks") is not None else []),
        "```",
        *_flash(spec),
        *_server(spec),
        *submit,
        *_start_weights(spec),
        *_not_included(spec),
        *STAGED,
        "",
        *_facts(spec),
        "",
        "## Settings in the spec",
        "",
        *_table(spec, written=True),
        "",
        "## Defaults and derived settings",
        "",
        *_table(spec, written=False),
    ]
    if spec.extra:
        lines += ["", "## Passed on by `extra`", "", "| name | value |", "|---|---|"]
        lines += [
            f"| {library}: {cell(name)} | {cell(str(value.value))} |"
            for library, table in spec.extra.items()
            for name, value in table.items()
        ]
    lines += drift(spec, stated, cell)
    if spec.problems:
        lines += ["", "## Warnings and notes", ""]
        lines += sorted(map(finding, spec.problems))
    if spec.silenced:
        lines += ["", "## Silenced in the spec", ""]
        lines += sorted(f"{finding(one.finding)} ({cell(one.reason)})" for one in spec.silenced)
    return "\n".join(lines) + "\n"


def _facts(spec: CheckedSpec) -> list[str]:
    """The table about the run's model, data and settings."""
    hardware = spec.hardware
    gbs, micro, accum = spec.integer("batch.gbs"), spec.integer("batch.micro"), spec.integer("batch.accum")
    return [
        "| | |",
        "|---|---|",
        f"| model | {cell(spec.model.location)}{_at(spec.model.revision)} |",
        f"| architecture | {_architecture(spec)} |",
        *(f"| data | {_source(source)} |" for source in spec.data),
        *(
            f"| evaluated on | {cell(one.name)}: {_source(source)} |"
            for one in spec.evaluated
            for source in one.sources
        ),
        f"| method | {_method(spec)} |",
        *([f"| adapters | {_adapters(spec)} |"] if spec.lora else []),
        *([f"| optimizer | {_muon(spec)} |"] if spec.text("optimizer") == "muon" else []),
        *([f"| trained parts | {_frozen(spec)} |"] if spec.flag("freeze") else []),
        f"| hardware | {hardware.nodes} x ({cell(spec.text('hardware'))}) = {hardware.world} "
        f"process{'es' * (hardware.world != 1)} |",
        f"| batch | {gbs} {spec.method.counts} = {micro} x {accum} accumulation x {batch_readers(spec)}, "
        f"at most {spec.integer('batch.seq')} tokens per sequence |",
        f"| strategy | {spec.text('strategy')}, {spec.text('precision')} |",
        *(
            f"| out of memory | allowed by `--allow-oom`: {cell(one.message)} |"
            for one in spec.problems
            if one.code in DOES_NOT_FIT
        ),
        *([f"| hub | {_hub(spec)} |"] if spec.flag("save.hub") else []),
        f"| target | {spec.stack.name}: {cell(spec.stack.title)} |",
    ]


def finding(one: Diagnostic) -> str:
    """Write a warning or a note as an item of a list."""
    return f"- {one.severity} {one.code} {one.slug}: {cell(one.message)}"


_MARKUP = str.maketrans(
    {**{c: "\\" + c for c in "\\`*_{}[]#!~$"}, "<": "&lt;", ">": "&gt;", "&": "&amp;", "|": "&#124;"}
)


@lru_cache(4096)
def cell(text: str) -> str:
    """Write a text for a cell of a Markdown table: on one line, with all markup escaped."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    return text.translate(_MARKUP)


def _flash(spec: Spec) -> list[str]:
    """Lines that say what the build of flash-attn needs, and what the run uses if flash-attn is not installed."""
    if spec.text("model.attn") != "flash2":
        return []
    lines = [
        "",
        "flash-attn comes as source. Its build takes minutes to hours, and needs nvcc of the CUDA version of torch",
        "(`python -c 'import torch; print(torch.version.cuda)'`).",
    ]
    if spec.stack.facts.kernels:
        lines[-1] += f" In place of the lines for flash-attn, `pip install kernels=={spec.stack.facts.kernels}`"
        commits = "".join(f", {id} at {commit}" for id, commit in spec.kernels.items())
        lines.append(
            f"needs no compiler: transformers fetches the built kernels from the hub when the run starts{commits}."
        )
    return lines


def _server(spec: Spec) -> list[str]:
    if not spec.asks_server:
        return []
    command = f"python3 trainer/vllm_server.py {server_options(spec)}"
    if environment.stated(spec):
        command = f"bash -c '. ./environment.sh && exec {command}'"
    return [
        "",
        "Completions come from a vLLM server on its own GPUs: here, or on another machine that has this folder. Start",
        "it before `launch.sh`. The bundle tells it the model, its revision and the port, "
        f"{spec.integer('method.vllm.port')}:",
        "",
        "```",
        command,
        "```",
        "",
        "`XPC_VLLM_HOST` names the server's host for `launch.sh` (default: this machine). `XPC_VLLM` names the",
        f"server's program (`{spec.stack.facts.vllm_program}`), if the server has its own environment.",
    ]


def _start_weights(spec: Spec) -> list[str]:
    """Lines about the initial weights, if these come from an earlier run."""
    if spec.continued is not None:
        what = f"with the weights of the adapter in {cell(spec.continued.path)}, over {cell(spec.model.name)}. The"
        what += " adapter keeps its rank, alpha, targets and so on. The tokenizer and chat template are the model's, or"
        what += " those that this spec names."
    elif spec.model.of_run:
        what = f"with the weights, the tokenizer and the chat template in {cell(spec.model.name)}, the output of a run."
    else:
        return []
    new = "The optimizer, the schedule, the step count, the order of rows and the random states start afresh."
    return ["", f"Training starts {what}", new]


def _not_included(spec: Spec) -> list[str]:
    """Lines about the local folders and files that the run reads, but that the bundle does not contain. Somebody who
    takes the bundle to another machine must also take these folders and files.
    """
    files = [one for one in spec.sources if one.path]
    rows = [str(one.path) for one in files if not all(part.bundled for part in one.parts or (one,))]
    pictures = [f"the images of {one.path}" for one in files if one.shape in (IMAGES, IMAGE_PAIRS)]
    names = list(dict.fromkeys([*local_models(spec), *rows, *pictures]))
    if not names:
        return []
    shown = f"{', '.join(map(cell, names))} {'are' if len(names) > 1 else 'is'} not in this bundle"
    where = "the folder in `XPC_DATA_ROOT`, or the folder that contains this bundle"
    return ["", f"{shown}. On another machine, these paths are relative to {where}."]


def _method(spec: Spec) -> str:
    """A sentence about the method: its loss, the contents of a step, and the program that generates completions."""
    parts = [spec.text("method")]
    losses = spec.weighted("method.loss")
    if losses:
        parts.append("loss " + " + ".join(_share(one) for one in losses))
    if spec.teacher is not None:
        parts.append(f"from {spec.teacher.name}")
        parts.append(f"completions of at most {spec.integer('method.max_completion')} tokens")
    if spec.method.grouped:
        size, gbs = spec.integer("method.generations"), spec.integer("batch.gbs")
        parts.append(f"{gbs} completions per step = {gbs / size:g} prompts x {size}")
        if spec.get("method.rewards"):
            parts.append("rewards " + ", ".join(_share(one) for one in spec.weighted("method.rewards")))
        called = [cell(str(one.function)) for path in CALLED for one in spec.weighted(path)]
        if called:
            seconds = spec.integer("method.tool_timeout")
            parts.append(f"calls {', '.join(called)} while generating, {seconds} s a call at most")
        parts.append(f"by vLLM ({spec.text('method.vllm.mode')})" if spec.flag("method.vllm") else "by transformers")
    limit = spec.get("method.max_prompt")
    if limit is not None:
        kept = "cut to" if "max_prompt_length" in spec.fields() else "dropped if longer than"
        parts.append(f"prompts {kept} {limit} tokens")
    return "; ".join(parts)


def _hub(spec: Spec) -> str:
    """A sentence about the repository to which the model is pushed, and about what the machine needs for a push."""
    name, revision = spec.text("save.hub.name"), spec.get("save.hub.revision")
    parts = [f"pushes to {cell(name)}" + (f", branch {cell(revision)}" if revision is not None else "")]
    if spec.flag("save.hub.checkpoint_branches"):
        parts.append("each checkpoint to its own branch")
    return "; ".join([*parts, "needs the network, and a token with write access (HF\\_TOKEN, or hf auth login)"])


def _share(one: Weighted) -> str:
    return cell(one.name) if one.weight is None else f"{one.weight:g} x {cell(one.name)}"


def _adapters(spec: Spec) -> str:
    base = "" if spec.bits is None else f", over a base in {spec.bits} bits"
    rank, dropout, saved = spec.get("lora.rank"), spec.real("lora.dropout"), spec.names("lora.modules_to_save")
    where = ", ".join([*(spec.names("lora.targets") or ("all-linear",)), *spec.names("lora.parameters")])
    more = f"; {cell(', '.join(saved))} trained completely" if saved else ""
    if spec.get("lora.init") is not None:
        more += f", initialized by {spec.text('lora.init')}"
    if spec.get("lora.lr_ratio") is not None:
        more += f"; B matrices have {spec.real('lora.lr_ratio'):g} times the learning rate"
    dropped = f", dropout {dropout:g}"
    if spec.flag("oft"):
        shape = f"rotations of {spec.get('lora.block_size')} inputs" if rank is None else f"{rank} rotations per layer"
    elif spec.flag("vera"):
        shape = f"two vectors per layer for shared random matrices of rank {rank}"
    elif spec.flag("loha"):
        shape, dropped = f"products of two matrices of rank {rank}, alpha {spec.real('lora.alpha'):g}", ""
    elif spec.flag("miss"):
        shape = f"one matrix per layer for blocks of {rank} inputs"
    else:
        shape = f"rank {rank}, alpha {spec.real('lora.alpha'):g}"
    return f"{shape}{dropped}, on {cell(where)}{base}{more}"


def _muon(spec: Spec) -> str:
    """A sentence about the two groups of weights that a run with Muon trains, and their learning rates."""
    rate, other = spec.real("optimizer.lr"), spec.real("optimizer.adamw_lr")
    return f"Muon for hidden matrices at {rate:g}; AdamW for embeddings, head, norms and biases at {other:g}"


def _frozen(spec: Spec) -> str:
    """A sentence that says which parts of the model are trained, if the spec freezes the other parts."""
    only = spec.names("freeze.layer_modules")
    parts = [
        f"the {side} {count} layers" + (f" ({cell(', '.join(only))})" if only else "")
        for side, count in (("first", spec.get("freeze.except_first")), ("last", spec.get("freeze.except_last")))
        if count is not None
    ]
    others = (*spec.names("freeze.except_modules"), *spec.names("freeze.except_parameters"))
    return ", ".join([*parts, *map(cell, others)])


def _at(revision: str | None) -> str:
    return "" if revision is None else f" at {cell(revision)}"


def _source(source: DataSource) -> str:
    """Describe a data source in words, with its split, commit and format."""
    config = "" if source.config is None else f":{source.config}"
    part = "" if source.slice is None else f":{source.slice}"
    return f"{cell(f'{source.name}{config}[{source.split}{part}]')}{_at(source.revision)}, {source.shape}"


def _architecture(spec: Spec) -> str:
    facts = spec.model.facts
    if facts is None:
        return "unknown to the compiler"
    return (
        f"{facts.params:,} parameters, {facts.layers} layers of {facts.hidden}, {cell(facts.model_type)} "
        f"(from {cell(spec.model.known_from)})"
    )


def _table(spec: Spec, written: bool) -> list[str]:
    lines = ["| setting | value | from |", "|---|---|---|"]
    for path, value in spec.values.items():
        if path.startswith("launch.") and spec.text("launch") not in readers(BY_PATH[path]):
            continue  # skip a setting of another engine, which an extended spec states and this run does not use
        if (value.origin.kind in (SPEC, BASE)) is written:
            lines.append(f"| {path} | {cell(_value(path, value))} | {cell(value.origin.name)} |")
    return lines


def _value(path: str, value: Value) -> str:
    text = show(BY_PATH[path], value.value)
    return text if len(text) <= 200 else text[:197] + "..."
