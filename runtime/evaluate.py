"""Evaluate the trained model with lm-evaluation-harness; evaluate.sh starts this module in each process.

If this file is run as a program, it makes its folder a package, so that relative imports work.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

if not __package__:
    sys.path[0], __package__ = os.path.split(os.path.dirname(os.path.abspath(__file__)))
    _kept, sys.pycache_prefix = sys.pycache_prefix, os.devnull  # read no bytecode of this folder (see __init__.py)
    __import__(__package__)
    sys.pycache_prefix = _kept

from .core import arguments, output_folder, progress
from .core import bundle as bundles
from .core.errors import RunError, rank, say, stop
from .core.feature import Bundle, Model
from .core.metrics_file import replace
from .enabled import FEATURES
from .features.launch.verified_files import verified
from .library_internals import lm_eval_harness, progress_bars

FORMAT = 1
RESULTS = os.path.join("eval", "results.json")


def main(folder: str, words: Sequence[str]) -> int:
    """The program, which takes no arguments. Returns the exit status: 0, 1, 2 or 130."""
    if words:
        print(f"error: unknown argument {words[0]!r}; this program takes no arguments", file=sys.stderr)
        return 2
    progress.watch()
    progress.now("importing the harness")
    try:
        bundle = bundles.read(folder, FEATURES)
        plan = _plan(bundle)
        arguments.prepare_environment(bundle)
        _installed(plan["harness"])
        _trained(bundle)
        if plan["allow_code_execution"]:
            # the metric `code_eval` of the package evaluate runs only if this variable is set
            os.environ["HF_ALLOW_CODE_EVAL"] = "1"
        _evaluate(bundle, plan)
    except RunError as error:
        return stop(error)
    except KeyboardInterrupt:
        say("stopped; nothing is written")
        return 130
    return 0


def _plan(bundle: Bundle) -> Mapping[str, Any]:
    path = bundle.inside("evaluation.json")
    if not os.path.exists(path):
        raise RunError("this bundle names no tasks: write `eval(tasks=[...])` in the spec, and compile it again")
    with open(path, encoding="utf-8") as handle:
        plan: dict[str, Any] = json.load(handle)
    if plan.get("format") != FORMAT:
        raise RunError(f"evaluation.json has format {plan.get('format')!r}; this runtime reads format {FORMAT}")
    return plan


def _installed(pinned: str) -> None:
    from importlib.metadata import PackageNotFoundError, version

    how = "pip install -r requirements-eval.txt"
    try:
        found = version("lm-eval")
    except PackageNotFoundError:
        raise RunError(f"this evaluation needs lm-eval, which is not installed ({how})") from None
    if found != pinned:
        raise RunError(f"lm-eval {found} is installed, and this bundle is for {pinned} ({how})")


def _trained(bundle: Bundle) -> None:
    """Raise RunError unless the final model is in the output folder. A checkpoint is not enough."""
    place = bundle.output_dir
    names = set(os.listdir(place)) if os.path.isdir(place) else set()
    config = "adapter_config.json" if bundle.lora is not None else "config.json"
    if config not in names or not any(name.endswith(".safetensors") for name in names):
        raise RunError(
            f"no trained model is in {place}: train with ./launch.sh first, and start both in the same folder"
        )
    if output_folder.difference(bundle):
        raise RunError(f"{place} contains a run of another bundle; evaluate it with the evaluate.sh of that bundle")


def model_arguments(bundle: Bundle, plan: Mapping[str, Any]) -> dict[str, object]:
    """Arguments of lm-eval's class for transformers models: for the trained model, or for the base and its adapter."""
    place, model = bundle.output_dir, bundle.model
    out: dict[str, Any] = {"pretrained": place}
    if bundle.lora is not None and model.get("rope"):  # the RoPE scaling is not in the base's own config.json
        out = {"pretrained": os.path.join(place, "merged")}
    elif bundle.lora is not None:
        out = {"pretrained": bundle.model_path, "peft": place, "tokenizer": place}
        if model["id"] is not None and model["revision"]:
            out["revision"] = model["revision"]
    return {
        **out,
        "dtype": plan["dtype"],
        "batch_size": plan["batch_size"],
        "device": "cpu" if bundle.on_cpu else "cuda",
        "parallelize": plan["parallelize"],
        "trust_remote_code": model["trust_remote_code"],
    }


def _model(bundle: Bundle, plan: Mapping[str, Any]) -> Any:
    options: dict[str, Any] = {}
    for feature in bundle.features if bundle.lora is not None else ():
        feature.model_options(bundle, options)
    return lm_eval_harness.model(options.get("quantization_config"), **model_arguments(bundle, plan))


def _tasks(bundle: Bundle, plan: Mapping[str, Any]) -> list[Any]:
    """The names of the tasks, and the contents of task files, in which relative data paths are made absolute."""
    sys.dont_write_bytecode = True  # write no bytecode next to task files: verified_folder refuses added files
    out: list[Any] = []
    for task in plan["tasks"]:
        if task["file"] is None:
            out.append(task["name"])
            continue
        path = bundle.inside(task["file"])
        verified_folder(bundle, os.path.dirname(task["file"]))  # lm_eval runs Python files of this folder
        config = lm_eval_harness.task(path)
        given = config.get("dataset_kwargs") or {}
        if "data_files" in given:
            files = _next_to(os.path.dirname(path), given["data_files"])
            config["dataset_kwargs"] = {**given, "data_files": files}
        out.append(config)
    return out


def verified_folder(bundle: Bundle, folder: str) -> None:
    """Raise RunError if a file in this folder of the bundle was changed, or a file was added."""
    digests = bundles.manifest_digests(bundle.folder)
    for where, _, names in os.walk(bundle.inside(folder)):
        for one in names if digests else ():
            name = os.path.relpath(os.path.join(where, one), bundle.folder).replace(os.sep, "/")
            if "__pycache__" in name.split("/"):
                raise RunError(f"{name} is compiled code that cannot be checked: delete its folder __pycache__")
            if name not in digests:
                raise RunError(f"{name} is not a file that this bundle was compiled with")
            verified(bundle, name, digests)


def _next_to(folder: str, files: Any) -> object:
    if isinstance(files, str):
        path = os.path.join(folder, files)
        return path if os.path.exists(path) else files
    if isinstance(files, list):
        return [_next_to(folder, one) for one in files]
    return {key: _next_to(folder, one) for key, one in files.items()} if isinstance(files, dict) else files


def _bits(model: Model) -> int | None:
    """The bits of the loaded weights according to transformers; None if they are not quantized."""
    loaded = {bits: getattr(model.model, f"is_loaded_in_{bits}bit", False) for bits in (4, 8)}
    return next((bits for bits, is_so in loaded.items() if is_so), None)


def _evaluate(bundle: Bundle, plan: Mapping[str, Any]) -> None:
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager
    from lm_eval.utils import handle_non_serializable, make_table

    progress_bars.capture(rank() == 0)
    tasks = _tasks(bundle, plan)
    progress.now("loading the model")
    model = _model(bundle, plan)
    chat = getattr(model.tokenizer, "chat_template", None) is not None
    manager = TaskManager(include_defaults=any(isinstance(task, str) for task in tasks))
    lm_eval_harness.record_commit_silently()
    progress.now("evaluating")
    found = simple_evaluate(
        model=model,
        tasks=tasks,
        batch_size=plan["batch_size"],
        task_manager=manager,
        apply_chat_template=chat,
        fewshot_as_multiturn=chat,
        log_samples=False,
        confirm_run_unsafe_code=plan["allow_code_execution"],
    )
    if found is None or rank() != 0:
        return
    path = os.path.join(bundle.output_dir, RESULTS)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    data = {"harness": plan["harness"], "bundle": bundle.digest, "chat_template": chat, "bits": _bits(model), **found}
    replace(path, [json.dumps(data, indent=2, default=handle_non_serializable, ensure_ascii=False)])
    print(make_table(found), flush=True)
    if found.get("groups"):
        print(make_table(found, "groups"), flush=True)
    say(f"results in {path}")


if __name__ == "__main__":
    sys.exit(main(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), sys.argv[1:]))
