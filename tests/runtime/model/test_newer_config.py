"""transformers 4 ignores some RoPE settings in a config.json that transformers 5 has written. The runtime and the rule
XP568 detect such a file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from forks import printed
from tiers import nightly_but

from xpc.compiler import stacks
from xpc.compiler.rules.numerics.newer_files import USUAL
from xpc.runtime.features.model.newer_config import ignored

OLDER = [one for one in stacks.names() if not stacks.load(one).facts.reads_newer_files]  # type: ignore[union-attr]
MILLION = {"rope_theta": 1e6, "rope_type": "default"}
PROGRAM = """\
import sys
from transformers import AutoConfig, AutoTokenizer
print("IGNORED", AutoConfig.from_pretrained(sys.argv[1]).rope_theta)
try:
    AutoTokenizer.from_pretrained(sys.argv[1])
except ValueError as error:
    print("REFUSED", error)
"""


LAYERS = {"full_attention": {**MILLION, "rope_type": "linear", "factor": 8.0}, "sliding_attention": {"rope_theta": 1e4}}
YARN = {"rope_theta": 1e4, "rope_type": "yarn", "factor": 4.0}


@pytest.mark.parametrize(("config", "missing"), [
    ({"rope_parameters": MILLION, "rope_theta": 1e4}, {"rope_theta": 1e6}),
    ({"rope_parameters": MILLION, "rope_theta": 1e6}, {}),
    ({"rope_theta": 1e4}, {}),
    ({"rope_parameters": YARN, "rope_theta": 1e4, "rope_scaling": None},
     {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}),
    ({"rope_parameters": YARN, "rope_theta": 1e4, "rope_scaling": {"type": "yarn", "factor": 4}}, {}),
    ({"rope_parameters": YARN, "rope_theta": 1e4, "rope_scaling": {"type": "yarn", "factor": 8}},
     {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}),
    ({"rope_parameters": {"rope_theta": 1e4}, "rope_theta": 1e4, "rope_scaling": {"rope_type": "yarn", "factor": 8}},
     {"rope_scaling": None}),
    ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.4}, "partial_rotary_factor": 0.5},
     {"partial_rotary_factor": 0.4}),
    ({"rope_parameters": {"partial_rotary_factor": 0.4}, "rotary_pct": 0.25, "partial_rotary_factor": 0.25},
     {"rotary_pct": 0.4}),
    ({"rope_parameters": LAYERS, "rope_theta": 1e6, "rope_local_base_freq": 1e4},
     {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    ({"rope_parameters": LAYERS, "rope_theta": 1e6, "rope_local_base_freq": 5e4,
      "rope_scaling": {"rope_type": "linear"}}, {"rope_local_base_freq": 1e4}),
])  # fmt: skip
def test_what_is_ignored(config: dict[str, Any], missing: dict[str, Any]) -> None:
    assert ignored(config) == missing


SAVE = """\
import json, sys
from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
for kind in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
    try:
        config = CONFIG_MAPPING[kind]()
    except Exception:
        continue
    saved = json.loads(config.to_json_string())
    print(json.dumps({name: saved[name] for name in ("model_type", "rope_parameters") if name in saved}))
"""
LOAD = """\
import json, sys
from transformers import CONFIG_MAPPING
for line in sys.stdin:
    saved = json.loads(line)
    if saved["model_type"] in CONFIG_MAPPING and saved.get("rope_parameters"):
        try:
            config = CONFIG_MAPPING[saved["model_type"]].from_dict(saved).get_text_config()
        except Exception:
            continue
        names = ("rope_theta", "rope_local_base_freq", "rope_scaling", "partial_rotary_factor", "rotary_pct")
        if getattr(config, "rope_theta", None) is not None:
            made = {name: getattr(config, name) for name in names if getattr(config, name, None) is not None}
            print(json.dumps([saved, made]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", nightly_but(OLDER, lambda name: name == OLDER[0]))
def test_the_rule_knows_the_positions_of_every_class(name: str, tmp_path: Path) -> None:
    """For every model family, transformers 5 saves a config.json, and an older transformers loads it. XP568 reads the
    family's defaults from the stack's table, while the run has the defaults of the loaded class. `ignored` must find
    the same settings with both.
    """
    saved = printed(stacks.DEFAULT, tmp_path, SAVE)
    loaded = printed(name, tmp_path, LOAD, given=saved)
    compared, stack = 0, stacks.load(name)
    assert stack is not None
    for line in loaded.splitlines():
        if not line.startswith("["):
            continue
        config, made = json.loads(line)
        defaults = {**USUAL, **stack.positions(config["model_type"])}
        assert {key: made[key] for key in defaults if key in made} == {
            key: defaults[key] for key in defaults if key in made
        }
        assert ignored({**defaults, **config}) == ignored({**USUAL, **made, **config}), config["model_type"]
        compared += 1
    assert compared > 30


@pytest.mark.slow
@pytest.mark.parametrize("name", nightly_but(OLDER, lambda name: name == OLDER[0]))
def test_an_older_transformers_does_not_read_these_files(name: str, tmp_path: Path) -> None:
    config = {"model_type": "qwen2", "rope_parameters": MILLION}
    for file, text in (("config.json", config), ("tokenizer_config.json", {"tokenizer_class": "TokenizersBackend"})):
        (tmp_path / file).write_text(json.dumps(text), encoding="utf-8")
    output = printed(name, tmp_path, PROGRAM, str(tmp_path))
    assert "IGNORED 10000.0" in output
    assert "REFUSED Tokenizer class TokenizersBackend does not exist" in output
