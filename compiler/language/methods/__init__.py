"""The training methods, one file each. Every difference between methods is a field of their record.

To add a method: its file here and its name in METHODS, the name of its trainer in each stack's policy, and a runtime
feature if the trainer needs one.
"""

from __future__ import annotations

from xpc.compiler.language.methods.cpo import CPO
from xpc.compiler.language.methods.definition import Method as Method
from xpc.compiler.language.methods.distill import DISTILL
from xpc.compiler.language.methods.dpo import DPO
from xpc.compiler.language.methods.grpo import GRPO
from xpc.compiler.language.methods.kto import KTO
from xpc.compiler.language.methods.orpo import ORPO
from xpc.compiler.language.methods.reward import REWARD
from xpc.compiler.language.methods.rloo import RLOO
from xpc.compiler.language.methods.sft import SFT

METHODS = {one.name: one for one in (SFT, DPO, ORPO, KTO, REWARD, GRPO, RLOO, DISTILL, CPO)}
DEFAULT = "sft"


def readers(path: str) -> tuple[str, ...]:
    """The methods that read a setting."""
    return tuple(name for name, one in METHODS.items() if path in one.reads)
