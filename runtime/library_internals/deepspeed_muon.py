"""DeepSpeed's Muon. It orthogonalizes the complete gradient of a matrix, even if ZeRO has sharded the matrix."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any


def sharded(plan: Mapping[str, Any], matrices: Sequence[Any], others: Sequence[tuple[float, Sequence[Any]]]) -> Any:
    """DeepSpeed's MuonWithAuxAdam: Muon for ``matrices``, AdamW for ``others`` (pairs of a weight decay and weights).

    DeepSpeed recognizes Muon's matrices by the attribute ``use_muon``. ``ns_method`` is "standard" (as in torch's
    Muon), because DeepSpeed's default, "gram", computes in float16.
    """
    import torch

    # torch imports setuptools to compile Muon's kernels; it warns because DeepSpeed has already imported distutils.
    warnings.filterwarnings("ignore", module="_distutils_hack")
    from deepspeed.runtime.zero.muon.muon_optimizer import MuonWithAuxAdam

    first, rest = plan["matrices"], plan["others"]
    for weight in matrices:
        weight.use_muon = True
    keys = {name: first[name] for name in ("lr", "weight_decay", "momentum")}
    groups: list[dict[str, Any]] = [{"params": [*matrices], "use_muon": True, "ns_method": "standard", **keys}]
    for decay, weights in others:
        keys = {"lr": rest["lr"], "betas": tuple(rest["betas"]), "eps": rest["eps"], "weight_decay": decay}
        groups.append({"params": [*weights], "use_muon": False, **keys})
    return MuonWithAuxAdam(groups, adam_optimizer=torch.optim.AdamW, adam_optimizer_kwargs={"fused": rest["fused"]})
