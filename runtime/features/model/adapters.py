"""Adapters, and a quantized base model: their configurations. Also compare the built adapters with the bundle."""

import logging
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

from ...core.fault_tolerance import FaultTolerant
from ...core.feature import Arguments, Bundle, Feature, Model, Tokenizer, Trainer
from ...library_internals.adapter_loading import LoadingHook

ADAPTER = "default"
"""The name that peft gives the trained adapter."""
REFERENCE = "ref"
"""The name that trl gives the adapter in the reference model."""
LABELS = "No label_names provided for model class `PeftModel"
"""The beginning of a wrong warning of transformers 4.52. It searches peft's forward method for the names of labels, and
finds none.
"""


def add_reference(model: Model, config: object) -> None:
    """Add the frozen adapter "ref", which trl uses as the reference model."""
    model.add_adapter(REFERENCE, config)
    for name, weight in model.named_parameters():
        if f".{REFERENCE}." in name:
            weight.requires_grad_(False)


class Adapters(Feature):
    """Hooks for a run with adapters."""

    def before_imports(self, bundle: Bundle, environ: MutableMapping[str, str]) -> None:
        """Filter harmless warnings about tied weights, embeddings and label names."""
        # peft 0.18 gives this warning for every model whose class can tie weights. The rule XP467 warns only if the
        # model does tie weights, and one of them has an adapter. merged_adapters.py unties them before a merge.
        warnings.filterwarnings("ignore", message="Model (has|with) `tie_word_embeddings=True` and")
        # peft also saves the base's embeddings if they have an adapter or new rows; this changes no result
        warnings.filterwarnings("ignore", message="Setting `save_embedding_layers` to `True` as")
        logging.getLogger("transformers.trainer").addFilter(lambda record: LABELS not in record.getMessage())

    def model_options(self, bundle: Bundle, options: dict[str, object]) -> None:
        """Add the quantization of the base model to the arguments with which it is loaded."""
        quantized = quantization(bundle)
        options |= {} if quantized is None else {"quantization_config": quantized}

    def trainer_options(self, bundle: Bundle, model: Model, load: Callable[[], Model], options: dict[str, Any]) -> None:
        """Add peft's configuration of the adapters to the arguments of the trainer, and keep 4-bit layers unpacked."""
        plan = bundle.lora
        assert plan is not None
        options["peft_config"] = adapter(bundle)
        if plan["bits"] == 4:
            keep_backward(model)  # here, because kto's trainer already computes its reference when it is made

    def trainer_made(self, bundle: Bundle, trainer: Trainer, tokenizer: Tokenizer) -> None:
        """Set the learning rates of LoRA+, and correct the dtypes of trained weights over a quantized base."""
        plan = bundle.lora
        assert plan is not None
        if plan.get("lr_ratio") is not None:
            trainer.rates = {**plan, "rate": trainer.args.learning_rate}
        if bundle.plan["method"]["scores"] and plan["bits"] is not None:
            keep_scores(trainer.model, trainer.args)

    def base_settings(self, bundle: Bundle, trainer: Trainer) -> dict[str, Any]:
        """The quantization of the base. Whoever loads the adapter needs it: an adapter that LoftQ initialized, for
        example, is correct only on a base of 4 bits.
        """
        quantized = quantization(bundle)
        stated = {} if quantized is None else quantized.to_diff_dict()
        return {"quantization_config": {key: one for key, one in stated.items() if key[0] != "_"}} if stated else {}

    def made(self, bundle: Bundle, trainer: Trainer) -> Iterator[tuple[str, object, object]]:
        """Compare the adapted modules, their shape and dtype, and the trained weights with the bundle."""
        plan = bundle.lora
        assert plan is not None
        return built(plan, trainer.model)


def adapter(bundle: Bundle) -> object:
    """peft's configuration of the adapters; None if no adapter is trained.

    The score head of a reward model is new. With the task SEQ_CLS, peft trains the head, saves it next to the adapters
    (``modules_to_save``), and excludes it from "all-linear". adapter_config.json contains the revision, so that the
    adapter is later loaded onto the weights that it was trained on.
    """
    plan = bundle.lora
    if plan is None:
        return None
    import peft

    common = {
        "target_modules": _inside_module(plan["within"], plan["targets"]) if plan.get("within") else plan["targets"],
        # a copy, because peft appends to the list
        "modules_to_save": plan["modules_to_save"] and [*plan["modules_to_save"]],
        "task_type": "SEQ_CLS" if bundle.plan["method"]["scores"] else "CAUSAL_LM",
        "revision": bundle.model["revision"] if bundle.model["id"] is not None else None,
    }
    if plan["kind"] == "oft":
        # peft accepts either `r` or `oft_block_size`; the other must be 0.
        sizes = {"r": plan["rank"] or 0, "oft_block_size": plan["block_size"] or 0}
        return peft.OFTConfig(**sizes, module_dropout=plan["dropout"], **common)
    if plan["kind"] == "vera":
        return peft.VeraConfig(r=plan["rank"], vera_dropout=plan["dropout"], **common)
    if plan["kind"] == "miss":
        return peft.MissConfig(r=plan["rank"], miss_dropout=plan["dropout"], **common)
    alpha = plan["alpha"]
    if plan["kind"] == "loha":
        return peft.LoHaConfig(r=plan["rank"], alpha=alpha, **common)
    return peft.LoraConfig(
        r=plan["rank"],
        lora_alpha=int(alpha) if int(alpha) == alpha else alpha,
        lora_dropout=plan["dropout"],
        use_rslora=plan["rslora"],
        use_dora=plan["dora"],
        target_parameters=plan["parameters"],
        init_lora_weights="gaussian" if plan.get("init") == "gaussian" else True,
        **common,
    )


def _inside_module(module: str, targets: Sequence[str]) -> str:
    """The pattern for targets inside one module. peft compares it with the full names of modules."""
    names = "|".join(map(re.escape, targets))
    return rf"(?:.*\.)?{re.escape(module)}\.(?:.*\.)?(?:{names})"


def built(plan: Mapping[str, Any], model: Model) -> Iterator[tuple[str, object, object]]:
    """Yield a triple for each setting of the adapters: its name, the bundle's value, and the value that peft made. An
    example of a name is "the target `q_proj`".

    The two values may differ: peft skips a target that matches nothing if another target matches. peft rounds OFT's
    block size if it does not divide the layer's width. If transformers 5 stacks the experts in one parameter, peft
    moves the targets that name experts from ``target_modules`` to ``target_parameters``; two targets in the same stack
    get one common adapter of twice the rank.
    """
    config = model.peft_config[ADAPTER]
    ranks = "miss_r" if plan["kind"] == "miss" else "r"
    layers = ((name, one) for name, one in model.named_modules() if isinstance(getattr(one, ranks, None), dict))
    adapted = {name: one for name, one in layers if ADAPTER in getattr(one, ranks)}
    places = [name.replace(".base_layer", "") for name in adapted]
    stacks = [
        f"{name}.{getattr(one, 'parameter_name', '')}" for name, one in zip(places, adapted.values(), strict=True)
    ]
    saved = [name for name, one in model.named_modules() if ADAPTER in (getattr(one, "modules_to_save", None) or ())]
    renamed = set(getattr(config, "target_parameters", None) or ()) - {*(plan.get("parameters") or ())}
    listed = plan["targets"] if isinstance(plan["targets"], list) else []
    for name in listed:
        ends = f"{plan['within']}.*.{name}" if plan.get("within") else name
        found = "adapted" if _matches(ends, places) else "in no module of the model"
        if found != "adapted" and renamed and name not in config.target_modules:
            *inside, last = name.split(".")
            # `shared_experts.down_proj`, for example, does not name a routed expert
            other = inside and inside[-1] != "experts" and last != "gate"
            limited = plan.get("within") or any(word.isdecimal() for word in inside)
            found = "adapted in the experts of every layer" if other or limited else "adapted"
        yield f"the target `{name}`", "adapted", found
    # with all-linear, peft also lists routers that this model does not have; such routers are not compared
    for name in (*(plan.get("parameters") or ()), *(renamed if listed else ())):
        yield f"the parameter `{name}`", "adapted", "adapted" if _matches(name, stacks) else "not in the model"
    for name in plan["modules_to_save"] or ():
        yield f"the module `{name}`", "trained", "trained" if _matches(name, saved) else "not in the model"
    attribute, stated = (ranks, plan["rank"]) if plan["rank"] is not None else ("oft_block_size", plan["block_size"])
    for name, module in adapted.items():
        fused = plan["kind"] == "lora" and getattr(module, "parameter_name", None) in renamed
        value = getattr(module, attribute)[ADAPTER]
        what = f"the {'rank' if attribute == ranks else 'block size'} of the adapter on {name}"
        yield what, stated, stated if fused and value == 2 * stated else value
    yield from _weights(plan, model)


def _matches(name: str, places: Iterable[str]) -> bool:
    """Whether a target is one of these full names, or the end of a full name. `a.*.b` matches any `b` inside of `a`."""
    pattern = re.compile(rf"(?:.*\.)?{re.escape(name).replace(re.escape('.*.'), r'[.](?:.*[.])?')}")
    return any(pattern.fullmatch(one) for one in places)


def _weights(plan: Mapping[str, Any], model: Model) -> Iterator[tuple[str, object, object]]:
    """Like `built`, for each weight: whether it is trained or frozen as it should be, and the dtype of adapters."""
    prefixes = (f".{model.base_model.prefix}", f".modules_to_save.{ADAPTER}.")
    for name, weight in model.named_parameters():
        own = f".{ADAPTER}" in name and any(one in name for one in prefixes)
        if own != weight.requires_grad:
            yield f"the weight {name}", *(("trained", "frozen") if own else ("frozen", "trained"))
        kind = str(weight.dtype).removeprefix("torch.")
        # the frozen adapter of a reference, and magnitudes of DoRA, may have another dtype
        if plan["adapter_dtype"] is not None and own and prefixes[0] in name and "magnitude" not in name:
            yield f"the dtype of {name}", plan["adapter_dtype"], kind


class AdapterTrainer(LoadingHook, FaultTolerant):
    """Trainer methods for a run with adapters."""

    rates: Mapping[str, Any] | None = None
    model: Model

    def create_optimizer(self, *args: Any) -> object:
        """The optimizer, with the learning rates of LoRA+ if the bundle sets them."""
        optimizer = super().create_optimizer(*args)  # type: ignore[misc]
        if self.rates is not None:
            rates(optimizer, args[0] if args and args[0] is not None else self.model, self.rates)
        return optimizer

    def load_checkpoint(self, load: Callable[[], None]) -> None:
        """Restore the dtype of the trained weights after loading, because peft loads adapters as float32.

        trl 1.16 may train adapters over a quantized base in bfloat16; a resumed run would otherwise use float32.
        """
        kinds = {name: weight.dtype for name, weight in self.model.named_parameters()}
        load()
        for name, weight in self.model.named_parameters():
            if weight.dtype != kinds[name]:
                weight.data = weight.data.to(kinds[name])


def keep_backward(model: Model) -> None:
    """Keep 4-bit weights on the CPU in their stored form, so that gradients still flow after an evaluation.

    On a CPU with AVX512-BF16, bitsandbytes packs a layer for inference at its first pass without gradients
    (Linear4bit.forward of 0.50, nn/modules.py) and never unpacks it. A packed layer has no backward pass: either the
    adapters in earlier layers silently get no gradient, or the bias stops the run ("a view of a leaf Variable").
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def rates(optimizer: Any, model: Model, plan: Mapping[str, Any]) -> None:
    """Split the optimizer's groups for LoRA+: B matrices and adapters on embeddings get their own learning rates.

    Other options of a group, such as weight decay, stay the same. Weights are selected by name, not by shape as in
    peft's ``create_loraplus_optimizer``, because ZeRO-3 hides shapes and peft 0.17 finds no embeddings. The logged rate
    is the rate of the first group, the A matrices.
    """
    rate_of: dict[int, float] = {}
    for name, weight in model.named_parameters():
        if ".lora_embedding_" in name:
            rate_of[id(weight)] = plan["embedding_lr"]
        elif ".lora_B." in name or ".lora_magnitude_vector." in name:
            rate_of[id(weight)] = plan["rate"] * plan["lr_ratio"]
    parts: list[dict[str, Any]] = []
    for group in optimizer.param_groups:
        split: dict[float, list[object]] = {}
        for weight in group["params"]:
            split.setdefault(rate_of.get(id(weight), group["lr"]), []).append(weight)
        parts += [{**group, "params": weights, "lr": rate} for rate, weights in split.items()]
    optimizer.param_groups[:] = parts


def quantization(bundle: Bundle) -> Any:
    """transformers' BitsAndBytesConfig for a base of 4 or 8 bits, or None.

    ``storage_dtype`` is the dtype of packed 4-bit weights: FSDP and ZeRO-3 shard these only if all other weights have
    the same dtype (accelerate 1.15, fsdp_utils.py).
    """
    plan = bundle.lora
    if plan is None or plan["bits"] is None:
        return None
    import torch
    from transformers import BitsAndBytesConfig

    if plan["bits"] == 8:
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=plan["quant_type"],
        bnb_4bit_use_double_quant=plan["double_quant"],
        bnb_4bit_compute_dtype=getattr(torch, plan["compute_dtype"]),
        bnb_4bit_quant_storage=getattr(torch, plan["storage_dtype"]),
    )


def keep_scores(model: Model, args: Arguments) -> None:
    """Give the score head of a reward model over a quantized base the dtype of the model's other weights.

    trl 1.16 makes every trained weight of such a model bfloat16. Adapters convert their inputs. The score head does
    not, and so fails without mixed precision ("expected m1 and m2 to have the same dtype"; confirmed by running it).
    """
    if args.bf16 or args.fp16:
        return
    for name, weight in model.named_parameters():
        if ".score." in name:
            weight.data = weight.data.to(model.config.dtype)
