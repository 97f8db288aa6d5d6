"""Check the run's optional packages and the key of its tracker, without importing the packages."""

import os
from collections.abc import Mapping, MutableMapping
from importlib.util import find_spec

from ...core.feature import Bundle, Feature

TRACKERS: Mapping[str, tuple[str, ...]] = {
    "clearml": ("clearml",), "codecarbon": ("codecarbon",), "comet_ml": ("comet_ml",), "dagshub": ("dagshub",),
    "dvclive": ("dvclive",), "mlflow": ("mlflow",), "neptune": ("neptune",), "swanlab": ("swanlab",),
    "tensorboard": ("tensorboard", "tensorboardX"), "trackio": ("trackio",), "wandb": ("wandb",),
}  # fmt: skip
"""Maps each value of ``report_to`` to modules, one of which is needed (transformers, integration_utils.py)."""
FLASH: Mapping[str, tuple[str, ...]] = {
    "flash_attention_2": ("flash_attn", "kernels"),
    "flash_attention_3": ("flash_attn_interface", "flash_attn_3", "kernels"),
}
"""Maps kinds of attention to modules; one of them must be installed. The module ``kernels`` downloads a kernel from the
hub."""
EIGHT_BIT = ("8bit", "bnb", "paged", "lion", "ademamix")
"""The name of an optimizer from bitsandbytes contains one of these texts (transformers, trainer_optimizer.py)."""
MATH = ("accuracy", "cosine", "len", "length")
"""Reward functions that need the package math_verify."""
FLASH_FILE = "--no-build-isolation -r requirements-flash.txt"
"""pip's arguments for flash-attn. Its build imports torch."""


class Packages(Feature):
    """Hooks that check packages and keys that only this run uses."""

    def missing_packages(self, bundle: Bundle) -> list[str]:
        """Findings about missing packages that this bundle uses. `versions` checks the packages that are pinned."""
        needed: list[tuple[str, tuple[str, ...], str]] = []
        arguments, lora = bundle.arguments, bundle.lora
        if lora is not None:
            needed.append(("peft", ("peft",), "adapters need it"))
            if lora["bits"] is not None:
                needed.append(("bitsandbytes", ("bitsandbytes",), f"a base of {lora['bits']} bits needs it"))
        optimizer = str(arguments.get("optim", ""))
        # `adamw_torch_8bit` and similar optimizers are torchao's, not bitsandbytes'
        if any(part in optimizer for part in EIGHT_BIT) and not optimizer.startswith("adamw_torch"):
            needed.append(("bitsandbytes", ("bitsandbytes",), f"the optimizer {optimizer} needs it"))
        attention = str(bundle.model["attn_implementation"])
        if attention in FLASH:
            package = "flash-attn-3" if attention.endswith("3") else "flash-attn"
            needed.append((package, FLASH[attention], f"the attention {attention} needs it"))
        needed += [(one, TRACKERS[one], "the run reports to it") for one in _reported_to(bundle) if one in TRACKERS]
        if arguments.get("use_vllm"):
            needed.append(("vllm", ("vllm",), "it generates the completions of this run"))
        rewards = [one["name"] for one in bundle.plan["method"]["rewards"] if one["file"] is None]
        checked = [name for name in rewards if name in MATH]
        if checked:
            needed.append(("math-verify", ("math_verify",), f"the reward {checked[0]!r} needs it"))
        missing: dict[str, str] = {}
        if bundle.on_cpu and not bundle.stack["quantized_on_cpu"] and lora is not None and lora["bits"] is not None:
            missing["GPU"] = "a quantized base needs a GPU: this version of transformers cannot load it on a CPU"
        for package, modules, reason in needed:
            if package not in bundle.pins and not any(find_spec(module) for module in modules):
                listed = FLASH_FILE if package == "flash-attn" else package
                missing.setdefault(package, f"{package} is not installed, and {reason} (pip install {listed})")
        return list(missing.values())

    def before_imports(self, bundle: Bundle, environ: MutableMapping[str, str]) -> None:
        """Set wandb's project in the environment, because wandb does not read the argument `project` (trackio does)."""
        if bundle.run.get("project"):
            environ.setdefault("WANDB_PROJECT", str(bundle.run["project"]))

    def check_access(self, bundle: Bundle) -> list[str]:
        """Check now that wandb has a key. wandb itself looks for a key only after the model is loaded, and then raises
        UsageError.
        """
        has_key = any(os.environ.get(name) for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"))
        if "wandb" not in _reported_to(bundle) or has_key or not find_spec("wandb"):
            return []
        if os.environ.get("WANDB_MODE", "online") != "online":
            return []
        import wandb

        if wandb.setup().settings.mode != "online" or wandb.login(prompt=False, verify=False):
            return []
        return [
            "this run reports to wandb, and no key was found; set WANDB_API_KEY, log in with `wandb login`, "
            "or set WANDB_MODE=offline"
        ]


def _reported_to(bundle: Bundle) -> list[str]:
    trackers = bundle.arguments.get("report_to") or []
    return [trackers] if isinstance(trackers, str) else list(trackers)
