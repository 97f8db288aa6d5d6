"""Cases of runs that begin where another one ended (XP930 to XP935)."""

from __future__ import annotations

import json

from case_support import Case, spec, trained
from compile_support import CONFIG

LORA = {
    "peft_type": "LORA", "base_model_name_or_path": "Qwen/Qwen2.5-3B", "r": 4, "lora_alpha": 8, "lora_dropout": 0.0,
    "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM",
}  # fmt: skip
PAIRS = trained("qwen2.5-3b on ultrafeedback-binarized")
QLORA_RUN = json.dumps({"bundle": "sha256:0", "settings": {"lora.bits": 4}}) + "\n"


def adapter(**changes: object) -> dict[str, str]:
    """The files of a saved adapter; its weights are never read here."""
    return {"first/adapter_config.json": json.dumps({**LORA, **changes}), "first/adapter_model.safetensors": ""}


CHECKPOINT = {"run/config.json": json.dumps(CONFIG), "run/trainer_state.json": "{}", "run/zero_to_fp32.py": ""}
WHOLE = {"whole/config.json": json.dumps(CONFIG), "whole/trainer_state.json": "{}", "whole/model.safetensors": ""}
CONTINUED = spec('lora(from="first")')
CASES: tuple[Case, ...] = (
    Case("XP930", spec('lora(from="second")'), CONTINUED, adapter()),
    Case("XP930", spec('lora(from="first")'), spec('lora'), adapter(rank_pattern={"q_proj": 8}), variant="option"),
    Case("XP930", spec('lora(from="first")'), spec('lora'), adapter(target_modules=".*_proj"), variant="pattern"),
    Case("XP930", spec('lora(from="first")'), spec('lora'), adapter(init_lora_weights="pissa_niter_4"), variant="base"),
    Case("XP930", spec('lora(from="whole")'), spec('lora'), WHOLE, variant="model"),
    Case("XP931", spec('lora(from="first", rank=8)'), spec('lora(from="first", rank=4)'), adapter()),
    Case("XP931", spec('lora(from="first", targets=[q_proj])'), CONTINUED, adapter(), variant="targets"),
    Case("XP931", spec('oft(from="first")'), CONTINUED, adapter(), variant="kind"),
    Case("XP931", spec('lora(from="first")', 'method reward', train=PAIRS),
         spec('lora(from="first")', 'method orpo', train=PAIRS), adapter(), variant="task"),
    Case("XP932", spec('lora(from="first")', train=trained("qwen2.5-1.5b on infinity-instruct")), CONTINUED, adapter()),
    Case("XP932", spec('lora(from="first")', train=trained("qwen2.5-3b@v2 on infinity-instruct")),
         spec('lora(from="first")', train=trained("qwen2.5-3b@v1 on infinity-instruct")), adapter(revision="v1"),
         variant="revision"),
    Case("XP933", CONTINUED, spec('qlora(from="first")'), {**adapter(), "first/xpc_run.json": QLORA_RUN}),
    Case("XP934", spec('lora(from="first")', "method dpo", train=PAIRS),
         spec('lora(from="first")', "method orpo", train=PAIRS), adapter()),
    Case("XP935", spec(train=trained('"run" on infinity-instruct'), batch="gbs=128 micro=16 seq=512"),
         spec(train=trained('"whole" on infinity-instruct'), batch="gbs=128 micro=16 seq=512"),
         {**CHECKPOINT, **WHOLE}),
)  # fmt: skip
