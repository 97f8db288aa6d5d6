"""accelerate's FSDP: the layers that it wraps, generation, and its loading of optimizer states (1.4 and 1.11)."""

import inspect
import os
from functools import partial
from typing import Any


def list_own_layers(model: Any) -> None:
    """Keep only those classes of ``_no_split_modules`` that the model contains. accelerate wraps modules of these
    classes, and raises ValueError if the model has none of a class. Some classes of language models also list classes
    of a vision model: Gemma 3 in transformers 4, and Qwen 3.5 in transformers 5.
    """
    kinds = {type(module).__name__ for module in model.modules()}
    for module in model.modules():  # peft reads the lists of inner models, too
        if getattr(module, "_no_split_modules", None):
            module._no_split_modules = [name for name in module._no_split_modules if name in kinds]


def gather_to_generate(model: Any) -> None:
    """Let FSDP2 gather the embeddings and the output head when a model with adapters generates.

    peft's ``generate`` calls the base model, and so not the forward method at which FSDP2 gathers the weights outside
    of the layers. accelerate before 1.15 leaves embeddings among these weights.
    """
    from torch.distributed.fsdp import register_fsdp_forward_method

    def generate(*given: Any, **named: Any) -> Any:
        del model.generate
        register_fsdp_forward_method(model, "generate")  # nothing else, if FSDP2 does not shard the model
        return model.generate(*given, **named)

    model.generate = generate


def load_sharded_states() -> None:
    """Let a run that resumes from a sharded checkpoint load the optimizer's states.

    accelerate before 1.15 loads only what the new optimizer already has, which is no state at all, and reports nothing.
    """
    from transformers import trainer

    if "use_dcp" not in inspect.signature(trainer.load_fsdp_optimizer).parameters:
        trainer.load_fsdp_optimizer = partial(_load, trainer.load_fsdp_optimizer)


def _load(complete: Any, plugin: Any, accelerator: Any, optimizer: Any, model: Any, folder: str, **how: Any) -> None:
    if plugin.state_dict_type.name != "SHARDED_STATE_DICT":
        complete(plugin, accelerator, optimizer, model, folder, **how)
        return
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    states = {"optimizer": get_optimizer_state_dict(model, optimizer)}
    checkpoint.load(states, checkpoint_id=os.path.join(folder, "optimizer_0"))
    set_optimizer_state_dict(model, optimizer, states["optimizer"])
