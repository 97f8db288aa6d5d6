"""Seconds before hours: everything that can be looked at before the model is loaded, told in one go."""

from __future__ import annotations

import os
import shutil
import sys
from itertools import islice
from typing import Any

from . import hub, needs, output, rewards, rows, sources
from .bundle import Bundle
from .errors import RunError, findings, say

ROWS = 4
"""Rows of each source that are read and rendered."""
FREE = 0.9
"""Share of the planned memory that must be free: the question's own CUDA context takes some hundred MiB."""
PYTHON = ((3, 11), (3, 13))
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def check(bundle: Bundle, rank: int, local_rank: int) -> None:
    """Every check, each on the process whose business it is. Raises one RunError with all findings."""
    found: list[str] = []
    stack = versions(bundle) if local_rank == 0 else []
    found += stack
    if local_rank == 0 and not stack:  # a wrong stack makes the answers of its libraries doubtful
        found += devices(bundle) + needs.packages(bundle)
    if rank == 0:
        found += (
            disk(bundle) + output_folder(bundle) + hub.problems(bundle) + needs.tracker(bundle) + needs.port(bundle)
        )
        if not stack:
            found += rows_and_tokens(bundle)
    if found:
        error = findings(found)
        error.local = local_rank == 0  # type: ignore[attr-defined]  # this node's own finding is told by this node
        raise error


def versions(bundle: Bundle) -> list[str]:
    """Python and the installed packages against the pins. A local part (2.13.0+cpu) is no difference."""
    from importlib.metadata import PackageNotFoundError, version

    found = []
    if not PYTHON[0] <= sys.version_info[:2] <= PYTHON[1]:
        found.append(f"Python 3.11 to 3.13 is needed, and this is {sys.version.split()[0]}")
    for name, pinned in bundle.pins.items():
        try:
            installed = version(name).split("+")[0]
        except PackageNotFoundError:
            found.append(f"{name} {pinned} is not installed")
            continue
        if installed != pinned.split("+")[0]:
            found.append(f"{name} {installed} is installed, and this bundle is for {pinned}")
    if found:
        found[-1] += " (pip install -r requirements.txt)"
    return found


def devices(bundle: Bundle) -> list[str]:
    """GPU count, name, capability and memory of this node against the plan."""
    if bundle.on_cpu:
        return []
    import torch

    run = bundle.run
    needed, gpu = run["processes_per_node"], run["gpu"]
    if not torch.cuda.is_available():
        return [f"{needed} GPU(s) are needed, and torch sees none"]
    count = torch.cuda.device_count()
    if count < needed:
        return [f"{needed} GPUs are needed on this node, and torch sees {count}"]
    if gpu is None:
        return []
    found = []
    built = {int(one.removeprefix("sm_")) for one in torch.cuda.get_arch_list() if one.removeprefix("sm_").isdigit()}
    for index in range(needed):
        facts = torch.cuda.get_device_properties(index)
        memory = facts.total_memory / 2**30
        names = gpu["device_names"]
        if names and not any(one.lower() in facts.name.lower() for one in names):
            found.append(f"GPU {index} is a {facts.name}, and this bundle is for {gpu['name']}")
        elif (facts.major, facts.minor) < tuple(gpu["capability"]):
            found.append(f"GPU {index} has compute capability {facts.major}.{facts.minor}, below {gpu['capability']}")
        elif built and not any(one // 10 == facts.major and one % 10 <= facts.minor for one in built):
            found.append(
                f"torch {torch.__version__} has no kernels for GPU {index} ({facts.name}, compute capability"
                f" {facts.major}.{facts.minor}); install a build of it that has"
            )
        elif memory < gpu["memory_gib"] * 0.97:
            found.append(f"GPU {index} has {memory:.1f} GiB, and the plan counts on {gpu['memory_gib']} GiB")
        elif "WORLD_SIZE" not in os.environ:  # alone before the launch: asking leaves a CUDA context on every GPU
            found += _free(index, gpu["memory_gib"])
    return found


def _free(index: int, planned: float) -> list[str]:
    import torch

    try:
        free = torch.cuda.mem_get_info(index)[0] / 2**30
    except RuntimeError as error:
        return [f"GPU {index} cannot be used: {str(error).splitlines()[0]}"]
    if free >= FREE * planned:
        return []
    return [f"GPU {index} has {free:.1f} GiB free, and the plan counts on {planned} GiB: something else uses it"]


def disk(bundle: Bundle) -> list[str]:
    """Free space where the run writes, against the weights and the checkpoints that will be kept."""
    params = bundle.model.get("params")
    if not params:
        return []
    arguments = bundle.arguments
    weights = params * BYTES.get(bundle.model["dtype"], 4)
    kept = 0
    if arguments.get("save_strategy", "steps") != "no":
        kept = (arguments.get("save_total_limit") or 1) + 1  # one more while the next is written
    full = 0 if arguments.get("save_only_model") else params * 12  # two moments and a float32 copy
    needed = weights + kept * (weights + full)
    place = bundle.output_dir
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    free = shutil.disk_usage(place).free
    if free >= needed:
        return []
    return [f"{needed / 2**30:.1f} GiB will be written to {bundle.output_dir}, and {free / 2**30:.1f} GiB are free"]


def output_folder(bundle: Bundle) -> list[str]:
    """The rules of the output folder, before anything is loaded."""
    try:
        output.begin(bundle)
    except RunError as error:
        return [str(error)]
    return []


def rows_and_tokens(bundle: Bundle) -> list[str]:
    """The columns of every source, and what its first rows become as tokens."""
    import datasets
    import transformers

    from .model import liger_problem, load_tokenizer

    datasets.disable_progress_bars()
    found, tokenizer = [], None
    try:
        tokenizer = load_tokenizer(bundle)
    except RunError as error:
        found.append(str(error))
    if tokenizer is not None and tokenizer.chat_template and bundle.arguments.get("assistant_only_loss"):
        found += _marks(tokenizer)
    functions: list[Any] = []
    if bundle.method in ("grpo", "rloo"):
        try:
            functions = rewards.functions(bundle)
        except RunError as error:
            found.append(str(error))
    for source in bundle.data["sources"]:
        try:
            found += _source(bundle, source, tokenizer, functions)
        except RunError as error:
            found.append(str(error))
    if bundle.model["liger"]:
        if bundle.on_cpu:
            found.append("Liger's kernels need a GPU; leave liger out on a CPU")
        else:
            where = bundle.model["id"] or bundle.find(bundle.model["path"])
            kind = transformers.AutoConfig.from_pretrained(where, trust_remote_code=bundle.model["trust_remote_code"])
            problem = liger_problem(kind.model_type)
            found += [problem] if problem else []
    return found


def _marks(tokenizer: Any) -> list[str]:
    """Why the assistant's tokens cannot be told from the others, as trl would find after the model is loaded."""
    from trl.chat_template_utils import get_training_chat_template, has_generation_markers

    if has_generation_markers(tokenizer.chat_template):
        return []
    try:
        get_training_chat_template(tokenizer)
    except ValueError:
        return [
            "the chat template has no {% generation %} marks, which assistant_only needs, and is none that trl knows; "
            "name one in model"
        ]
    return []


def _source(bundle: Bundle, source: dict[str, Any], tokenizer: Any, functions: list[Any]) -> list[str]:
    evaluated = bundle.data.get("eval_split")
    try:
        first = list(islice(sources.load(bundle, source, streaming=True), ROWS))
        if evaluated and not list(islice(sources.load(bundle, source, evaluated, streaming=True), 1)):
            return [f"{sources.name(source)} has no rows in {evaluated}"]
    except RunError:
        raise
    except Exception as error:  # the datasets library wraps what its readers raise in many classes
        raise RunError(f"cannot read the first rows of {sources.name(source)}: {error}") from error
    if not first:
        return [f"{sources.name(source)} has no rows"]
    present = list(first[0])
    lacking = sources.missing_columns(source, present)
    if lacking:
        return [lacking]
    chat = bool(getattr(tokenizer, "chat_template", None))
    system, method = bundle.data.get("system"), bundle.method
    read = [rows.to_row(source, row, index, system=system, method=method, chat=chat) for index, row in enumerate(first)]
    drop = sources.dropped(source, present, bundle.method)
    columns = [*(one for one in present if one not in drop), *read[0]]
    calls = [rewards.problem(bundle, function, columns) for function in functions]
    told = [f"{sources.name(source)}: {one}" for one in calls if one]
    return told if tokenizer is None else told + _tokens(source, read, tokenizer)


def _tokens(source: dict[str, Any], read: list[dict[str, Any]], tokenizer: Any) -> list[str]:
    name, lengths, ends = sources.name(source), [], 0
    asks = source["shape"] == "prompt"
    for row in read:
        parts = [row[part] for part in ("messages", "text", "prompt", "chosen", "completion") if part in row]
        if isinstance(parts[0], str):
            text = "".join(parts)
        else:
            messages = [message for part in parts for message in part]
            if not tokenizer.chat_template:
                return [f"{name} is conversations, and the tokenizer has no chat template; name one in model"]
            if not asks and not any(message["role"] == "assistant" for message in messages):
                return [f"{name}: a conversation has no assistant turn to learn from"]
            try:
                text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=asks)
            except Exception as error:  # a template raises what its author wrote
                return [f"{name}: the chat template refuses the first rows: {error}"]
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        lengths.append(len(ids))
        ends += tokenizer.eos_token_id in ids
    if not any(lengths):
        return [f"{name}: the first rows have no tokens"]
    learnt = not asks and not isinstance(parts[0], str)
    note = "; no end token in them: the model may never stop" if learnt and not ends else ""
    if any(_part_ways(row, tokenizer) for row in read):
        note += "; prompts are tokenized otherwise alone than before their answers, which then begin where the two part"
    say(f"{name}: first {'prompts' if asks else 'rows'} have {', '.join(map(str, lengths))} tokens{note}")
    return []


def _part_ways(row: dict[str, Any], tokenizer: Any) -> bool:
    """Whether a prompt has other tokens alone than before its completion; trl cuts those off, with a warning."""
    prompt, answer = row.get("prompt"), row.get("completion", row.get("chosen"))
    if prompt is None or answer is None:
        return False
    alone, whole = prompt, prompt + answer
    if not isinstance(prompt, str):
        alone = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        whole = tokenizer.apply_chat_template(whole, tokenize=False)
    first, both = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (alone, whole))
    return bool(both[: len(first)] != first)
