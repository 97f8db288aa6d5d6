"""A plain TRL script that trains with the arguments of a bundle, to be compared with the bundle's run: `python
plain_trl.py trainer_args.json`.

It trains `model` on `rows.jsonl` in the working directory, and writes the losses to `out/metrics.jsonl`. Benchmarks
compare a bundle's speed with the speed of this script.
"""

import json
import sys
import time

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import SFTConfig, SFTTrainer


class Log(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            tokens = state.num_input_tokens_seen or logs.get("num_tokens", 0)
            event = {"step": state.global_step, "loss": logs["loss"], "tokens": tokens, "seconds": time.perf_counter()}
            with open("out/metrics.jsonl", "a", encoding="utf-8") as out:
                out.write(json.dumps(event) + "\n")


with open(sys.argv[1], encoding="utf-8") as handle:
    plan = json.load(handle)
torch.manual_seed(plan["arguments"]["seed"])
trainer = SFTTrainer(
    model=AutoModelForCausalLM.from_pretrained(
        "model", dtype=torch.float32, attn_implementation=plan["model"]["attn_implementation"]
    ),
    args=SFTConfig(**plan["arguments"]),
    train_dataset=load_dataset("json", data_files="rows.jsonl", split="train"),
    processing_class=AutoTokenizer.from_pretrained("model"),
    callbacks=[Log()],
)
trainer.train()
trainer.save_model()
