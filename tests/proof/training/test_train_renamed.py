"""transformers saves some models with other weight names than they have in memory. A run that resumes from a checkpoint
of such a model restores every weight.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from method_runs import Warm, small, tensors

from xpc.compiler.stacks import DEFAULT, load

pytestmark = pytest.mark.slow

MADE = """
import json, sys
sys.path.insert(0, sys.argv[1])
import tiny_models
print(json.dumps({"folder": tiny_models.model(sys.argv[2])}))
"""


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe"])
def test_a_run_that_trains_all_weights_resumes_to_the_same_end(
    warm: Warm, ground: str, tmp_path: Path, family: str
) -> None:
    model = os.path.join(ground, family)
    (made,) = warm.program(DEFAULT, MADE, str(Path(__file__).parents[1]), family)
    shutil.copytree(made["folder"], model)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy2(os.path.join(ground, "tiny", name), model)
    text = small(method="sft", save='save "out" every=2').replace('"tiny"', f'"{family}"')
    first, resumed = warm.twice(text, f"renamed-{family}", DEFAULT, str(tmp_path))
    assert resumed.summary["resumed_from"] == "checkpoint-2"
    assert resumed.values("loss") == first.values("loss")
    weights = [tensors(os.path.join(one.out, "model.safetensors")) for one in (first, resumed)]
    assert weights[0] == weights[1]
    assert any(".experts.0." in name for name in weights[0])


LOADED = """
import json, sys, tempfile
from types import SimpleNamespace
sys.path[:0] = sys.argv[1:3]
import tiny_models, torch
from transformers import AutoModelForCausalLM
from runtime.library_internals.renamed_weights import RenamedWeightsTrainer
for family in sys.argv[3:]:
    model = AutoModelForCausalLM.from_pretrained(tiny_models.model(family))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(1)
        trainer = RenamedWeightsTrainer()
        trainer.model, trainer.state = model, SimpleNamespace(best_model_checkpoint=folder)
        trainer._load_best_model()
    now = model.state_dict()
    print(json.dumps([now.keys() == before.keys() and all(torch.equal(now[one], before[one]) for one in now)]))
"""


def test_the_best_checkpoint_brings_back_every_weight(warm: Warm) -> None:
    families = [one for one in load(DEFAULT).facts.renames_saved if one != "qwen2_5_vl"]
    proof = Path(__file__).parents[1]
    program = warm.of(DEFAULT)
    path = os.path.join(warm.location, "loaded.py")
    Path(path).write_text(LOADED, encoding="utf-8")
    done = program.run(path, warm.location, str(proof), str(proof.parents[1]), *families, program=path)
    assert done["status"] == [0], done["err"][-3000:]
    assert [line for line in done["out"].splitlines() if line.startswith("[")] == ["[true]"] * len(families)
