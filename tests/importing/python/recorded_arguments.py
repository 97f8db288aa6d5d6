"""Run training scripts with trainers that only record their arguments. For each script, print the recorded arguments as
a line of JSON.

python tests/importing/python/recorded_arguments.py SCRIPT...

Run this program with a stack's interpreter. The functions that load models and data are replaced, so that nothing is
loaded.
"""

from __future__ import annotations

import json
import runpy
import sys
from contextlib import suppress
from typing import Any


class Stop(Exception):
    """Raised when the script would start training."""


class Recorder:
    """A trainer that records its arguments and does not train."""

    def train(self) -> None:
        """Stop the script."""
        raise Stop


def main() -> None:
    """Run the scripts, and print the fields of the configurations that they pass to their trainers."""
    import datasets
    import transformers
    import trl

    found: dict[str, Any] = {}

    def record(*arguments: Any, **keywords: Any) -> Recorder:
        for value in [*arguments, *keywords.values()]:
            name = type(value).__name__
            if name.endswith(("Config", "Arguments")):
                found[name] = {key: one for key, one in vars(value).items() if not key.startswith("_")}
        return Recorder()

    for name in ("SFTTrainer", "DPOTrainer", "KTOTrainer"):
        setattr(trl, name, record)
    datasets.load_dataset = lambda *_, **__: [{"text": "a"}]
    for name in ("AutoModelForCausalLM", "AutoTokenizer"):
        getattr(transformers, name).from_pretrained = staticmethod(lambda *_, **__: object())
    for path in sys.argv[1:]:
        found.clear()
        with suppress(Stop):
            runpy.run_path(path, run_name="__main__")
        print(json.dumps(found, default=lambda one: getattr(one, "value", str(one))))


if __name__ == "__main__":
    main()
