"""For two generated specs that differ in one setting, `xpc diff` shows this setting and its consequences, and nothing
else.
"""

import json
import random
from functools import cache

import generator
import pytest
from compile_support import put
from test_bundle_reviews import reordered

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language import schema
from xpc.compiler.pipeline import check_text
from xpc.compiler.review.compare import Change, compare
from xpc.compiler.review.operands import Run

pytestmark = pytest.mark.slow

VALUES = {
    "optimizer.lr": ("1e-6", "3e-6"), "optimizer.weight_decay": ("0.01", "0.1"), "optimizer.clip": ("0.5", "2"),
    "schedule.warmup": ("3", "4"), "batch.seq": ("128", "256"), "seed": ("7", "8"), "data.seed": ("3", "4"),
    "save.every": ("50", "60"), "save.keep": ("2", "3"), "track.every": ("5", "7"), "data.workers": ("2", "3"),
    "memory.checkpointing": ("true", "false"), "launch.nccl_timeout": ("30m", "2h"), "save": ('"out/x"', '"out/y"'),
    "optimizer.betas": ("[0.9, 0.95]", "[0.8, 0.95]"), "train.steps": ("100", "200"), "data.shuffle": ("true", "false"),
    "batch.accum": ("2", "4"), "precision.nan": ("stop", "zero"), "precision.idle": ("warn", "zero"),
    "track.name": ('"one"', '"two"'),
}  # fmt: skip
ALSO = {
    "schedule.warmup": {"lr_scheduler_type", "warmup_steps", "warmup_ratio", "lr_scheduler_kwargs", "optim_args"},
    "seed": {"data_seed"}, "save.every": {"eval_steps"}, "optimizer.clip": {"max_grad_norm"},
    "optimizer.betas": {"adam_beta1", "adam_beta2", "optim_args"},
    "optimizer.lr": {"lr_scheduler_kwargs", "optim_args"},
    "optimizer.weight_decay": {"optim_args"}, "train.steps": {"num_train_epochs"},
    "save": {"logging_dir", "hub_model_id"},
    "memory.checkpointing": {"ddp_find_unused_parameters", "activation_checkpointing_kwargs",
                             "gradient_checkpointing_kwargs"},
    "data.shuffle": {"train_sampling_strategy", "shuffle_dataset"},
}  # fmt: skip
"""Maps settings to arguments that change with them although the setting's row of the schema does not list these
arguments.
"""


def stating(path, value):
    """A spec that extends a generated spec, and states one setting in addition."""
    clause, _, name = path.partition(".")
    line = {"train": f"train MODEL on DATA for {value} steps"}.get(clause)
    if line is None:
        line = f"{clause} {value}" if not name else f"{clause} {{\n  {name} = {value}\n}}"
    return f'xpc 1\n\nextends "t.xp"\n\n{line}\n'


def checked(text, location):
    found = check_text(text.encode(), "c.xp", Workspace(location, hashes=True))
    return found.spec if not found.members else None


@cache
def bases(location, count):
    out = []
    for seed in range(count * 8):
        text = generator.spec(f"diff-{seed}")
        if len(out) < count and checked(text, location) is not None:
            out.append(text)
    return out


def flat(value, prefix=""):
    if isinstance(value, dict) and value:
        return {
            key: one
            for name, inner in value.items()
            for key, one in flat(inner, f"{prefix}.{name}" if prefix else name).items()
        }
    return {prefix: json.dumps(value)}


def changed_settings(location):
    """Pairs of specs that both compile, and that differ in the value of one setting."""
    draw = random.Random(4)
    for text in bases(location, 14):
        put(location, {"t.xp": text})
        for path in draw.sample(sorted(VALUES), 6):
            train = next(line for line in text.split("\n") if line.startswith("train "))
            model, _, rest = train.removeprefix("train ").partition(" on ")
            output = [
                stating(path, value).replace("MODEL", model).replace("DATA", rest.split(" ")[0])
                for value in VALUES[path]
            ]
            specs = [checked(one, location) for one in output]
            if None not in specs:
                yield path, specs


def test_one_changed_setting_is_shown_with_its_consequences(location):
    seen = set()
    for path, (one, other) in changed_settings(location):
        before, after = Run("", one), Run("", other)
        found = compare(before, after)
        assert [change.name for change in found.settings] == [path]
        values = [{name: str(each.value) for name, each in spec.values.items()} for spec in (one, other)]
        differ = {name for name in {*values[0], *values[1]} if values[0].get(name) != values[1].get(name)}
        follows = {change.name for change in found.follows} & set(schema.BY_PATH)
        assert differ == {path} | follows
        assert not any(one.written(name) or other.written(name) for name in follows)
        emitted = [flat(json.loads(run.emitted["trainer_args.json"])) for run in (before, after)]
        moved = {key for key in {*emitted[0], *emitted[1]} if emitted[0].get(key) != emitted[1].get(key)}
        # Everything below `trainer` follows from other values, so `xpc diff` does not show it.
        moved = {key for key in moved if not key.startswith("trainer.")}
        shown = {
            change.name.removeprefix("trainer_args.json ")
            for change in found.arguments
            if "trainer_args" in change.name
        }
        assert shown == moved, path
        decided = {name for each in differ for name in (*schema.BY_PATH[each].args, *ALSO.get(each, ()))}
        renamed = {other.stack.rename(name) for name in decided} | {one.stack.arguments.get(name) for name in decided}
        arguments = {key.split(".")[1] for key in moved if key.startswith("arguments.")}
        assert arguments <= decided | renamed, (path, arguments - decided)
        assert {each.name for each in found.files} >= {"trainer_args.json"} if moved else True
        back = compare(after, before)
        assert [Change(each.name, each.after, each.before, "") for each in back.settings] == [
            Change(each.name, each.before, each.after, "") for each in found.settings
        ]
        assert not found.same
        seen.add(path)
    assert len(seen) >= 12


def test_the_same_spec_in_another_order_is_the_same_run(location):
    for seed, text in enumerate(bases(location, 14)):
        other = checked(reordered(text, random.Random(seed)), location)
        found = compare(Run("", checked(text, location)), Run("", other))
        assert found.same, text
        assert [*found.files, *found.new, *found.gone, *found.runs_now, *found.ran_before] == []
