"""Train one step, and print the log-probabilities that the trainer's reference model gives fixed texts, as JSON.

`python reference_values.py bundle BUNDLE` trains a bundle. `python reference_values.py trl METHOD MODEL ADAPTER ROWS`
trains with TRL's own trainer, which gets the model and its adapter as a PeftModel.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

TEXTS = [[(7 * row + 13 * at) % 400 + 20 for at in range(12)] for row in range(3)]
"""The token ids of the texts."""


def watch(model: Any) -> None:
    """Whenever the trainer calls the model as its reference, print the log-probabilities of `TEXTS`. The trainer
    selects the reference by an adapter, or by disabling all adapters.
    """
    import torch
    from peft.tuners.tuners_utils import BaseTunerLayer

    base, texts = model.get_base_model(), torch.tensor(TEXTS)
    layer = next(one for one in model.modules() if isinstance(one, BaseTunerLayer))
    busy: list[bool] = []

    def logps() -> list[list[float]]:
        logits = base.lm_head(base.model(input_ids=texts).last_hidden_state)
        found = logits.log_softmax(-1)[:, :-1].gather(2, texts[:, 1:, None])
        return [[round(one, 6) for one in row] for row in found.squeeze(2).tolist()]

    def called(*_: Any) -> None:
        adapters = [] if layer.disable_adapters else [*layer.active_adapters]
        if busy or torch.is_grad_enabled() or adapters == ["default"]:
            return
        busy.append(True)
        found = {"reference": logps()}
        with model.disable_adapter():
            found["base"] = logps()
        print(json.dumps(found), flush=True)

    base.model.register_forward_pre_hook(called)


def of_bundle(folder: str) -> int:
    """Run a bundle."""
    sys.path.insert(0, folder)
    from trainer.core import run
    from trainer.core.fault_tolerance import FaultTolerant

    def prepared(self: Any, inputs: Any) -> Any:
        if not hasattr(self, "watched"):
            self.watched = True
            watch(self.model)
        return super(FaultTolerant, self)._prepare_inputs(inputs)

    FaultTolerant._prepare_inputs = prepared
    os.environ["XPC_PREFLIGHT"] = "passed"
    return int(run.main(folder, []))


def of_trl(method: str, model: str, adapter: str, rows: str) -> int:
    """Train with TRL's own trainer."""
    import datasets
    import trl
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    name, online = method.upper(), method in ("grpo", "rloo")
    more = {"num_generations": 4, "max_completion_length": 12} if online else {"max_length": 64}
    args = getattr(trl, f"{name}Config")(
        output_dir="own", use_cpu=True, report_to=[], max_steps=1, per_device_train_batch_size=4, bf16=False,
        gradient_checkpointing=False, beta=0.04, **more,
    )  # fmt: skip
    trained = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model), adapter, is_trainable=True)
    given = {"reward_funcs": lambda completions, **_: [float(len(one)) for one in completions]} if online else {}
    trainer = getattr(trl, f"{name}Trainer")(
        model=trained, args=args, train_dataset=datasets.load_dataset("json", data_files=rows, split="train"),
        processing_class=AutoTokenizer.from_pretrained(model), **given,
    )  # fmt: skip
    watch(trainer.model)
    trainer.train()
    return 0


if __name__ == "__main__":
    sys.exit({"bundle": of_bundle, "trl": of_trl}[sys.argv[1]](*sys.argv[2:]))
