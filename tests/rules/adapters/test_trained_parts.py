"""Names of modules that a model may not have."""

from __future__ import annotations

from case_support import spec
from compile_support import checked

from xpc.compiler.rules.adapters.trained_parts import absent


def test_no_name_is_absent_where_the_modules_are_not_known() -> None:
    found = {}
    for model in ("qwen3-30b-a3b", "qwen2.5-0.5b"):
        one = checked(spec("lora", train=f"{model} on infinity-instruct for 1 epochs")).spec
        assert one is not None
        found[model] = absent(one, ("q_proj", "no_such_module"))
    assert found == {"qwen3-30b-a3b": [], "qwen2.5-0.5b": ["no_such_module"]}
