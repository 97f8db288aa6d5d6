"""Build the distillation trainer of a bundle, and print its losses. The program runs in a stack's interpreter, in the
folder with the models `tiny` and `teacher`.

For each divergence and temperature, it prints the loss of a step of two micro-batches with fixed completions, the norm
of the gradient, and the logits of both models. From these logits, the test computes the loss a second time. The
argument is the folder of the compiled bundle.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

folder = sys.argv[1]
sys.path.insert(0, folder)
os.environ["XPC_PREFLIGHT"] = "passed"

import torch  # noqa: E402
from trainer.core import arguments, bundle, run  # noqa: E402
from trainer.enabled import FEATURES  # noqa: E402

seen = bundle.read(folder, FEATURES)
args = arguments.build_arguments(seen)
made, tokenizer = run._trainer(seen, args)
made.create_optimizer_and_scheduler(num_training_steps=2)
student, teacher = made.model.train(), made.teacher_model
# larger weights: with small random weights, all tokens are nearly equally likely, and rounding would dominate
for model in (student, teacher):
    model.get_submodule("model.norm").weight.data *= 10
torch.manual_seed(3)
BATCHES = []
for prompt, answer in ((7, 5), (4, 9)):  # micro-batches of different lengths, with padded prompts and answers
    ids, ends = torch.randint(3, 300, (2, prompt + answer)), (answer, answer - 3)
    requested = torch.ones(2, prompt, dtype=torch.long)
    requested[1, :2] = 0
    reported = torch.stack([(torch.arange(answer) < end).long() for end in ends])
    BATCHES.append((ids[:, :prompt], requested, ids[:, prompt:], reported))
TOKENS = sum(one[3].sum() for one in BATCHES)


def inputs(prompt: Any, requested: Any, answer: Any, reported: Any) -> dict[str, Any]:
    if hasattr(made, "ends"):  # trl's GKDTrainer with the runtime's additions
        from trainer.features.method.on_policy import joined

        return joined(prompt, requested, answer, reported)
    parts = {"prompt_ids": prompt, "prompt_mask": requested, "completion_ids": answer, "completion_mask": reported}
    return {**parts, "num_items_in_batch": TOKENS}


def logits(model: Any, prompt: Any, requested: Any, answer: Any, reported: Any) -> Any:
    with torch.no_grad():
        whole = model(
            input_ids=torch.cat((prompt, answer), 1), attention_mask=torch.cat((requested, reported), 1)
        ).logits
    return whole[:, prompt.shape[1] - 1 : -1][reported.bool()].double().tolist()


print(json.dumps({"tokens": int(TOKENS), "student": [logits(student, *one) for one in BATCHES],
                  "teacher": [logits(teacher, *one) for one in BATCHES]}))  # fmt: skip
for beta in (0.0, 0.3, 0.5, 1.0):
    for temperature in (1.0, 2.0):
        made.beta = made.args.beta = beta
        made.temperature = made.args.temperature = temperature
        student.zero_grad()
        losses = [made.compute_loss(student, inputs(*one), num_items_in_batch=TOKENS) for one in BATCHES]
        sum(losses).backward()
        norm = torch.stack([weight.grad.double().norm() for weight in student.parameters()]).norm()
        print(json.dumps({"beta": beta, "temperature": temperature, "losses": [float(one) for one in losses],
                          "norm": float(norm)}))  # fmt: skip
