"""Corrections to DeepSpeed's ZeRO (0.16 to 0.19)."""

from collections.abc import Callable
from typing import Any

from ..core.feature import Bundle, Feature, Model


class DeepSpeedEngine(Feature):
    """Hooks that correct DeepSpeed's engine on CPUs and under ZeRO-3."""

    def before_arguments(self, bundle: Bundle, values: dict[str, object]) -> None:
        """Apply the corrections for CPU runs and ZeRO-3 before DeepSpeed starts."""
        if bundle.on_cpu:
            no_shared_memory_op()
        if bundle.run["zero_stage"] != 3:
            return
        print_no_counts()
        if bundle.on_cpu and bundle.stack["zero3_gathers_early"]:
            wait_for_every_gather()
        if bundle.plan["method"]["generates"]:
            keep_numbers_of_modules()

    def trainer_options(self, bundle: Bundle, model: Model, load: Callable[[], Any], options: dict[str, Any]) -> None:
        """Correct peft's wrapper before adapters are added together with fully trained modules, such as a score
        head."""
        saves_modules = bundle.lora and (bundle.plan["method"]["scores"] or bundle.lora["modules_to_save"])
        if saves_modules and bundle.stack["zero3_hooks_shared"] and bundle.run["zero_stage"] == 3:
            hooks_on_wrapper()


def no_shared_memory_op() -> None:
    """Keep DeepSpeed from compiling a C++ extension at the start of a CPU run (deepspeed/comm/torch.py, build_shm_op).

    The extension is used only for inference, and building it takes a compiler and a minute or two. All installed
    versions of DeepSpeed share one build folder, so the build of one version breaks another ("no attribute
    'vector_kernel_level'").
    """
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def print_no_counts() -> None:
    """Keep DeepSpeed before 0.19 from printing how many weights ZeRO-3 does not shard. DeepSpeed would print this
    whenever it adds its hooks (zero/parameter_offload.py, mark_persistent_parameters).
    """
    from deepspeed.runtime.zero import parameter_offload

    parameter_offload.print_rank_0 = lambda *_, **__: None


def wait_for_every_gather() -> None:
    """Make DeepSpeed before 0.19 wait for each parameter that it gathers, as 0.19.8 does.

    DeepSpeed starts many gathers and waits only for the last one (partition_parameters.py,
    _allgather_params_coalesced). That is enough on a CUDA stream. With gloo, an earlier gather may finish later and
    overwrite weights that were just loaded: one ZeRO-3 run in four began with garbage. Therefore parameters are
    gathered one at a time, so that each gather is the last one.
    """
    from deepspeed.runtime.zero.partition_parameters import Init

    gather = Init._allgather_params_coalesced

    def one_by_one(self: object, param_list: list[object], hierarchy: int = 0, quantize: bool = False) -> None:
        for param in param_list:
            gather(self, [param], hierarchy, quantize)

    Init._allgather_params_coalesced = one_by_one


def keep_numbers_of_modules() -> None:
    """Let the modules of a ZeRO-3 model keep the ids that DeepSpeed gave them first.

    For each generation, trl removes DeepSpeed's hooks and adds them again. This renumbers all modules, beginning after
    the last id (parameter_offload.py of 0.16 and 0.19, ``count=[0]``). DeepSpeed's earlier trace of the modules then
    has outdated ids: with adapters and DeepSpeed 0.16.8, the second step ends with "pop from an empty deque".
    """
    from deepspeed.runtime.zero.parameter_offload import DeepSpeedZeRoOffload

    register = DeepSpeedZeRoOffload._register_deepspeed_module

    def once(self: object, module: Any, count: list[int] | None = None) -> None:
        if count is not None:  # DeepSpeed itself makes this call, for a nested module
            register(self, module, count)
            return
        numbers = {one: one.ds_id for one in module.modules() if hasattr(one, "ds_id")}
        register(self, module)
        for one, number in numbers.items():
            one.ds_id = number

    DeepSpeedZeRoOffload._register_deepspeed_module = once


def hooks_on_wrapper() -> None:
    """Let DeepSpeed 0.16 add hooks to peft's wrapper of the score head, which forwards attributes to the inner module.

    ``hasattr(module, "post_bwd_fn")`` in DeepSpeed finds the inner module's hook on the wrapper (parameter_offload.py;
    AttributeError "ds_grads_remaining" at the first step). DeepSpeed 0.19 checks the module itself.
    """
    from peft.utils.other import ModulesToSaveWrapper

    passed_on = ModulesToSaveWrapper.__getattr__

    def without_hooks(self: object, name: str) -> object:
        if name in ("pre_bwd_fn", "post_bwd_fn", "ds_grads_remaining"):
            raise AttributeError(name)
        return passed_on(self, name)

    ModulesToSaveWrapper.__getattr__ = without_hooks
