"""Rules about the weights that a run with adapters or with `freeze` trains, and about the learning rates of these
weights (XP464 to XP469, XP475, XP499, XP626, XP795).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from xpc.compiler.language.optimizers import FUSED, LAYERWISE, MADE_BY_RUNTIME
from xpc.compiler.language.schema import OF_KIND, OF_ONE_KIND, path_of
from xpc.compiler.language.setting import FlagPath, IntegerPath, NamesPath
from xpc.compiler.registry.linear_layers import HEADS, TABLES, TOKEN_EMBEDDINGS
from xpc.compiler.rules.adapters.module_names import (
    absent,
    contains,
    is_parameter,
    last_module_names,
    missing_layer,
    module_paths,
    stacked_parameters,
)
from xpc.compiler.rules.core.conditions import any_of, enabled, fused_loss, written
from xpc.compiler.rules.core.modules import EMBEDDINGS
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.rules.optimizer.requirements import CONVOLUTIONS
from xpc.compiler.spec import Spec
from xpc.compiler.stacks.fused_experts import adapter_layers
from xpc.compiler.stacks.modules import ends, last_names, modules

WHEN = any_of(
    enabled("freeze", "oft", "vera", "loha", "miss"),
    written(
        "lora.within", "lora.targets",
        "lora.block_size", "lora.parameters", "lora.modules_to_save", "lora.lr_ratio", "lora.embedding_lr",
        "model.tokens",
    ),
)  # fmt: skip

WHOSE = {
    "block_size": "for oft only", "alpha": "for lora, qlora and loha only", "dropout": "loha multiplies weights",
}  # fmt: skip
"""Maps each setting that some kinds of adapters lack to the fact that a finding prints below the setting, such as `for
oft only`. Settings that are not listed here belong only to `lora` and `qlora`.
"""


@rule("XP795", "within-without-names")
def within_without_names(spec: Spec) -> Iterator[Finding]:
    """`within`, which restricts adapters to a part of the model, needs `targets` with names of modules, such as
    `q_proj`. In peft, `all-linear` always means every linear layer of the complete model.

    Why it is bad: `within` cannot restrict `all-linear`.

    Without this rule: peft gets a pattern that contains no module's name. The pattern matches no module, so peft raises
    ValueError once the model is loaded.

    Source: peft 0.19 and 0.15 `tuners/tuners_utils.py` (`check_target_module_exists`); read, not run.
    """
    if spec.get("lora.within") is not None and not isinstance(spec.get("lora.targets"), tuple):
        yield Finding(
            spec.location("lora.within", "one module of the model"),
            "`all-linear` takes every linear layer of the whole model",
            "write `targets = [q_proj, k_proj, v_proj, o_proj]`, or leave `within` out",
            (spec.label("lora.targets", "the targets"),),
        )


@rule("XP464", "setting-of-another-adapter")
def setting_of_another(spec: Spec) -> Iterator[Finding]:
    """Each kind of adapter takes only its own settings: only LoRA has two learning rates and `parameters`, only LoRA
    and LoHa have `alpha`, only OFT has blocks, and LoHa has no dropout of its inputs. For OFT, the spec gives either
    the number of blocks or their size, and PEFT derives the other.

    Why it is bad: an adapter has no use for a setting of another kind of adapter.

    Without this rule: PEFT raises TypeError for a setting that the adapter does not have, and ValueError if both the
    number and the size of OFT's blocks are given.

    Source: peft 0.21 and 0.17 `tuners/oft/config.py`, `tuners/oft/layer.py`, `tuners/vera/config.py`,
    `tuners/loha/config.py`, `tuners/miss/config.py`; confirmed by running it.
    """
    own = OF_KIND.get(spec.adapter, tuple(one for one in OF_ONE_KIND if one != "block_size"))
    others = [
        *(one for one in OF_ONE_KIND if one not in own),
        *(("dropout",) if spec.flag("loha") and spec.get("lora.dropout") else ()),
    ]
    for name in others:
        path = path_of(f"lora.{name}")
        if not spec.written(path):
            continue
        yield Finding(
            spec.location(path, WHOSE.get(name, "a setting of lora and qlora")),
            f"`{spec.adapter}` has no `{name}`",
            f"leave `{name}` out",
            (spec.label(spec.adapter, "the adapter"),),
        )
    if spec.flag("oft") and spec.written("lora.rank") and spec.written("lora.block_size"):
        yield Finding(
            spec.location("lora.rank", "for oft, the number of blocks in a layer"),
            "oft takes `rank` or `block_size`, not both",
            "leave `rank` out",
            (spec.label("lora.block_size", "size of a block"),),
        )
    if spec.get("lora.embedding_lr") is not None and spec.get("lora.lr_ratio") is None and spec.low_rank:
        yield Finding(
            spec.location("lora.embedding_lr", "only LoRA+ reads it"),
            "`embedding_lr` does nothing without `lr_ratio`",
            "leave `embedding_lr` out",
        )


@rule("XP465", "rotation-of-what-is-not-linear")
def not_linear(spec: Spec) -> Iterator[Finding]:
    """`oft`, `vera`, `loha` and `miss` need linear layers. Of these four adapters, only `vera` can adapt the Conv1D
    layers of GPT-2, and only `oft` of peft 0.21 can adapt embeddings.

    Why it is bad: the run cannot start.

    Without this rule: TypeError (ValueError on trl-0.24 and trl-0.18) in the trainer's constructor, after the data is
    tokenized.

    Source: peft 0.21, 0.18 and 0.17 `tuners/oft/model.py`, `tuners/vera/model.py`, `tuners/lycoris_utils.py`,
    `tuners/miss/model.py`; confirmed by running it.
    """
    if spec.low_rank:
        return
    oft = spec.flag("oft")
    verb = "rotate" if oft else "adapt"
    wrong = [one for one in spec.names("lora.targets") if one.rpartition(".")[2] in EMBEDDINGS]
    if spec.model.model_type in CONVOLUTIONS and not spec.flag("vera"):
        yield Finding(
            spec.location(spec.adapter, f"the layers of {spec.model.model_type} are Conv1D"),
            f"{spec.adapter} cannot {verb} the layers of {spec.model.model_type}",
            "write `lora` instead",
            (spec.model.label,),
        )
    elif wrong and not (oft and spec.stack.facts.oft_embeddings):
        yield Finding(
            spec.location("lora.targets", f"`{wrong[0]}` is not a linear layer"),
            f"{spec.adapter} cannot {verb} embeddings{f' on {spec.stack.name}' if oft else ''}",
            write("targets = all-linear"),
            (spec.label("target", "the target"),),
        )


@rule("XP499", "rotation-that-does-not-divide", reads=("lora.targets",))
def blocks_divide(spec: Spec) -> Iterator[Finding]:
    """OFT's `block_size` (or `rank`, the number of blocks) must divide the number of inputs of every layer that OFT
    rotates.

    Why it is bad: PEFT uses another block size than the spec and adapter_config.json state.

    Without this rule: PEFT only warns ("Invalid `oft_block_size` (24)! Adjusted to (16)"). The runtime then stops the
    run before its first step.

    Source: peft 0.21 and 0.17 `tuners/oft/layer.py` (`adjust_oft_parameters`); confirmed by running it.
    """
    facts = spec.model.facts
    if not spec.flag("oft") or facts is None:
        return
    path: IntegerPath = "lora.block_size" if spec.get("lora.rank") is None else "lora.rank"
    size = spec.get(path)
    layers, _ = adapter_layers(spec.stack, facts, spec.get("lora.targets"))
    wrong = [one for one in layers if size and one.inputs % size]
    if not size or not wrong:
        return
    every = gcd(*(one.inputs for one in layers))
    divisors = [one for one in range(2, every + 1) if every % one == 0]
    below = max((one for one in divisors if one < size), default=None)
    above = min((one for one in divisors if one > size), default=None)
    legal = [one for one in (below, above) if one is not None] or [1]
    name = path.rpartition(".")[2]
    others = f", or `{name} = {legal[1]}`" if len(legal) > 1 else ""
    yield Finding(
        spec.location(path, f"`{wrong[0].name}` has {wrong[0].inputs:,} inputs"),
        f"{size} does not divide the {wrong[0].inputs:,} inputs of `{wrong[0].name}`",
        write(f"{name} = {legal[0]}", others) if spec.written(path) else f"write `oft({name} = {legal[0]})`{others}",
        (spec.model.label,),
    )


@rule("XP466", "whole-module-that-is-none")
def no_such_module(spec: Spec) -> Iterator[Finding]:
    """`modules_to_save`, `within` and `freeze` must name modules and layers that the model has. xpc knows the modules
    of every registered family on each stack. For a mixture of experts, the rule XP574 checks the names in `freeze`.

    Why it is bad: a module that the model lacks cannot be trained.

    Without this rule: PEFT silently skips a name of `modules_to_save` that does not exist, and trains only the
    adapters. A name of `within` that does not exist raises ValueError after the model is loaded.

    Source: peft 0.21 and 0.17 `utils/other.py` (`_set_trainable`); confirmed by running it.
    """
    yield from missing_layer(spec, "lora.within")
    for path in ("lora.modules_to_save", "freeze.except_modules", "freeze.layer_modules"):
        yield from missing_layer(spec, path)
        names = spec.names(path)
        table = module_paths(spec) if path == "lora.modules_to_save" else ()
        missing = [one for one in names if not ends(one, table)] if table else absent(spec, names)
        if not missing:
            continue
        known, removed = last_module_names(spec) or (), set(missing)
        outside = [one for one in known if one in (*EMBEDDINGS, *HEADS)]
        better = [one for one in names if one not in removed] or (
            ["self_attn"] if path.endswith("layer_modules") else outside
        )
        name = path.rpartition(".")[2]
        yield Finding(
            spec.location(path),
            f"{spec.model.name} has no module `{missing[0][:60]}`",
            f"write `{name} = [{', '.join(better)}]`",  # no edit: it would train other modules than the spec names
            (spec.model.label,),
        )
    within, known_paths = spec.get("lora.within"), module_paths(spec)
    if isinstance(within, str) and known_paths and not contains(within, known_paths):
        yield Finding(
            spec.location("lora.within"),
            f"{spec.model.name} has no module `{within[:60]}`",
            "leave `within` out: the model is a single decoder",
            (spec.model.label,),
        )


@rule("XP626", "several-modules-of-one-name", "warning")
def several_of_one_name(spec: Spec) -> Iterator[Finding]:
    """A name in `modules_to_save` should not be the end of another module's name: `norm` also trains `input_layernorm`
    and `post_attention_layernorm` of each layer. `model.norm` trains only the last norm.

    Why it is bad: modules that the spec does not name are trained and saved, too.

    Without this rule: PEFT compares the ends of paths without looking for a dot, so `norm` matches `input_layernorm`,
    and reports nothing.

    Source: peft 0.21, 0.18 and 0.17 `utils/other.py` (`_set_trainable`); confirmed by running it.
    """
    paths = module_paths(spec)
    for name in spec.names("lora.modules_to_save"):
        others = [one for one in last_names(path for path in paths if path.endswith(name)) if one != name]
        if "." in name or not others or not ends(name, paths):
            continue
        exact = next(path for path in paths if ends(name, (path,)))
        rest = [exact if one == name else one for one in spec.names("lora.modules_to_save")]
        yield Finding(
            spec.location("lora.modules_to_save", f"also {', '.join(others)}"),
            f"`{name}` also trains {' and '.join(f'`{one}`' for one in others[:3])} of {spec.model.name}",
            write(f"modules_to_save = [{', '.join(rest)}]", ", or name all of them"),
            (spec.model.label,),
        )


@rule("XP467", "tied-weights-part", "warning")
def tied_part(spec: Spec) -> Iterator[Finding]:
    """`targets` and `modules_to_save` should not name embeddings or an output head that are tied, unless the run merges
    the adapters (`save { merge }`). Tied embeddings and head share one weight, but an adapter changes only one of the
    two. With `freeze`, `except_modules` should name both or neither, because both are trained.

    Why it is bad: if an adapter on tied embeddings is merged later with peft's `merge_and_unload`, its change is added
    to the shared weight, so both embeddings and head change. An adapter that is never merged works correctly. `save {
    merge }` works correctly, too: it first gives embeddings and head separate copies of the weight. If
    `modules_to_save` names embeddings or head, they become two different weights. On trl-0.24 and trl-0.18, one of
    these two weights is lost when a merged model is saved.

    Without this rule: PEFT only warns. When the merged model is saved, transformers 4.57 keeps either the embeddings or
    the head, because the configuration says that they are tied. transformers 5.23 keeps both if they differ.

    Source: peft 0.21, 0.18 and 0.17 `tuners/tuners_utils.py`; confirmed by running it.
    """
    facts, kept = spec.model.facts, {*TABLES} & {*spec.names("freeze.except_modules")}
    if facts is None or not facts.tied or spec.flag("save.merge"):
        return
    if kept and not (kept & {*HEADS} and kept - {*HEADS}) and not spec.method.scores:
        yield Finding(
            spec.location("freeze.except_modules", "one weight of embeddings and head"),
            f"{spec.model.name} ties its embeddings to its head, so both are trained",
            f"name both, or leave {min(kept)} out",
            (spec.model.label,),
        )
    paths: tuple[NamesPath, ...] = ("lora.targets", "lora.modules_to_save")
    for path in paths if spec.stack.facts.tied_by_config else paths[:1]:
        tied = [one for one in spec.names(path) if one.rpartition(".")[2] in TABLES]
        if not tied or (path == "lora.targets" and _refused(spec, tied)):
            continue
        name, merges = path.rpartition(".")[2], not (spec.bits or spec.zero_stage == 3 or spec.sharded_by_fsdp)
        yield Finding(
            spec.location(path, "one weight with the head" if tied[0] not in HEADS else "one weight"),
            f"{spec.model.name} ties its embeddings to its head, and training one of them unties them",
            "write `save { merge }`, which separates the embeddings from the head before it merges the adapters"
            if merges
            else f"leave {tied[0]} out of `{name}`, or do not merge the adapters",
            (spec.model.label, spec.label("target", "the target")),
        )


def _refused(spec: Spec, targets: list[str]) -> bool:
    """Whether another rule already refuses one of the targets: XP454 (the output head) or XP465 (layers that are not
    linear).
    """
    names = {one.rpartition(".")[2] for one in targets}
    fused = fused_loss(spec) and spec.method.head != "model"
    return bool((fused and names & {*HEADS}) or (not spec.low_rank and names & {*TOKEN_EMBEDDINGS}))


@rule("XP468", "parameter-that-is-none")
def no_such_parameter(spec: Spec) -> Iterator[Finding]:
    """Each name in `parameters` must be a parameter of the model: experts that are stacked in one parameter, or the
    weight of a module. Experts that are separate layers, as in most families of transformers 4.52, must be named in
    `targets` instead.

    Why it is bad: a parameter that does not exist gets no adapter.

    Without this rule: PEFT warns (RuntimeWarning) and adds no adapter.

    Source: peft 0.21 and 0.17 `tuners/tuners_utils.py`; confirmed by running it.
    """
    yield from missing_layer(spec, "lora.parameters")
    known = modules(spec.stack.name, spec.model.model_type)
    missing = [one for one in spec.names("lora.parameters") if known and not is_parameter(one, known)]
    if missing:
        legal = last_names(stacked_parameters(known))
        experts = any("experts" in path for path in known)
        apart = f"the experts are separate layers in {spec.stack.name}" if experts and not legal else ""
        yield Finding(
            spec.location("lora.parameters", f"{spec.model.name} has {', '.join(legal)}" if legal else apart),
            f"{spec.model.name} has no parameter `{missing[0][:60]}`",
            "leave `parameters` out" if not legal else f"name {' or '.join(legal)}, or leave `parameters` out",
            (spec.model.label,),
        )


@rule("XP469", "two-rates-of-one")
def two_rates(spec: Spec) -> Iterator[Finding]:
    """`lr_ratio` (LoRA+) needs an optimizer whose parameter groups can have different learning rates. Three kinds of
    optimizers cannot. A layerwise optimizer has no groups: it consists of one optimizer for each parameter. LOMO
    updates the weights during the backward pass with a single rate. Muon has a single rate for all matrices.

    Why it is bad: with a single learning rate, `lr_ratio` has no effect.

    Without this rule: layerwise optimizers and LOMO silently train with a single rate.

    Source: transformers 5.23 `trainer_optimizer.py` (`LayerWiseDummyOptimizer`); lomo-optim 0.1.1; confirmed by running
    it.
    """
    name = spec.text("optimizer")
    if spec.get("lora.lr_ratio") is not None and name in (*LAYERWISE, *FUSED, *MADE_BY_RUNTIME):
        yield Finding(
            spec.location("lora.lr_ratio", "two learning rates"),
            f"`optimizer {name}` has a single learning rate" + (" for all matrices" if name in MADE_BY_RUNTIME else ""),
            "leave `lr_ratio` out",
            (spec.label("optimizer", "the optimizer"),),
        )


@rule("XP475", "new-token-without-embeddings")
def new_tokens(spec: Spec) -> Iterator[Finding]:
    """If a spec adds tokens, the embeddings and the head must be trained, because the vectors of new tokens start with
    random values. With adapters or `freeze`, they are trained only if the spec names them, for example in
    `modules_to_save`. New tokens cannot be combined with vLLM: vLLM loads the model without their vectors, and trl
    cannot send the trained vectors to vLLM.

    Why it is bad: an untrained token means nothing to the model.

    Without this rule: the new tokens silently stay noise.

    Source: the trainable weights are measured when the trainer is built (`tests/proof/measures/adapters.py`); confirmed
    by running it.
    """
    if not spec.names("model.tokens"):
        return
    path: NamesPath = "lora.modules_to_save" if spec.lora else "freeze.except_modules"
    named = {one.rpartition(".")[2] for one in spec.names(path)}
    known = last_module_names(spec)
    names = known or (*sorted(named), "embed_tokens", "lm_head")  # unknown family: names in the spec and usual names
    ends = [one for one in names if one in HEADS]
    rows = [next((one for one in names if one in EMBEDDINGS), "embed_tokens"), *(ends if known else ends[:1])]
    frozen = spec.lora or (spec.flag("freeze") and not spec.names("freeze.except_parameters"))
    if frozen and not set(rows) <= named:
        name = path.rpartition(".")[2]
        clause: FlagPath = spec.adapter if spec.lora else "freeze"
        every = ", ".join(dict.fromkeys([*rows, *spec.names(path)]))
        yield Finding(
            spec.location("model.tokens", "their embeddings start at random"),
            f"`{clause}` does not train the embeddings of the new tokens",
            f"write `{name} = [{every}]` in `{clause}`" if spec.lora else f"add {' and '.join(rows)} to `{name}`",
            (spec.label(clause), spec.label(path)),
        )
    if spec.flag("method.vllm"):
        yield Finding(
            spec.location("model.tokens", "vLLM has no embeddings for added tokens"),
            "vLLM cannot generate added tokens",
            "leave `vllm` out, or train a model that already has the tokens",
            (spec.label("method.vllm"),),
        )
