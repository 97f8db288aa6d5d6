"""The final folder of a run loads with plain transformers and peft of each stack. The loaded weights are the weights of
the last checkpoint.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from interpreters import OTHERS, methods_of
from method_runs import DATA, SETTINGS, STEPS, Warm, small
from tiers import nightly_but
from tiny import CHAT_TEMPLATE
from tiny_runs import LAYOUT

from xpc.compiler.language.methods import METHODS
from xpc.compiler.stacks import DEFAULT, STACKS

pytestmark = pytest.mark.slow

PROGRAM = """\
import json, sys
import torch
import transformers
from safetensors.torch import load_file
out, checkpoint, adapter, head = sys.argv[1:]
Model, more = getattr(transformers, head), {"num_labels": 1} if "Sequence" in head else {}
if adapter:
    from peft import PeftModel, get_peft_model_state_dict
    base = json.load(open(f"{out}/adapter_config.json"))["base_model_name_or_path"]
    loaded, drawn = PeftModel.from_pretrained(Model.from_pretrained(base, **more), out), []
    values, saved = get_peft_model_state_dict(loaded), load_file(f"{checkpoint}/adapter_model.safetensors")
else:
    loaded, said = Model.from_pretrained(out, output_loading_info=True)
    values, saved = loaded.state_dict(), load_file(f"{checkpoint}/model.safetensors")
    drawn = [*said["missing_keys"], *said["unexpected_keys"]]
ids = transformers.AutoTokenizer.from_pretrained(out)("What colour?", return_tensors="pt")["input_ids"]
logits = loaded.eval()(input_ids=ids).logits
different = [name for name in saved if not torch.equal(values[name].cpu(), saved[name])]
print(json.dumps({"tensors": len(saved), "different": different, "drawn": drawn,
    "finite": bool(torch.isfinite(logits).all()), "head": sorted(name for name in saved if "score" in name),
    "numbers": logits.shape[-1]}))
"""
USED = """\
import json, sys
text = open(f"{sys.argv[1]}/README.md").read().partition("## Use")[2]
lines = text.partition("```python\\n")[2].partition("```")[0].replace("print(", "answer = (")
exec(lines.replace('"out"', json.dumps(sys.argv[1])))
print(json.dumps({"answer": type(answer).__name__, "template": ask.tokenizer.chat_template}))
"""
LOADED = [
    (target, method, adapter)
    for target in STACKS
    for method in METHODS
    for adapter in ("", "lora")
    if target == DEFAULT or method in methods_of(target)
]
DAILY = [(DEFAULT, "reward", "lora"), (DEFAULT, "sft", ""), (DEFAULT, "sft", "lora"), (OTHERS[0], "sft", "lora")]
"""The runs whose saved models `make test` loads. test_train_methods.py loads adapters of sft on every stack."""


@pytest.mark.parametrize(("target", "method", "adapter"), nightly_but(LOADED, DAILY.__contains__))
def test_the_final_folder_loads_with_the_trained_weights(
    warm: Warm, tmp_path: Path, target: str, method: str, adapter: str
) -> None:
    save, scores = f'save "out" every={STEPS}', METHODS[method].scores
    written = f"method {method}{SETTINGS.get(method, '')}"
    own = 'model(chat_template=file("layout.jinja"))' if (method, adapter) == ("sft", "lora") else ""
    text = small(written, adapter, own, method=method, target=target, data=DATA[method], save=save)
    run = warm.train(text, f"loaded-{target}-{method}-{adapter}", target, str(tmp_path))
    checkpoint = os.path.join(run.out, f"checkpoint-{STEPS}")
    head = "AutoModelForSequenceClassification" if scores else "AutoModelForCausalLM"
    (found,) = warm.program(target, PROGRAM, run.out, checkpoint, adapter, head)
    assert found["tensors"] > 0, json.dumps(found)
    assert (found["different"], found["drawn"], found["finite"]) == ([], [], True)
    assert (bool(found["head"]), found["numbers"] == 1) == (scores, scores)
    (used,) = warm.program(target, USED, run.out)
    assert used["answer"] == ("float" if scores else "str")
    assert used["template"] == (LAYOUT if own else CHAT_TEMPLATE)


@pytest.mark.parametrize("target", [DEFAULT])
def test_the_lines_of_the_card_load_adapters_of_vera(warm: Warm, tmp_path: Path, target: str) -> None:
    text = small("method sft", "vera(rank=8)", method="sft", target=target, save='save "out" every=never')
    run = warm.train(text, f"loaded-{target}-vera", target, str(tmp_path))
    assert warm.program(target, USED, run.out) == [{"answer": "str", "template": CHAT_TEMPLATE}]
