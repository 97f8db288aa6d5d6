"""Files of Open-R1 and the alignment handbook: the bundle states the arguments that TRL's own parser reads from them,
including TRL's defaults.
"""

from __future__ import annotations

import glob
import os
from typing import Any

import pytest
from import_support import ABSENT, HARDWARE, PUBLISHED, WHERE, Imported, imported
from trl_arguments import parsed

from xpc.compiler.stacks import DEFAULT

pytestmark = [pytest.mark.slow, pytest.mark.skipif(ABSENT, reason=WHERE)]

FAMILIES = ("alignment-handbook", "open-r1")
MACHINE = {
    "accelerator_config": "a record, printed",
    "dataloader_pin_memory": "off on a CPU",
    "use_cpu": "asked on a CPU",
    "output_dir": "names a run where none is named",
    "run_name": "names a run",
    "logging_dir": "names a run",
}
STATED = {
    "ddp_find_unused_parameters": "the Trainer turns it off where weights are recomputed",
    "logging_nan_inf_filter": "a bundle reports a loss that is no number",
    "hub_model_id": "stated where something is pushed",
    "padding_free": "the newer TRL pads in DPO here",
    "packing_strategy": "no TRL has ffd",
    "dataset_kwargs": "no version of the targets reads these keys of it",
}
"""Maps arguments to a reason. For these, a bundle states another value than TRL; the reason says why the run is the
same, or how the import reports the difference.
"""
UNSAID = {
    "tf32": False,
    "completion_only_loss": False,
    "gradient_checkpointing_kwargs": {"use_reentrant": True},
}
"""Maps arguments whose default is None to the value that TRL uses instead of None."""
DATED = {
    ("sft", "average_tokens_across_devices"): False,
    ("dpo", "average_tokens_across_devices"): False,
    ("sft", "optim"): "adamw_torch",
    ("dpo", "optim"): "adamw_torch",
    ("dpo", "truncation_mode"): "keep_end",
}
"""Maps a method and an argument to the argument's default in the older TRL versions for which the files were written.
The newer stack has another default, so a spec for the newer stack states the older default.
"""


def recipes() -> list[str]:
    found = [one for family in FAMILIES for one in glob.glob(f"{PUBLISHED}/{family}/recipes/**/*.yaml", recursive=True)]
    return sorted(one for one in found if "accelerate_configs" not in one)


def differing(theirs: dict[str, Any], found: Imported, stack: str) -> dict[str, tuple[Any, Any]]:
    """The arguments whose values differ between the bundle and TRL's parser. Arguments in MACHINE, STATED, UNSAID or
    DATED are left out, for the reasons given there.
    """
    out = {}
    for key, ours in found.arguments.items():
        if key not in theirs or key in MACHINE or key in STATED:
            continue
        if key == "per_device_eval_batch_size" and theirs["eval_strategy"] == "no":
            continue  # the run has no evaluation
        output, written = theirs[key], key in theirs["written"]
        if output is None and key in UNSAID:
            output = UNSAID[key]
        if key == "eval_packing" and output is None:
            output = theirs["packing"] if theirs["eval_strategy"] != "no" else ours
        if stack == DEFAULT and not written:
            output = DATED.get((found.draft.method, key), output)
        if key == "report_to" and not written:  # transformers' default depends on which packages are installed
            output = []
        if key == "warmup_steps" and "warmup_ratio" not in found.arguments:
            output = theirs["written"].get("warmup_ratio", output)
        if output != ours and [output] != ours:
            out[key] = (output, ours)
    return out


def test_trls_own_parser_makes_the_arguments_of_the_bundle() -> None:
    import yaml

    drafts = {path: _imported(path) for path in recipes()}
    for stack in sorted({one.draft.stack.name for one in drafts.values()}):
        requested = [(path, one.draft.method) for path, one in drafts.items() if one.draft.stack.name == stack]
        for path, answer in parsed(stack, requested).items():
            found = drafts[path]
            if "refused" in answer:  # TRL refuses the file: no batch is divisible by 14 completions per prompt
                assert found.errors, (path, answer["refused"])
                continue
            with open(path, encoding="utf-8") as handle:
                theirs = {**answer["arguments"], "written": yaml.safe_load(handle)}
            assert not found.errors, (path, found.errors)
            assert differing(theirs, found, stack) == {}, path
    assert len(drafts) == 25


def _imported(path: str) -> Imported:
    with open(path, encoding="utf-8") as handle:
        return imported(handle.read(), *HARDWARE, name=path, root=os.path.dirname(path))
