"""DeepSpeed's ZeRO where it does not do by itself what a run needs (0.16 to 0.19)."""

from collections.abc import Callable
from typing import Any

from ..core.feature import Bundle, Feature


class DeepSpeedEngine(Feature):
    """DeepSpeed's engine on CPUs and of ZeRO-3."""

    def before_arguments(self, bundle: Bundle, values: dict[str, Any]) -> None:
        """Before the process group of a CPU run, and the engine of ZeRO-3, are made."""
        if bundle.on_cpu:
            no_shared_memory_op()
        if bundle.run["zero_stage"] != 3:
            return
        if bundle.on_cpu and bundle.stack["zero3_gathers_early"]:
            wait_for_every_gather()
        if bundle.plan["method"]["generates"]:
            keep_numbers_of_modules()

    def trainer_options(self, bundle: Bundle, model: Any, load: Callable[[], Any], options: dict[str, Any]) -> None:
        """Before adapters with whole modules beside them, such as a score, are put into a ZeRO-3 model."""
        saves_modules = bundle.lora and (bundle.plan["method"]["scores"] or bundle.lora["modules_to_save"])
        if saves_modules and bundle.stack["zero3_hooks_shared"] and bundle.run["zero_stage"] == 3:
            hooks_on_wrapper()


def no_shared_memory_op() -> None:
    """Keeps DeepSpeed from compiling a C++ extension at the start of a CPU run (deepspeed/comm/torch.py, build_shm_op).

    It would need a compiler and a minute or two, serves inference only, and its build folder is shared by all versions
    of DeepSpeed that a user has: the build of one breaks another ("no attribute 'vector_kernel_level'").
    """
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def wait_for_every_gather() -> None:
    """Makes DeepSpeed before 0.19 wait for each parameter that it gathers; 0.19.8 does so by itself.

    It starts many gathers and waits for the last only (partition_parameters.py, _allgather_params_coalesced). That is
    enough on a CUDA stream; with gloo an earlier one may end later, over weights that were just loaded: one ZeRO-3 run
    in four began from garbage. With one parameter at a time, the last one is the only one.
    """
    from deepspeed.runtime.zero.partition_parameters import Init

    gather = Init._allgather_params_coalesced

    def one_by_one(self: Any, param_list: list[Any], hierarchy: int = 0, quantize: bool = False) -> None:
        for param in param_list:
            gather(self, [param], hierarchy, quantize)

    Init._allgather_params_coalesced = one_by_one


def keep_numbers_of_modules() -> None:
    """Lets the modules of a ZeRO-3 model keep the numbers that DeepSpeed gave them first.

    trl takes DeepSpeed's hooks off for each generation and puts them on again, which counts all modules anew and goes
    on from the last number (parameter_offload.py of 0.16 and 0.19, ``count=[0]``). A trace of modules that was begun
    before is then looked up by numbers that are gone: with adapters and DeepSpeed 0.16.8 the second step ends with "pop
    from an empty deque".
    """
    from deepspeed.runtime.zero.parameter_offload import DeepSpeedZeRoOffload

    register = DeepSpeedZeRoOffload._register_deepspeed_module

    def once(self: Any, module: Any, count: list[int] | None = None) -> None:
        if count is not None:  # a module inside of the one that was asked for
            register(self, module, count)
            return
        numbers = {one: one.ds_id for one in module.modules() if hasattr(one, "ds_id")}
        register(self, module)
        for one, number in numbers.items():
            one.ds_id = number

    DeepSpeedZeRoOffload._register_deepspeed_module = once


def hooks_on_wrapper() -> None:
    """Lets DeepSpeed 0.16 put hooks on peft's wrapper of the scores: the wrapper answers for the module inside it.

    DeepSpeed asks ``hasattr(module, "post_bwd_fn")``, is told of the inner module's, and counts on the wrong one
    (parameter_offload.py; AttributeError "ds_grads_remaining" at the first step). DeepSpeed 0.19 looks at
    the module itself.
    """
    from peft.utils.other import ModulesToSaveWrapper

    passed_on = ModulesToSaveWrapper.__getattr__

    def without_hooks(self: Any, name: str) -> Any:
        if name in ("pre_bwd_fn", "post_bwd_fn", "ds_grads_remaining"):
            raise AttributeError(name)
        return passed_on(self, name)

    ModulesToSaveWrapper.__getattr__ = without_hooks
