"""Rules about `extra accelerate`, which sets keys of the launcher's configuration (XP43x)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.extras import ONLY_FSDP1
from xpc.compiler.rules.core.conditions import extra
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.grammar.nearest import nearest

WHEN = extra("accelerate")

TPU = ("command_file", "commands", "tpu_env", "tpu_name", "tpu_use_cluster", "tpu_use_sudo", "tpu_vm", "tpu_zone")


def _own_checkpointing(spec: Spec, name: str) -> bool:
    """Whether a key turns on FSDP's own activation checkpointing. Other rules (XP401, XP431) report it for every
    strategy.
    """
    return name.startswith("fsdp_activation_checkpointing") and spec.extra_value("accelerate", name) is True


@rule("XP430", "accelerate-key-not-read")
def key_not_read(spec: Spec) -> Iterator[Finding]:
    """Keys of accelerate.yaml need the `accelerate` launcher, because `torchrun` does not read this file. FSDP's keys
    also need an FSDP strategy, because only FSDP reads the part `fsdp_config`.

    Why it is bad: a key of accelerate.yaml that nothing reads has no effect.

    Without this rule: nothing is reported.

    Source: accelerate 1.15 and 1.4 `commands/launch.py` (`accelerate launch` turns the keys of the file into
    environment variables, and FSDP's keys only if `use_fsdp` is set); confirmed by running it.
    """
    strategy = spec.text("strategy")
    torchrun = spec.text("launch.launcher") == "torchrun"
    for name in spec.extra.get("accelerate", {}):
        if torchrun:
            yield Finding(
                spec.extra_location("accelerate", name, "in accelerate.yaml"),
                f"torchrun does not read `{name}`",
                "write `launcher = accelerate`, or leave the key out",
                (spec.label("launch.launcher", "the launcher"),),
            )
        elif name.startswith("fsdp_") and not spec.sharded_by_fsdp and not _own_checkpointing(spec, name):
            yield Finding(
                spec.extra_location("accelerate", name, "a key of FSDP"),
                f"`{name}` has no effect with {strategy}",
                f"leave `{name}` out, or write `strategy fsdp`",
                (spec.label("strategy", "the strategy"),),
            )


@rule("XP431", "fsdp-checkpoint-offload")
def checkpoint_offload(spec: Spec) -> Iterator[Finding]:
    """FSDP's `fsdp_activation_checkpointing_offload` works only with FSDP's own activation checkpointing, which bundles
    never use. To move activations to the host, write `memory { offload_activations }` together with `memory {
    checkpointing }`.

    Why it is bad: without FSDP's own checkpointing, `fsdp_activation_checkpointing_offload` makes the run fail.

    Without this rule: ValueError in every process, when accelerate reads `fsdp_activation_checkpointing_offload`.

    Source: accelerate 1.15 `FullyShardedDataParallelPlugin.__post_init__`; confirmed by running it.
    """
    name = "fsdp_activation_checkpointing_offload"
    if spec.extra_value("accelerate", name) is True:
        yield Finding(
            spec.extra_location("accelerate", name, "needs FSDP's own checkpointing"),
            "FSDP's own activation checkpointing is off, so nothing is offloaded",
            "write `memory(offload_activations)` instead",
        )


@rule("XP432", "fsdp1-key-under-fsdp2")
def fsdp1_key(spec: Spec) -> Iterator[Finding]:
    """FSDP1's keys, such as `fsdp_forward_prefetch`, should not be set under FSDP2, which does not read them. This rule
    reports `fsdp_forward_prefetch` as an error, because nothing would be prefetched. It reports the other keys as
    warnings, because FSDP2 trains correctly without them.

    Why it is bad: the run does not do what a key of FSDP1 states.

    Without this rule: under FSDP2, accelerate silently ignores the keys of FSDP1 in accelerate.yaml.

    Source: accelerate 1.15 `FullyShardedDataParallelPlugin.__post_init__`; confirmed by running it.
    """
    strategy = spec.text("strategy")
    if strategy not in ("fsdp", "hsdp") or not spec.stack.facts.fsdp2:
        return
    related = (spec.label("strategy", "FSDP2"),)
    if spec.extra_value("accelerate", "fsdp_forward_prefetch") is True:
        yield Finding(
            spec.extra_location("accelerate", "fsdp_forward_prefetch", "not read for FSDP2"),
            f"{strategy} does not prefetch in the forward pass",
            write("fsdp_forward_prefetch = false"),
            related,
        )
    for name, why in ONLY_FSDP1.items():
        if spec.extra_value("accelerate", name) is not None:
            yield Finding(
                spec.extra_location("accelerate", name, why),
                f"`{name}` has no effect with {strategy}",
                f"leave `{name}` out",
                related,
                severity="warning",
            )


@rule("XP433", "efficient-loading-without-sync")
def efficient_loading(spec: Spec) -> Iterator[Finding]:
    """If `fsdp_sync_module_states` is false, `fsdp_cpu_ram_efficient_loading` must be false, too. Efficient loading is
    on by default: only rank 0 reads the weights, and `fsdp_sync_module_states` sends them to the other ranks.
    `accelerate launch` checks this for FSDP1 and for FSDP2.

    Why it is bad: all ranks but rank 0 would keep empty weights.

    Without this rule: ValueError from `accelerate launch`.

    Source: accelerate 1.15 and 1.4 `utils/launch.py`; confirmed by running it.
    """
    efficient = spec.extra_value("accelerate", "fsdp_cpu_ram_efficient_loading") is not False
    if spec.sharded_by_fsdp and efficient and spec.extra_value("accelerate", "fsdp_sync_module_states") is False:
        written = spec.extra_value("accelerate", "fsdp_cpu_ram_efficient_loading") is not None
        other = (
            spec.extra_location("accelerate", "fsdp_cpu_ram_efficient_loading", "only rank 0 loads")
            if written
            else None
        )
        yield Finding(
            spec.extra_location("accelerate", "fsdp_sync_module_states", "the other ranks would keep empty weights"),
            "only rank 0 loads the weights, and the other ranks would not receive them",
            write("fsdp_sync_module_states = true", ", or `fsdp_cpu_ram_efficient_loading = false` next to it"),
            (other,),
        )


@rule("XP434", "layer-class-of-another-model")
def layer_class(spec: Spec) -> Iterator[Finding]:
    """The classes that FSDP wraps must be modules of the model, by their exact names; by default, they are the decoder
    layers of the family. This rule refuses a layer of another family, and a misspelling of one of the model's layers.
    It accepts any other name, because the name may be a module that the registry does not know.

    Why it is bad: the model cannot be wrapped.

    Without this rule: ValueError when the model is wrapped, after it is loaded.

    Source: accelerate 1.15 `utils/fsdp_utils.py` and `set_auto_wrap_policy`, also of 1.4; confirmed by running it.
    """
    name = "fsdp_transformer_layer_cls_to_wrap"
    written, facts = spec.extra_value("accelerate", name), spec.model.facts
    family = None if facts is None else spec.stack.family(facts.model_type)
    if not isinstance(written, str) or family is None or not spec.sharded_by_fsdp:
        return
    own, written_out = family.layers, ",".join(family.layers)
    others = spec.stack.layers - set(own)
    for part in map(str.strip, written.split(",")):
        if part in others or (part not in own and nearest(part, own) is not None):
            yield Finding(
                spec.extra_location("accelerate", name, f"the layers of {family.model_type} are {written_out}"),
                f"{family.model_type} has no module `{part[:60]}`",
                f"leave `{name}` out, or write `{written_out}`",
                (spec.model.label,),
                f'{name} = "{written_out}"',
            )


@rule("XP435", "wrapping-by-size", "warning")
def wrapping(spec: Spec) -> Iterator[Finding]:
    """Keys for FSDP's wrapping must match the wrapping policy (`fsdp_auto_wrap_policy`). A policy wraps either layers
    of named classes, or modules with more parameters than a given size. FSDP2 cannot wrap by size: the policy would
    also wrap the list of all layers (a ModuleList), which `fully_shard` refuses.

    Why it is bad: the model is not wrapped as the keys state.

    Without this rule: if the policy wraps by size and the size is 0, accelerate ignores policy and size: the model
    becomes one unit, whose weights are all gathered at once. Under FSDP2, any other size raises ValueError inside
    `train()`.

    Source: accelerate 1.15 `set_auto_wrap_policy`, `fsdp2_prepare_auto_wrap_policy`; torch 2.13 `fully_shard`;
    confirmed by running it.
    """
    if not spec.sharded_by_fsdp:
        return
    policy = str(spec.extra_value("accelerate", "fsdp_auto_wrap_policy") or "TRANSFORMER_BASED_WRAP").upper()
    for name, owner in (
        ("fsdp_min_num_params", "SIZE_BASED_WRAP"),
        ("fsdp_transformer_layer_cls_to_wrap", "TRANSFORMER_BASED_WRAP"),
    ):
        if spec.extra_value("accelerate", name) is not None and policy != owner:
            yield Finding(
                spec.extra_location("accelerate", name, f"read for {owner}"),
                f"`{name}` has no effect with {policy}",
                f"leave `{name}` out",
            )
    if policy != "SIZE_BASED_WRAP":
        return
    if spec.extra_value("accelerate", "fsdp_min_num_params") == 0:
        yield Finding(
            spec.extra_location("accelerate", "fsdp_min_num_params", "the whole model becomes one unit"),
            "a size of 0 selects no modules",
            'write `fsdp_auto_wrap_policy = "TRANSFORMER_BASED_WRAP"`, and remove the size',
            (spec.extra_location("accelerate", "fsdp_auto_wrap_policy"),),
        )
    elif spec.text("strategy") != "fsdp1" and spec.stack.facts.fsdp2:
        yield Finding(
            spec.extra_location("accelerate", "fsdp_auto_wrap_policy", "would also wrap the list of layers"),
            "FSDP2 cannot wrap modules by their size",
            "leave `fsdp_auto_wrap_policy` and `fsdp_min_num_params` out",
            (spec.label("strategy", "FSDP2"),),
            None
            if spec.extra_value("accelerate", "fsdp_min_num_params") is not None
            else 'fsdp_auto_wrap_policy = "TRANSFORMER_BASED_WRAP"',
            "error",
        )


@rule("XP436", "tpu-key", "warning")
def tpu_key(spec: Spec) -> Iterator[Finding]:
    """Keys of `accelerate tpu-config` and of TPU pods need a TPU, which no spec can name.

    Why it is bad: keys for TPUs have no effect on GPUs and CPUs.

    Without this rule: nothing is reported, because accelerate reads keys for TPUs only on TPUs.

    Source: accelerate 1.15 and 1.4 `commands/tpu.py` and `commands/launch.py`; read, not run.
    """
    for name in TPU:
        if spec.extra_value("accelerate", name) is not None:
            yield Finding(
                spec.extra_location("accelerate", name, "read for TPUs"),
                f"`{name}` has no effect on {'the CPU' if spec.hardware.gpu is None else spec.hardware.gpu.name}",
                f"leave `{name}` out",
            )
