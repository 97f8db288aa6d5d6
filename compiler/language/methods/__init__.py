"""The training methods, each defined in its own file. Everything in which methods differ is a field of the class
`Method`.

To add a method, add a file here, an entry in METHODS, and the method's configuration class in the policy.toml of each
stack. If the runtime cannot train the method yet, add a feature to the runtime.
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
    """The names of the methods that read a setting: `readers("batch.packing")` is `("sft",)`."""
    return tuple(name for name, one in METHODS.items() if path in one.reads)
