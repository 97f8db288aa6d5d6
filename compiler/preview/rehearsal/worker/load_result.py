"""Load the result of a run in plain transformers, compare it with the initial weights, and generate. Reads one JSON
object:

    {"final": folder, "base": folder, "adapter": bool, "merged": folder or null, "scores": bool}

`final` is the folder of the result, `base` the folder of the initial model, and `merged` the folder of the model with
merged adapter. `adapter` is true if an adapter was trained, and `scores` if the model is a reward model.

Writes one JSON object with four keys: `loaded` is the class of the model, `changed` whether any weight differs from its
initial value, `finite` whether all logits are finite numbers, `text` what the model generates after `Hello`.
"""

import json
import sys
from typing import Any

ZERO = ("lora_B", "oft_", "vera_lambda_b", "hada_w2_b", "miss_block")
"""Parts of the names of adapter weights that are 0 before training, in peft 0.21, 0.18 and 0.17."""


def loaded(question: dict[str, Any]) -> tuple[Any, Any]:
    """Load the trained model and its tokenizer. ``question`` is the JSON object of the module's docstring."""
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

    maker = AutoModelForSequenceClassification if question["scores"] else AutoModelForCausalLM
    options = {"num_labels": 1} if question["scores"] else {}
    folder = question["merged"] or question["final"]
    tokenizer = AutoTokenizer.from_pretrained(question["final"])
    if question["adapter"] and not question["merged"]:
        from peft import PeftModel

        model = maker.from_pretrained(question["base"], **options)
        if len(tokenizer) > model.get_input_embeddings().weight.shape[0]:
            model.resize_token_embeddings(len(tokenizer))
        return PeftModel.from_pretrained(model, folder), tokenizer
    return maker.from_pretrained(folder, **options), tokenizer


def changed(question: dict[str, Any], model: Any) -> bool:
    """Whether training has changed any weight. For a new adapter, this is the case if a weight that is 0 at the start
    is not 0 now.
    """
    import torch

    state = model.state_dict()
    if question["adapter"] and not question["merged"]:
        return any(bool(value.any()) for name, value in state.items() if any(one in name for one in ZERO))
    from transformers import AutoModelForCausalLM

    before = AutoModelForCausalLM.from_pretrained(question["base"]).state_dict()
    return any(
        name in before and before[name].shape == value.shape and not torch.equal(before[name].float(), value.float())
        for name, value in state.items()
    )


def main() -> int:
    """Read the JSON object from standard input, and write the answer."""
    question = json.load(sys.stdin)
    import torch

    model, tokenizer = loaded(question)
    model.eval()
    ids = tokenizer("Hello", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        finite = bool(torch.isfinite(model(ids).logits).all())
        text = ""
        if not question["scores"]:
            written = model.generate(ids, max_new_tokens=8, do_sample=False, pad_token_id=tokenizer.pad_token_id)
            text = tokenizer.decode(written[0][ids.shape[1] :])
    answer = {"loaded": type(model).__name__, "changed": changed(question, model), "finite": finite, "text": text}
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
