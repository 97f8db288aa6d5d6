"""Merge the adapters of a run into their base, to get a model that plain transformers and inference servers
can load.
"""

import os
import shutil
import warnings
from typing import Any

from ...core.checkpoint_integrity import set_default_mode
from ...core.feature import Bundle, Feature, Tokenizer, Trainer

FOLDER = "merged"
"""The subfolder for the merged model. The output folder itself contains the adapters."""


class MergedAdapters(Feature):
    """Hooks for a run that saves a merged model next to the adapters."""

    def final_saved(self, bundle: Bundle, trainer: Trainer, tokenizer: Tokenizer) -> None:
        """Merge on process 0, and save the model with its tokenizer and card. This modifies the trained model.

        Raises ValueError if a merged weight is not finite (peft's ``safe_merge``). Replaces an incomplete folder of an
        earlier, interrupted run.
        """
        if not trainer.is_world_process_zero():
            return
        place = os.path.join(trainer.args.output_dir, FOLDER)
        shutil.rmtree(place, ignore_errors=True)
        model = merged(trainer.accelerator.unwrap_model(trainer.model))
        model.config.use_cache = True
        model.save_pretrained(place)
        tokenizer.save_pretrained(place)
        shutil.copyfile(bundle.inside("model_card_merged.md"), os.path.join(place, "README.md"))
        set_default_mode(place, os.listdir(place))


def merged(adapted: Any) -> Any:
    """The base model of ``adapted`` with the adapters merged into it. This modifies ``adapted``.

    Tied embeddings and head are one weight, but an adapter on `embed_tokens` changes the embeddings alone. peft would
    add the adapter to the shared weight, and so also to the head. Therefore an adapted weight gets its own copy first.
    Then the configuration states whether embeddings and head are tied; without this statement, transformers 4.57 would
    tie them again when it loads the model.
    """
    from torch import nn

    places: dict[int, int] = {}
    for _, weight in adapted.named_parameters(remove_duplicate=False):
        places[id(weight)] = places.get(id(weight), 0) + 1
    for module in adapted.modules():
        base = getattr(module, "base_layer", None)
        weight = getattr(base, "weight", None)
        if base is not None and weight is not None and places.get(id(weight), 0) > 1:
            base.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Input and output embeddings are no longer tied")
        model = adapted.merge_and_unload(safe_merge=True)
    head = model.get_output_embeddings()
    if head is not None and head.weight is not model.get_input_embeddings().weight:
        model.config.get_text_config().tie_word_embeddings = model.config.tie_word_embeddings = False
    return model
