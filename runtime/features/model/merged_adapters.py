"""Merge the adapters of a run into their base, to get a model that plain transformers and inference servers
can load.
"""

import os
import shutil
from typing import Any

from ...core.checkpoint_integrity import set_default_mode
from ...core.feature import Bundle, Feature

FOLDER = "merged"
"""Folder in the output folder, next to the adapters."""


class MergedAdapters(Feature):
    """The feature of a run that saves a merged model next to the adapters."""

    def final_saved(self, bundle: Bundle, trainer: Any, tokenizer: Any) -> None:
        """Merge on process 0, and save the model with its tokenizer and card. This modifies the trained model.

        Weights that are not finite after the merge raise ValueError (peft's ``safe_merge``). A folder that an
        interrupted start has left is replaced.
        """
        if not trainer.is_world_process_zero():
            return
        place = os.path.join(trainer.args.output_dir, FOLDER)
        shutil.rmtree(place, ignore_errors=True)
        model = trainer.accelerator.unwrap_model(trainer.model).merge_and_unload(safe_merge=True)
        model.config.use_cache = True
        model.save_pretrained(place)
        tokenizer.save_pretrained(place)
        shutil.copyfile(bundle.inside("model_card_merged.md"), os.path.join(place, "README.md"))
        set_default_mode(place, os.listdir(place))
