"""Prepare the rows of a run once, without a GPU: ``launch.sh --prepare DIR``. A run with XPC_PREPARED=DIR reads them.

The bundle's own code and trl convert, tokenize, cut and pack the rows. A tiny model replaces the run's model. Each
result of ``Dataset.map`` is kept in DIR, in a folder whose name is a digest of everything that determines the rows. The
run makes the same calls of ``Dataset.map``, which then read these results.
"""

import argparse
import json
import os
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not __package__:
    if __name__ == "__main__":
        sys.path[0] = os.path.dirname(os.path.abspath(__file__))
    __package__ = "trainer"
    _kept, sys.pycache_prefix = sys.pycache_prefix, os.devnull  # read no bytecode of this folder (see __init__.py)
    __import__(__package__)
    sys.pycache_prefix = _kept

if TYPE_CHECKING:
    from .core.feature import Bundle, Feature, Model, Rows, Tokenizer
    from .core.token_counts import TokenCounts

INDEX = "prepared.json"
"""The last file that is written. It lists the ``Dataset.map`` calls and the files of their results, and has the counts.
"""
CODE = ("trainer/core/data", "trainer/core/rows", "trainer/features/rows/", "trainer/library_internals/trl_", "files/")
"""Beginnings of the names of bundle files on which the rows depend: code, templates, and other files of the spec."""
TOKENIZER = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "*.jinja", "*.model")
"""Files of a local model that decide how texts become tokens."""
COMMIT = 40
"""A revision with this many hex digits is a commit. Any other revision is a branch or tag, whose commit can change."""
PINS = ("datasets", "tokenizers", "transformers", "trl")
COMPUTING = (
    "accelerator_config", "activation_", "adam_", "average_tokens", "bf16", "ddp_", "dataloader_", "deepspeed",
    "disable_", "fp16", "fsdp", "full_determinism", "gradient_", "greater_", "hub_", "label_smoothing", "learning_rate",
    "load_best", "logging_", "lr_", "max_grad", "max_steps", "metric_for", "neftune", "num_train", "optim",
    "output_dir", "parallelism", "per_device_eval", "push_", "report_", "restore_", "resume_", "run_name", "save_",
    "tf32", "torch_", "use_cpu", "use_liger", "vllm_", "warmup", "weight_decay",
)  # fmt: skip
"""Arguments whose names begin with these texts decide how a run computes, logs or saves, but not its rows."""
OFF: Mapping[str, Any] = {
    "activation_checkpointing": False, "activation_offloading": False, "bf16": False, "bf16_full_eval": False,
    "ddp_backend": None, "eval_on_start": False, "eval_strategy": "no", "fp16": False, "fp16_full_eval": False,
    "gradient_checkpointing": False, "load_best_model_at_end": False, "optim": "adamw_torch", "optim_args": None,
    "optim_target_modules": None, "precompute_ref_log_probs": False, "push_to_hub": False, "report_to": [],
    "save_strategy": "no", "sync_ref_model": False, "tf32": None, "torch_compile": False, "use_liger_kernel": False,
    "use_liger_loss": False, "use_vllm": False,
}  # fmt: skip
"""Values for arguments that may need a GPU, weights or several processes. They replace the run's values, but an
argument that the run does not set stays unset."""
DROPPED = (
    "activation_checkpointing_kwargs", "deepspeed", "fsdp", "fsdp_config", "gradient_checkpointing_kwargs",
    "parallelism_config",
)  # fmt: skip
ELSEWHERE = ("distributed", "evaluation", "optimizer", "saving", "streaming", "library_internals")
"""Folders of the runtime and of its ``features/``. Their features do not change how rows are prepared."""
MODELS = (
    "adapters", "compiled_layers", "continued_adapter", "frozen_weights", "liger", "liger_family", "merged_adapters",
    "packages", "reward_head", "rewards", "teacher", "tied_weights", "tokenizer_files", "tools",
    "weight_dtypes",
)  # fmt: skip
"""Modules whose features do not change how rows are prepared: they load or change models, or call the user's functions.
"""
Mapped = Callable[..., Any]


def key(plan: Mapping[str, Any], manifest: Mapping[str, Any], model: str | None) -> str:
    """The digest of everything that decides the rows of a run: its trainer_args.json and bundle.toml, and the folder
    of a local model.
    """
    arguments = {name: one for name, one in plan["arguments"].items() if not name.startswith(COMPUTING)}
    if plan["method"]["name"] != "kto":  # KTO's rows for the KL term depend on the batch size
        arguments.pop("per_device_train_batch_size", None)
    files = {name: one for name, one in manifest["files"].items() if name.startswith(CODE)}
    tokenizer = {}
    for pattern in TOKENIZER if model is not None else ():
        for path in Path(str(model)).glob(pattern):
            tokenizer[path.name] = sha256(path.read_bytes()).hexdigest()
    data = {name: one for name, one in plan["data"].items() if name != "workers"}
    names = {name: plan["model"][name] for name in ("id", "revision")}
    decisive = [
        plan["target"], plan["method"]["name"], plan["config"], arguments, data, names, plan["tokenizer"], files,
        tokenizer, {name: manifest["pins"].get(name) for name in PINS},
    ]  # fmt: skip
    return sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:32]


def unpinned(bundle: "Bundle") -> list[str]:
    """The hub tokenizer and hub sources that are not pinned to a commit, so that the rows may change later."""
    found = (bundle.model, *bundle.sources())
    return [name for one in found if (name := one["id"]) and len(one["revision"] or "") != COMMIT]


def concerns_rows(feature: "Feature") -> bool:
    """Whether a feature of the runtime changes how rows are prepared."""
    parts = type(feature).__module__.split(".")
    return not (set(parts) & set(ELSEWHERE) or parts[-1] in MODELS)


def tiny_model(bundle: "Bundle", tokenizer: "Tokenizer") -> Any:
    """The smallest model that trl's constructors accept: one layer of width 8 over the tokenizer's vocabulary.

    Only the class and the configuration of this model matter.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

    from .core.model import align_tokens

    config = LlamaConfig(
        vocab_size=max(len(tokenizer), max(tokenizer.get_vocab().values()) + 1), hidden_size=8, intermediate_size=8,
        num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, num_labels=1,
        max_position_embeddings=2**20, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
    )  # fmt: skip
    kind = LlamaForSequenceClassification if bundle.plan["method"]["scores"] else LlamaForCausalLM
    config.name_or_path, config.architectures = bundle.model_path, [kind.__name__]
    with torch.random.fork_rng(devices=[]):
        model = kind(config)
    model.config.use_cache = False
    align_tokens(model, tokenizer)
    return model.eval()


def stub_feature() -> "Feature":
    """A feature that passes stand-ins to trl's constructor: rewards that return 0, and a tiny teacher."""
    from .core.feature import Bundle, Feature

    class StubFeature(Feature):
        """Hooks for the preparation of rows, which needs neither real rewards nor the real teacher."""

        def trainer_options(
            self, bundle: Bundle, model: "Model", load: Callable[[], Any], options: dict[str, Any]
        ) -> None:
            """Add stand-ins for the rewards and the teacher to the arguments of the trainer's constructor."""
            plan = bundle.plan["method"]
            if plan["rewarded"]:
                from .features.method.rewards import ignore_token_types

                options["reward_funcs"] = [_no_reward for _ in plan["rewards"] or (None,)]
                ignore_token_types(options["processing_class"], model)
            if plan["teacher"]:
                options["teacher_model"] = load().requires_grad_(False)

    return StubFeature()


def _no_reward(prompts: Sequence[object], **_: object) -> list[float]:
    return [0.0] * len(prompts)


def main(folder: str, words: Sequence[str]) -> int:
    """Run the program. Returns the exit status."""
    from .core.errors import RunError, say, stop

    parser = argparse.ArgumentParser(prog="launch.sh --prepare", allow_abbrev=False)
    parser.add_argument("DIR", help="folder for the prepared rows; several bundles can share it")
    place = os.path.abspath(parser.parse_args(list(words)).DIR)
    try:
        _prepare(folder, place)
    except RunError as error:
        return stop(error)
    except KeyboardInterrupt:
        say("stopped; nothing is kept")
        return 130
    return 0


def _prepare(folder: str, place: str) -> None:
    from .core import arguments
    from .core import bundle as bundles
    from .core.errors import RunError, say
    from .enabled import FEATURES

    bundle = bundles.read(folder, [*(one for one in FEATURES if concerns_rows(one)), stub_feature()])
    if bundle.data.get("streaming"):
        raise RunError("the rows are a stream, which the run converts and tokenizes while it trains")
    if any(one["shape"] in ("images", "image_preference") for one in bundle.sources()):
        raise RunError("rows with images cannot be prepared: images are opened only when a batch is made")
    moving = unpinned(bundle)
    if moving:
        raise RunError(f"{', '.join(moving)} may change, and prepared rows would not: pin the commits with `xpc lock`")
    target = os.path.join(place, _key(bundle))
    if os.path.exists(os.path.join(target, INDEX)):
        say(f"{target} has the rows of this run already")
        return
    stated = bundle.arguments
    values = {name: OFF.get(name, value) for name, value in stated.items() if name not in DROPPED}
    bundle.arguments = values | {"use_cpu": True, "disable_tqdm": True, "dataloader_num_workers": 0}
    for name in ("dataloader_prefetch_factor", "dataloader_persistent_workers"):
        bundle.arguments.pop(name, None)
    os.environ.update(CUDA_VISIBLE_DEVICES="", DS_ACCELERATOR="cpu", TOKENIZERS_PARALLELISM="false")
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        os.environ.pop(name, None)
    arguments.prepare_environment(bundle)
    part = f"{target}.{os.getpid()}"
    os.makedirs(part)
    try:
        counts = _prepared(bundle, part)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(part, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    say(f"{counts['rows']:,} rows are prepared in {target}; the run reads them with XPC_PREPARED={place}")


def _prepared(bundle: "Bundle", folder: str) -> dict[str, object]:
    """Prepare the rows into a folder, and return the counts of rows and tokens."""
    import datasets

    from .core import arguments, data, truncation
    from .core import trainer as trainers
    from .core.model import load_tokenizer
    from .enabled import trainer_class
    from .library_internals.datasets_rows import map_replaced

    datasets.disable_progress_bars()
    datasets.disable_caching()  # Shuffles and selections are not stored, because the run repeats them.
    args = arguments.build_arguments(bundle)
    tokenizer = load_tokenizer(bundle)
    calls: list[dict[str, Any]] = []
    lengths: list[Any] = []
    with map_replaced(_writing(folder, calls, tokenizer)):
        rows, evaluation = data.build(bundle, tokenizer)
        with truncation.watching(bundle) as counted:
            real = counted.count

            def count(sizes: Any, over: object) -> None:
                lengths.append(sizes.max(axis=0))
                real(sizes, over)

            counted.count = count  # type: ignore[method-assign, assignment]
            trainer, _ = trainers.build(
                bundle, trainer_class, tiny_model(bundle, tokenizer), lambda: tiny_model(bundle, tokenizer), args=args,
                train_dataset=rows, eval_dataset=evaluation, processing_class=tokenizer, callbacks=[],
            )  # fmt: skip
    truncation.settle(bundle, counted, len(rows), trainer.train_dataset)
    counts = _counts(len(rows), counted, lengths[0] if lengths else None, trainer.train_dataset)
    with open(os.path.join(folder, INDEX), "w", encoding="utf-8") as out:
        json.dump({"calls": calls, "counts": counts}, out)
    return counts


def _counts(given: int, counted: "TokenCounts", lengths: Any, prepared: Any) -> dict[str, object]:
    """The counts in the form of ``xpc preview --rows``: tokens of rows before truncation, and of sequences after it."""
    import numpy
    import pyarrow.compute

    found: dict[str, Any] = {
        "rows": given, "tokens": counted.tokens, "limit": counted.most, "cut": counted.cut_rows,
        "dropped": counted.left_out, "sequences": len(prepared), "kept_tokens": None, "learned_tokens": None,
        "quantiles": {},
    }  # fmt: skip
    if lengths is not None and len(lengths):
        for share in (0.0, 0.5, 1.0):
            found["quantiles"][str(share)] = int(numpy.quantile(lengths, share, method="nearest"))
    if "labels" in prepared.column_names:
        kept = learned = 0
        for batch in prepared.with_format("arrow").iter(10_000):
            labels = pyarrow.compute.list_flatten(batch.column("labels"))
            kept += len(labels)
            learned += pyarrow.compute.sum(pyarrow.compute.not_equal(labels, -100)).as_py() or 0
        found |= {"kept_tokens": kept, "learned_tokens": learned}
    return found


def _writing(folder: str, calls: list[dict[str, object]], tokenizer: "Tokenizer") -> Mapped:
    """A replacement of ``Dataset.map``. It writes each result to the folder, and adds each call to ``calls``."""
    from runpy import run_path

    from .core.errors import say

    batched = run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "batched_map.py"))["mapped"]

    def mapped(real: Mapped, rows: "Rows", function: Any = None, **options: Any) -> object:
        if options.get("desc"):
            say(f"{options['desc']}: {len(rows):,} rows")
        path = os.path.join(folder, f"{len(calls):03d}")
        what = options.get("desc") or "Converting rows"
        out = batched(
            real,
            rows,
            path,
            tokenizer,
            lambda why: say(f"{what}: rows are converted one at a time, because {why}"),
            function=function,
            **options,
        )
        files = [os.path.basename(one["filename"]) for one in out.cache_files] if out is not rows else []
        calls.append({"rows": len(rows), "columns": list(rows.column_names), "files": files})
        return out

    return _outermost(mapped)


@contextmanager
def reading(bundle: "Bundle") -> Iterator[None]:
    """A context manager: ``Dataset.map`` returns the rows that were prepared for this run in $XPC_PREPARED. If none
    were prepared for this run, ``Dataset.map`` works as usual."""
    import datasets

    from .core.errors import say
    from .library_internals.datasets_rows import map_replaced

    folder = os.path.join(os.environ["XPC_PREPARED"], _key(bundle))
    try:
        with open(os.path.join(folder, INDEX), encoding="utf-8") as handle:
            calls = list(json.load(handle)["calls"])
    except (OSError, ValueError, KeyError) as error:
        missing = isinstance(error, FileNotFoundError)
        say(f"{folder} {'does not exist' if missing else 'cannot be read'}: the run prepares the rows itself")
        yield
        return
    say(f"the run reads the prepared rows in {folder}")
    caches = datasets.is_caching_enabled()
    datasets.disable_caching()  # with caching, a shuffle would write its indices to the folder of the rows
    try:
        with map_replaced(_reading(folder, calls)):
            yield
    finally:
        if caches:
            datasets.enable_caching()


def _reading(folder: str, calls: list[dict[str, Any]]) -> Mapped:
    """A replacement of ``Dataset.map``. It returns the result that the same call had in the preparation."""
    left = iter(calls)

    def mapped(real: Mapped, rows: "Rows", function: Any = None, **options: Any) -> object:
        found = next(left, None)
        if found is not None and (found["rows"], found["columns"]) != (len(rows), list(rows.column_names)):
            from .core.errors import RunError

            raise RunError(f"{folder} has other rows than this run; delete it, and run `launch.sh --prepare` again")
        if found is None or not found["files"]:
            return real(rows, function, **options)
        return _joined([os.path.join(folder, one) for one in found["files"]], rows.format)

    return _outermost(mapped)


def _outermost(mapped: Mapped) -> Mapped:
    """Make ``mapped`` replace only outer calls of ``Dataset.map``, not calls inside another call."""
    within = False

    def called(real: Mapped, rows: "Rows", function: object = None, **options: object) -> object:
        nonlocal within
        if within:
            return real(rows, function, **options)
        within = True
        try:
            return mapped(real, rows, function, **options)
        finally:
            within = False

    return called


def _joined(files: Sequence[str], layout: Mapping[str, Any]) -> object:
    """Load the rows of these Arrow files. ``layout`` is their output format (Dataset.format), such as torch."""
    import datasets

    parts = [datasets.Dataset.from_file(one) for one in files]
    out = parts[0] if len(parts) == 1 else datasets.concatenate_datasets(parts)
    if layout["type"] is not None:
        out.set_format(layout["type"], **layout["format_kwargs"])
    return out


def _key(bundle: "Bundle") -> str:
    with open(bundle.inside("bundle.toml"), "rb") as handle:
        manifest = tomllib.load(handle)
    with open(bundle.inside("trainer_args.json"), encoding="utf-8") as stated:
        plan = json.load(stated)
    return key(plan, manifest, bundle.model_path if bundle.model["id"] is None else None)


if __name__ == "__main__":
    sys.exit(main(os.path.dirname(os.path.abspath(__file__)), sys.argv[1:]))
