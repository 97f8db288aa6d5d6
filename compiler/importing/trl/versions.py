"""Find the version of TRL for which a file was written, whose defaults the file relies on.

`versions.json` has the names and defaults of the configuration classes of each release from 0.9 to 1.16
(tests/importing/oracles/trl_versions.py reads them from the wheels). A file fits the versions that have most of its key
names. If a default that affects training differs among these versions, the spec states the version whose default it
uses, and `--trl VERSION` selects another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.text.entries import Entry
from xpc.compiler.importing.text.values import RENAMES
from xpc.grammar.package_data import read_json

LAST = {"vllm_device": "0.15", "vllm_dtype": "0.15", "vllm_max_model_len": "0.15"}
"""Maps an argument to the last version of TRL that used it; later versions accept and ignore it (grpo_config.py of 0.16
and 0.17).
"""
SCRIPTS = {
    "evaluation_strategy": ("0.9", "0.12"),
    "trainer.tokenizer": ("0.9", "0.15"),
    "trainer.max_seq_length": ("0.9", "0.12"),
    "trainer.processing_class": ("0.12", "1.16"),
    **dict.fromkeys(("hub_model_revision", "benchmarks", "callbacks", "overwrite_hub_revision"), ("0.14", "0.18")),
}
"""Maps a name that TRL's classes lack, but files and scripts use, to the first and the last version of TRL for which
such files were written. transformers removed `evaluation_strategy` in 4.46, and Open-R1's scripts of 2025 pin trl 0.14
to 0.18. In Python, TRL's trainers took `tokenizer` until 0.15 and take `processing_class` since 0.12, and SFTTrainer
took `max_seq_length` until 0.12.
"""

VALUES = {
    ("packing_strategy", "ffd"): ("0.19", "0.19"),
    **{("scale_rewards", one): ("0.22", "1.16") for one in ("group", "batch", "none")},
}
"""Maps an argument with a value, such as `scale_rewards: group`, to the first and the last version of TRL that accept
this value.
"""
MATTERS = (
    "beta", "loss_type", "scale_rewards", "temperature", "top_k", "max_completion_length", "max_prompt_length",
    "max_length", "max_seq_length", "truncation_mode", "learning_rate", "per_device_train_batch_size",
    "gradient_accumulation_steps", "average_tokens_across_devices", "bf16", "disable_dropout",
    "use_bias_correction_kl", "vllm_importance_sampling_correction", "vllm_mode", "ref_model_mixup_alpha",
    "ref_model_sync_steps", "epsilon", "num_iterations", "router_aux_loss_coef", "packing_strategy",
)  # fmt: skip
"""Arguments whose default affects what a model learns, so that a difference between versions of TRL that fit a file is
reported.
"""
NEEDS = {
    "router_aux_loss_coef": "experts",
    "vllm_importance_sampling_correction": "use_vllm",
    "vllm_mode": "use_vllm",
    "packing_strategy": "packing",
    "ref_model_mixup_alpha": "sync_ref_model",
    "ref_model_sync_steps": "sync_ref_model",
}
"""Maps an argument to the flag without which it has no effect; `experts` means a model with experts."""
PADDED = ("dpo", "kto", "orpo", "cpo")
"""Training methods whose trainers, before TRL 0.14, replaced a null `max_length` by 512 and a null `max_prompt_length`
by 128.
"""


def table() -> dict[str, dict[str, list[list[object]]]]:
    """The content of versions.json: maps a method to its arguments with the defaults in each version."""
    found: dict[str, dict[str, list[list[object]]]] = read_json(__file__, "versions.json")
    return found


def numbers() -> list[str]:
    """All versions of TRL in versions.json, the oldest first, such as `0.9`."""
    return [str(one) for one in read_json(__file__, "versions.json")["versions"]]


def find(text: str) -> str | None:
    """The version in versions.json for a value of `--trl` such as `0.18` or `0.18.0`; None if there is none."""
    parts = text.strip().removeprefix("trl-").removeprefix("v").split(".")
    number = ".".join(parts[:2])
    return number if number in numbers() else None


def having(method: str, name: str) -> set[str]:
    """The versions of TRL in which a class of the method has the argument `name`; empty if there is none."""
    order, out = numbers(), set[str]()
    if name in SCRIPTS:
        first, last = SCRIPTS[name]
        return set(order[order.index(first) : order.index(last) + 1])
    for block in (method, "model", "script"):
        runs = table()[block].get(name, [])
        for at, run in enumerate(runs):
            if len(run) == 2:
                end = order.index(str(runs[at + 1][0])) if at + 1 < len(runs) else len(order)
                out.update(order[order.index(str(run[0])) : end])
    if name in LAST:
        out -= set(order[order.index(LAST[name]) + 1 :])
    return out


def since(method: str) -> list[str]:
    """The versions of TRL that have this training method, from the oldest to the newest."""
    first = min((numbers().index(str(runs[0][0])) for runs in table()[method].values()), default=0)
    return numbers()[first:]


def possible(method: str, entries: Mapping[str, Entry]) -> tuple[str, ...]:
    """The versions of TRL for which the file may be written: those that have the method and the most of the file's key
    names.
    """
    versions = since(method)
    score = dict.fromkeys(versions, 0)
    inherited = read_json(__file__, "versions.json")["inherited"]
    for name, entry in entries.items():
        if isinstance(entry.value, str) and (name, entry.value) in VALUES:
            first, last = (numbers().index(one) for one in VALUES[name, entry.value])
            versions = [one for one in versions if first <= numbers().index(one) <= last] or versions
        if name in inherited and name not in SCRIPTS:
            # every version of transformers has this argument, so it does not show the version of TRL
            continue
        for one in having(method, name):
            if one in score:
                score[one] += 1
    best = max((score[one] for one in versions), default=0)
    return tuple(one for one in versions if score[one] == best)


def default(method: str, name: str, version: str) -> object:
    """The default of an argument in a version of TRL; None if versions.json does not have it."""
    order = numbers()
    at = order.index(version)
    value: object = None
    known = False
    for run in table()[method].get(name, []):
        if order.index(str(run[0])) <= at:
            known, value = len(run) == 2, run[1] if len(run) == 2 else None
    return _meaning(method, name, value, known, at)


def _meaning(method: str, name: str, value: object, known: bool, at: int) -> object:
    """The value that a version's trainer uses for a missing or null argument.

    `value` is the default of the class, `known` says whether the version has the argument, and `at` is the version's
    index in `numbers()`.
    """
    order = numbers()
    if name == "bf16" and known:
        return True  # `bf16: null` means true: bf16 is on unless fp16 is on
    if name == "average_tokens_across_devices" and not known:
        return at >= order.index("0.23")  # transformers changed the default around TRL 0.23
    if not known:
        early = {"loss_type": "grpo" if at < order.index("0.16") else "bnpo", "scale_rewards": "group"} if (
            method == "grpo" and at < order.index("0.17")) else {}  # fmt: skip
        usual = {"bf16": False, "learning_rate": 5e-5, "per_device_train_batch_size": 8,
                 "gradient_accumulation_steps": 1, "vllm_importance_sampling_correction": False,
                 "use_bias_correction_kl": False, "vllm_mode": "server", "packing_strategy": "wrapped",
                 "disable_dropout": False, "epsilon": 0.2, "num_iterations": 1, "loss_type": "nll"}  # fmt: skip
        if name == "truncation_mode" and method in ("sft", "distill"):
            return "keep_start"
        return early.get(name, usual.get(name))
    if value is None and method in PADDED and at < order.index("0.14"):
        return {"max_length": 512, "max_prompt_length": 128}.get(name)
    if value is None and method == "reward" and name == "max_length":
        return 512
    if value is None and method in ("sft", "distill") and name in ("max_length", "max_seq_length"):
        return 1024  # the trainer used the lower of 1024 and the tokenizer's limit
    if name == "loss_type" and value is None:
        return "nll"
    if name == "top_k" and not value:
        return None
    if value == -1:
        return None  # -1 marks a deprecated argument and is not a value
    if value == "ffd":
        return "bfd"  # trl 0.19's default is `ffd`, which its own trainer rejects
    if isinstance(value, list) and len(value) == 1:
        return value[0]
    return ("group" if value else "none") if name == "scale_rewards" and isinstance(value, bool) else value


def moved(method: str, among: Collection[str], names: Collection[str], on: Collection[str]) -> dict[str, list[str]]:
    """Map each argument that affects training, is missing in the file, and has different defaults among the versions
    `among`, to these defaults as texts, such as `0.04 (trl 0.14 to 0.18)`.

    `names` are the file's keys under the names in the table of settings. `on` are its flags that are true, such as
    `packing`.
    """
    out: dict[str, list[str]] = {}
    order = [one for one in numbers() if one in among]
    for name in MATTERS:
        if name not in table()[method] or RENAMES.get(name, name) in names or name == "max_seq_length":
            continue
        if NEEDS.get(name, "") and NEEDS[name] not in on:
            continue
        runs: list[tuple[object, list[str]]] = []
        for version in order:
            value = default(method, *_at(name, method, version), version)
            if runs and runs[-1][0] == value:
                runs[-1][1].append(version)
            else:
                runs.append((value, [version]))
        if len({str(value) for value, _ in runs}) > 1:
            out[name] = [f"{_shown(value)} ({_span(versions)})" for value, versions in runs]
    return out


def _at(name: str, method: str, version: str) -> tuple[str]:
    """The name of an argument in a TRL version, as a tuple with one item: sft's `max_length` was `max_seq_length`
    before 0.16.
    """
    old = method == "sft" and name == "max_length" and version not in having(method, "max_length")
    return ("max_seq_length" if old else name,)


def _shown(value: object) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def dated(draft: Draft, overrides: Overrides) -> str:
    """Why the spec has the target of an older version of TRL. "" if `--target` names it, or if no version is known."""
    if overrides.target is not None or not draft.fitting:
        return ""
    return f"`--trl` names trl {overrides.trl}" if overrides.trl else _fits(draft)


def _fits(draft: Draft) -> str:
    pinned = f"{draft.pinned} and " if draft.pinned else ""
    return f"{pinned}the file's keys fit {_span(draft.fitting)}"


def _span(versions: Sequence[str]) -> str:
    return f"trl {versions[0]}" + (f" to {versions[-1]}" if len(versions) > 1 else "")


def report(draft: Draft, names: Collection[str], on: Collection[str]) -> None:
    """Warn about each default that differs between the versions for which the file may be written, and state it in a
    comment of the spec.
    """
    different = moved(draft.method, draft.fitting, names, on)
    if not different:
        return
    open_ = list(draft.fitting) == since(draft.method) and not draft.pinned
    why = "none of its keys shows the version" if open_ else _fits(draft)
    for name, values in different.items():
        draft.dated[name] = f"not set; its default is {', '.join(values)}; the spec has the default of trl {draft.trl}"
    draft.warn(
        None,
        f"several versions of TRL fit the file ({why}), and their defaults differ: "
        + "; ".join(f"{name} = {', '.join(values)}" for name, values in different.items())
        + f". The spec has the defaults of trl {draft.trl}",
        "`--trl VERSION` decides",
    )
