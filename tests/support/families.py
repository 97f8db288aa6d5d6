"""Measure what the installed libraries do with a tiny model of each family; test_stack_families.py runs this program.

The program reads a JSON list of `model_type`s from stdin, and prints a JSON object with an entry for each:

- `known`: whether transformers has the family (if not, the entry has no other keys);
- `sdpa`, `flash`, `flex`: whether the model class declares this attention;
- `scores`: whether the family has a reward head;
- `errors`: for each attention, the largest difference between a logit of the second of two packed documents and the
  same logit without packing. If the library refuses the attention, the exception, such as "ValueError: ...";
- `ends`: whether the model raises an exception for a row longer than its context;
- `scaled`: the kinds of RoPE scaling that change the model's logits, such as "yarn";
- `forgets`: whether gradient checkpointing changes completions that are generated during training;
- `packs`: the number of layers that are quantized to 4 bits;
- `routed`: the class of the layers that call only some of their experts;
- `unbalanced`: in which configurations trl's fused head fails with the load balancing loss;
- `renamed`: whether weights are saved under other names than the model has.

Any other exception ends the program; the last line of stderr then names the family. MEMORY limits the memory.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import resource
import sys
import warnings
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = ""
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(os.path.dirname(HERE), "proof"), os.path.dirname(os.path.dirname(HERE))]
NAMES = {"eager": "eager", "sdpa": "sdpa", "flash2": "flash_attention_2", "flash3": "flash_attention_3"}
REFUSALS = ("does not support", "keep packed sequences apart")
"""Parts of the messages of two expected ValueErrors: the class does not support a kind of attention, or its kernels are
missing.
"""
MEMORY = 4 << 30
"""This process may have at most this many bytes of data memory (RLIMIT_DATA). The libraries alone take half a GiB."""


def refusal(found: Exception) -> str:
    """The exception as text, "ValueError: ...". If the message has no text of `REFUSALS`, a ValueError is unexpected,
    and is raised again.
    """
    if isinstance(found, ValueError) and not any(words in str(found) for words in REFUSALS):
        raise found
    return f"{type(found).__name__}: {found}"


def random_model(model_type: str, std: float, **options: Any) -> Any:
    """The family's tiny model in evaluation mode, with random weights of standard deviation ``std``.

    If the weights are large, the logits of a token visibly depend on the tokens to which it attends.
    """
    import tiny_models
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(tiny_models.config(model_type), **options).eval().float()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=std)
    return model


def error(model_type: str, attention: str) -> float | str:
    """Compute the logits of two documents twice: packed into one row, and each document alone. Return the largest
    difference between the two values of a logit.

    The packed row has the inputs that trl's collator adds, such as position_ids. If the library refuses the attention,
    the result is the exception as text.
    """
    import torch
    from trl.trainer import sft_trainer

    try:
        model = random_model(model_type, 0.1, attn_implementation=NAMES[attention])
    except (ValueError, ImportError) as found:
        return refusal(found)
    except KeyError as found:  # the family has no class for this attention
        return f"KeyError: {found}"
    generator = torch.Generator().manual_seed(0)
    lengths = (7, 9)
    documents = [torch.randint(3, 120, (1, length), generator=generator) for length in lengths]
    extras: dict[str, Any] = {"position_ids": torch.cat([torch.arange(length) for length in lengths])[None]}
    # trl's collator also passes the bounds of the documents (`seq_idx`)
    if "seq_idx" in inspect.getsource(sft_trainer):
        bounds = torch.tensor([0, 7, 16], dtype=torch.int32)
        extras.update(cu_seq_lens_q=bounds, cu_seq_lens_k=bounds, max_length_q=9, max_length_k=9)
        extras["seq_idx"] = torch.tensor([[0] * 7 + [1] * 9], dtype=torch.int32)
    known = inspect.signature(model.forward).parameters
    if not any(one.kind is one.VAR_KEYWORD for one in known.values()):
        extras = {name: value for name, value in extras.items() if name in known}
    try:
        with torch.no_grad():
            apart = torch.cat([model(input_ids=one, use_cache=False).logits for one in documents], 1)
            packed = model(input_ids=torch.cat(documents, 1), use_cache=False, **extras).logits
    except ValueError as found:
        return refusal(found)
    except (IndexError, RuntimeError) as found:
        if attention != "flash3":
            raise
        return f"{type(found).__name__}: {found}"  # the family passes a mask that this kernel does not accept
    largest = float((apart - packed)[:, 7:].abs().max())
    assert apart.dtype == torch.float32, apart.dtype
    assert math.isfinite(largest), largest
    return largest


def undropped(model: Any) -> Any:
    """Set every dropout of the model to 0, and return the model."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name in [name for name, value in vars(module).items() if "drop" in name and isinstance(value, float)]:
            setattr(module, name, 0.0)
    return model


def completed(model: Any, recomputed: bool) -> list[Any]:
    """Generate greedy completions of two prompts twice: in evaluation mode, and in training mode inside trl's context
    manager for generation. With ``recomputed``, training mode uses gradient checkpointing. Return the completions of
    both modes as tensors, which should be equal.

    One prompt is padded on the left, so that a wrong attention mask changes its completion.
    """
    import torch
    from accelerate import Accelerator
    from transformers import GenerationConfig
    from trl.models.utils import unwrap_model_for_generation

    ids = torch.randint(3, 120, (2, 6), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, :2] = 0
    requested = GenerationConfig(max_new_tokens=8, do_sample=False, pad_token_id=0, eos_token_id=None)

    def written(by: Any) -> Any:
        with torch.no_grad():
            return by.generate(ids, attention_mask=mask, generation_config=requested)

    alone = written(undropped(model).eval())
    model.train()
    if recomputed:
        # with gradient checkpointing, trl's trainers turn the cache off
        model.config.use_cache = False
        model.gradient_checkpointing_enable()
    with unwrap_model_for_generation(model, Accelerator(cpu=True)) as unwrapped:
        return [alone, written(unwrapped)]


def forgets(model_type: str) -> bool | None:
    """Whether gradient checkpointing changes completions that are generated during training, or raises an exception.

    None if this cannot be measured: the family has no gradient checkpointing, or its tiny model cannot generate.
    """
    import torch

    if not random_model(model_type, 0.2).supports_gradient_checkpointing:
        return None
    try:
        plain = completed(random_model(model_type, 0.2), False)
    except (IndexError, RuntimeError, ValueError, AttributeError, TypeError):
        return None
    if not torch.equal(*plain):
        return None
    try:
        return not torch.equal(*completed(random_model(model_type, 0.2), True))
    except (IndexError, RuntimeError):
        return True


def packs(model_type: str) -> int | None:
    """How many layers of this family transformers replaces by 4-bit layers; None if bitsandbytes is not installed."""
    import importlib.util

    import tiny_models
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    if importlib.util.find_spec("bitsandbytes") is None:
        return None
    from transformers.integrations import replace_with_bnb_linear

    model = AutoModelForCausalLM.from_config(tiny_models.config(model_type))
    requested = BitsAndBytesConfig(load_in_4bit=True)
    model = replace_with_bnb_linear(model, modules_to_not_convert=["lm_head"], quantization_config=requested)
    return sum(type(module).__name__ == "Linear4bit" for module in model.modules())


POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")
"""Keys of a configuration for the context length. Each family has one of them."""


SCALINGS: dict[str, dict[str, float]] = {
    "yarn": {}, "linear": {}, "dynamic": {}, "llama3": {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
}  # fmt: skip


def scaled(model_type: str) -> list[str]:
    """The kinds of RoPE scaling that change the logits of a row longer than the context.

    Each kind is tried: the runtime writes it into a tiny model's configuration. If a kind is not in the result, it has
    no effect on this family, or cannot be written.
    """
    import tiny_models
    import torch
    from transformers import AutoModelForCausalLM

    from runtime.core.errors import RunError
    from runtime.features.model.rope import scale

    def logits(rope: dict[str, Any] | None) -> torch.Tensor:
        config = tiny_models.config(model_type)
        for name in (one for one in POSITIONS if hasattr(config, one)):
            setattr(config, name, 64)
        if rope is not None:
            scale(config, rope, model_type)
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).eval()
        if weights:
            model.load_state_dict(weights)
        weights.update(model.state_dict())
        with torch.no_grad():
            return torch.as_tensor(model(input_ids=torch.arange(3, 103)[None], use_cache=False).logits)

    found, weights = [], dict[str, torch.Tensor]()
    try:
        plain = logits(None)
        for kind, parameters in SCALINGS.items():
            rope = {"rope_type": kind, "factor": 4.0, "original": None, "parameters": parameters}
            found += [kind] if not torch.equal(logits(rope), plain) else []
    except (RunError, IndexError, RuntimeError, AttributeError, KeyError, TypeError):
        # The family has no rotary positions, or it configures them by keys that `scale` does not know.
        return found
    return found


def ends(model_type: str) -> bool:
    """Whether a row that is one token longer than the context raises an exception. A row that is exactly as long as the
    context must not raise an exception.
    """
    import tiny_models
    import torch
    from transformers import AutoModelForCausalLM

    config = tiny_models.config(model_type)
    for name in (one for one in POSITIONS if hasattr(config, one)):
        setattr(config, name, 64)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        model(input_ids=torch.full((1, 64), 3), use_cache=False)
        try:
            model(input_ids=torch.full((1, 65), 3), use_cache=False)
        except (IndexError, RuntimeError):
            return True
    return False


def routed(model_type: str) -> str | None:
    """The class of those layers in which a token calls only some of the experts. None if every token calls all experts,
    or if there are no experts.
    """
    import torch

    model = random_model(model_type, 0.1)
    called: set[str] = set()
    groups = {name: one for name, one in model.named_modules() if name.endswith("experts")}
    groups = {name: one for name, one in groups.items() if isinstance(one, torch.nn.ModuleList)}
    experts = [f"{name}.{number}" for name, one in groups.items() for number in range(len(one))]
    for expert in experts:
        for module in model.get_submodule(expert).modules():  # some layers call an expert's submodules directly
            module.register_forward_pre_hook(functools.partial(_note, called, expert))
    with torch.no_grad():
        model(input_ids=torch.tensor([[5]]), use_cache=False)
    idle = next((expert for expert in experts if expert not in called), None)
    return None if idle is None else type(model.get_submodule(idle.rsplit(".", 2)[0])).__name__


def _note(called: set[str], expert: str, *_: object) -> None:
    called.add(expert)


def unbalanced(model_type: str) -> str | None:
    """When trl's fused head fails with the load balancing loss: "default" if it fails with the family's default
    configuration, "stated" if it fails only when a spec states the coefficient of this loss, None if it never fails.
    """
    import tiny_models
    import torch
    from transformers import AutoModelForCausalLM

    try:
        from trl.trainer.utils import add_fused_lm_head
    except ImportError:
        return None
    config = tiny_models.config(model_type)
    if not hasattr(config, "output_router_logits"):
        # without `output_router_logits`, SFTTrainer adds no balancing loss
        return None
    when = "default" if getattr(config, "router_aux_loss_coef", 0.0) else "stated"
    config.output_router_logits, config.router_aux_loss_coef = True, 1.0
    model = AutoModelForCausalLM.from_config(config)
    add_fused_lm_head(model)
    ids = torch.full((1, 8), 3)
    try:
        model(input_ids=ids, labels=ids, fused_lm_head=True)
    except (AttributeError, IndexError, RuntimeError):
        return when
    return None


def renamed(model_type: str) -> bool:
    """Whether weights have other names in a saved model.safetensors than in memory, or whether transformers has a table
    that converts the names of this family's weights.
    """
    import tempfile

    import tiny_models
    from safetensors import safe_open
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(tiny_models.config(model_type))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with safe_open(os.path.join(folder, "model.safetensors"), "pt") as file:
            names = set(file.keys())
    try:
        from transformers.conversion_mapping import get_checkpoint_conversion_mapping as converted
    except ImportError:
        return not names <= set(model.state_dict())
    return not names <= set(model.state_dict()) or converted(model_type) is not None


def flags(model_type: str) -> dict[str, bool]:
    """For each attention implementation, whether the family's causal model class declares it; and whether the family
    has a class for reward models.
    """
    import transformers
    from transformers.models.auto import modeling_auto as auto

    name = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type]
    real = getattr(transformers, name if isinstance(name, str) else name[0])
    flash = real._supports_flash_attn if hasattr(real, "_supports_flash_attn") else real._supports_flash_attn_2
    scores = model_type in auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
    return {"sdpa": real._supports_sdpa, "flash": flash, "flex": real._supports_flex_attn, "scores": scores}


def main() -> None:
    """Print the JSON object with the results as the last line of standard output."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    import flash

    flash.install()
    import torch
    from transformers import CONFIG_MAPPING, logging
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    logging.set_verbosity_error()
    torch.set_num_threads(1)
    out: dict[str, Any] = {}
    for model_type in json.load(sys.stdin):
        if model_type not in CONFIG_MAPPING:
            out[model_type] = {"known": False}
            continue
        # printed before the work: if the program fails or is killed, the last printed name is the family that caused it
        print(model_type, file=sys.stderr, flush=True)
        errors = {
            one: error(model_type, one) for one, known in NAMES.items() if known in ("eager", *ALL_ATTENTION_FUNCTIONS)
        }
        more = {"forgets": forgets(model_type), "packs": packs(model_type), "routed": routed(model_type),
                "unbalanced": unbalanced(model_type), "renamed": renamed(model_type)}  # fmt: skip
        out[model_type] = {"known": True, **flags(model_type), "errors": errors, "ends": ends(model_type),
                           "scaled": scaled(model_type), **more}  # fmt: skip
    print(json.dumps(out))


if __name__ == "__main__":
    main()
