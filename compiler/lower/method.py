"""Lower the method of a spec: to its own trainer arguments, and to the sections `method` and `lora` of
`trainer_args.json`.
"""

from __future__ import annotations

from xpc.compiler.language.kinds import Amount, Weighted
from xpc.compiler.language.methods import Method
from xpc.compiler.language.methods.definition import none
from xpc.compiler.language.schema import TABLE
from xpc.compiler.lower.dtypes import DTYPES
from xpc.compiler.spec import CALLED, Spec
from xpc.compiler.spec.adapter_dtype import adapter_dtype
from xpc.compiler.spec.resources import Model
from xpc.compiler.stacks import Json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.runtime.core.payload import Adapter, AdapterShape, Freeze, OfFile, Reward, Teacher, Tools
    from xpc.runtime.core.payload import Method as Section

APART = ("method.loss", "method.rewards", "method.teacher", "method.tools", "method.environment", "method.tool_timeout")
"""Settings that `method_arguments` skips, because other functions translate them: each decides several arguments, or
what the runtime loads.
"""


def method_arguments(spec: Spec) -> dict[str, Json]:
    """The trainer arguments that the settings of the method decide, under the names of the target."""
    method, fields = spec.text("method"), spec.fields()
    out: dict[str, Json] = {}
    for row in TABLE:
        value = spec.get(row.path)
        if method not in row.methods or not row.path.startswith("method.") or row.path in APART or value is None:
            continue
        name = next((name for name in row.args if name in fields), None)
        if name is not None:
            out[name] = _plain(value, fields[name].type)
    if spec.get("method.loss") is not None:
        out.update(_loss(spec, fields["loss_type"].type))
    out.update({name: value for name, value in spec.method.arguments.items() if name in fields})
    if spec.online and "shuffle_dataset" in fields:
        out["shuffle_dataset"] = spec.flag("data.shuffle")
    if spec.method.grouped:
        weights = [one.weight for one in spec.weighted("method.rewards")]
        stated = any(weight is not None for weight in weights)
        out["reward_weights"] = [1.0 if one is None else one for one in weights] if stated else None
    if method in spec.stack.facts.keeps_columns:
        out["remove_unused_columns"] = False
    return out


def _plain(value: object, kind: str) -> Json:
    """The value of a setting, converted to the argument's type `kind`."""
    if isinstance(value, Amount):
        return value.value
    # the argument may be a bool on this stack, as `scale_rewards` is in TRL 0.18
    if kind == "bool" and isinstance(value, str):
        return value != "none"
    if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    assert isinstance(value, bool | int | float | str)
    return value


def _loss(spec: Spec, kind: str) -> dict[str, Json]:
    here, losses = spec.stack.losses(spec.text("method")), spec.weighted("method.loss")
    names: list[Json] = [here[one.name] for one in losses]
    if not kind.startswith("list"):
        return {"loss_type": names[0]}
    stated = any(one.weight is not None for one in losses)
    return {
        "loss_type": names,
        "loss_weights": [1.0 if one.weight is None else one.weight for one in losses] if stated else None,
    }


def method_section(spec: Spec) -> Section:
    """The section `method` of trainer_args.json. It contains those settings of the method that the runtime needs and
    that no trainer argument states, such as reward functions and the teacher.
    """
    rewards: list[Reward] = []
    for one in spec.weighted("method.rewards"):
        reward: Reward = {"name": one.name, "file": one.file, "function": one.function, "sha256": one.sha256}
        rewards.append({**reward, "options": dict(one.arguments)} if one.arguments else reward)
    section: Section = {
        **method_facts(spec.method),
        "rewards": rewards,
        "teacher": None if spec.teacher is None else _teacher(spec, spec.teacher),
    }
    return {**section, "tools": _tools(spec)} if spec.calls_tools else section


def _tools(spec: Spec) -> Tools:
    """The functions and the environment that the model may call, and how long a call may take."""
    functions, classes = ([_of_file(one) for one in spec.weighted(path)] for path in CALLED)
    environment = classes[0] if classes else None
    return {"functions": functions, "environment": environment, "seconds": spec.integer("method.tool_timeout")}


def _of_file(one: Weighted) -> OfFile:
    assert one.file is not None
    assert one.function is not None
    assert one.sha256 is not None
    return {"file": one.file, "function": one.function, "sha256": one.sha256}


def method_facts(method: Method) -> Section:
    """Properties of the method, such as whether it generates completions. The runtime asks for such a property and
    never for the method's name.
    """
    return {
        "name": method.name,
        "generates": method.generates,
        "rewarded": method.grouped,
        "scores": method.scores,
        "unpaired": method.shapes[0] == "unpaired",
        "second_model": method.references is not none or "method.teacher" in method.paths,
        "rewards": [],
        "teacher": None,
    }


def _teacher(spec: Spec, teacher: Model) -> Teacher:
    """The folder or repository from which the teacher is loaded, and its dtype."""
    return {
        "id": teacher.id,
        "path": teacher.path,
        "revision": teacher.revision,
        "dtype": DTYPES[spec.text("method.teacher_dtype")],
    }


def max_prompt(spec: Spec) -> int | None:
    """The largest number of tokens that a rendered prompt may have, if the runtime has to drop rows with longer
    prompts. Otherwise None.

    The runtime drops such rows, and reports how many, if the trainer has no argument for this limit. It does not cut
    the prompts, for two reasons. A cut at the beginning, as in TRL 0.18, removes the system prompt. And some trainers
    render the conversation themselves, so the runtime cannot give them a cut prompt.
    """
    return None if "max_prompt_length" in spec.fields() else spec.get("method.max_prompt")


def lora_section(spec: Spec) -> Adapter | None:
    """The values for the adapters' PEFT configuration and for BitsAndBytesConfig; None if the run has no adapter.

    Under FSDP and ZeRO-3, the storage dtype of 4-bit weights is the dtype of the other weights, because these
    strategies cannot shard weights of different dtypes together (accelerate 1.15, utils/fsdp_utils.py). With other
    strategies, the storage dtype is uint8, the default of bitsandbytes.
    """
    if not spec.lora:
        return None
    made: Adapter = {
        **_shape(spec),
        "dropout": spec.real("lora.dropout"),
        "targets": list(spec.names("lora.targets")) or "all-linear",
        "modules_to_save": list(spec.names("lora.modules_to_save")) or None,
        "adapter_dtype": None if (dtype := adapter_dtype(spec)) is None else DTYPES[dtype],
        "bits": spec.bits,
        "compute_dtype": DTYPES[spec.text("precision")],
        "storage_dtype": DTYPES[spec.text("model.dtype")] if spec.weights_sharded else "uint8",
        "double_quant": spec.get("lora.double_quant") is not False,
        "quant_type": "nf4",
    }
    compares = spec.compares and spec.text("method") in spec.stack.facts.adapter_references
    if compares and spec.starts_apart:
        made["reference"] = True
    if spec.flag("save.merge"):
        made["merge"] = True
    within = spec.get("lora.within")
    if within is not None:
        made["within"] = within
    if spec.continued is not None:
        made["continued"] = {"path": spec.continued.path, "sha256": spec.continued.sha256}
        if compares:
            made["continued"]["reference"] = True
    return made


def _shape(spec: Spec) -> AdapterShape:
    """The kind of the adapters, the sizes of their matrices and, for LoRA+, the two learning rates."""
    if spec.flag("oft"):
        rank = spec.get("lora.rank")
        block = None if rank is not None else spec.integer("lora.block_size")
        return {"kind": "oft", "rank": rank, "block_size": block}
    if spec.flag("vera"):
        return {"kind": "vera", "rank": spec.integer("lora.rank")}
    if spec.flag("miss"):
        return {"kind": "miss", "rank": spec.integer("lora.rank")}
    real = spec.real("lora.alpha")
    alpha = int(real) if real == int(real) else real
    if spec.flag("loha"):
        return {"kind": "loha", "rank": spec.integer("lora.rank"), "alpha": alpha}
    ratio = spec.get("lora.lr_ratio")
    made: AdapterShape = {
        "kind": "lora",
        "rank": spec.integer("lora.rank"),
        "alpha": alpha,
        "rslora": spec.flag("lora.rslora"),
        "dora": spec.flag("lora.dora"),
        "parameters": list(spec.names("lora.parameters")) or None,
        "lr_ratio": None if ratio is None else spec.real("lora.lr_ratio"),
        "embedding_lr": None if ratio is None else spec.real("lora.embedding_lr"),
    }
    init = spec.get("lora.init")
    if isinstance(init, str):
        made["init"] = init
    if init == "eva":
        made["init_rows"] = spec.integer("lora.init_rows")
    elif init == "pissa" and spec.get("lora.init_iterations") is not None:
        made["init_iterations"] = spec.integer("lora.init_iterations")
    return made


def freeze_section(spec: Spec) -> Freeze | None:
    """The section `freeze` of trainer_args.json: which weights stay trainable. None if the spec has no `freeze`."""
    if not spec.flag("freeze"):
        return None
    return {
        "last": spec.get("freeze.except_last"),
        "first": spec.get("freeze.except_first"),
        "layer_modules": list(spec.names("freeze.layer_modules")) or None,
        "modules": list(spec.names("freeze.except_modules")) or None,
        "parameters": list(spec.names("freeze.except_parameters")) or None,
    }
