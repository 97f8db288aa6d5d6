"""Run the program of a bundle, and record the rows on which each process trains in each step: rows-RANK.jsonl."""

from __future__ import annotations

import json
import os
import runpy
import sys
from hashlib import sha256
from typing import Any

from transformers import Trainer

PATH = f"rows-{os.environ.get('RANK', '0')}.jsonl"


def note_rows() -> None:
    train = Trainer.training_step

    def noted(self: Any, model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
        key = next(name for name in inputs if name.endswith("input_ids"))
        mask = inputs[key.replace("input_ids", "attention_mask")].bool()
        rows = [bytes(str(row[kept].tolist()), "ascii") for row, kept in zip(inputs[key], mask, strict=True)]
        with open(PATH, "a", encoding="utf-8") as handle:
            digests = [sha256(row).hexdigest()[:12] for row in rows]
            handle.write(json.dumps({"step": self.state.global_step + 1, "rows": digests}) + "\n")
        return train(self, model, inputs, *rest, **named)

    Trainer.training_step = noted


if __name__ == "__main__":
    note_rows()
    del sys.argv[0]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
